"""torchft's lighthouse: `python -m benchmarks.peers.torchft_lighthouse HEARTBEAT_TIMEOUT_MS`. Says its address and runs until its standard
input ends.

The time to wait for stragglers is that of torchft's example (10 s); its tick and its members' heartbeats are at their defaults (100 ms).
"""

from __future__ import annotations

import sys


def main(heartbeat_timeout_ms: int) -> None:
    from torchft.coordination import LighthouseServer

    server = LighthouseServer(bind="127.0.0.1:0", min_replicas=1, join_timeout_ms=10_000, heartbeat_timeout_ms=heartbeat_timeout_ms)
    print(server.address(), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(int(sys.argv[1]))
