"""A script that keeps its slot: it hears neither the host nor a signal, and has helpers in sessions of their own that do not either."""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from pathlib import Path

from results import leave_a_daemon_behind

from training_runtime.elastic.driver.host_link import HostLink


def main() -> None:
    for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
        try:
            signal.signal(number, signal.SIG_IGN)
        except OSError:
            continue
    HostLink.poll = lambda self: time.sleep(0.05)  # type: ignore[method-assign]
    for _ in range(3):
        leave_a_daemon_behind(sys.argv[1])
    Path(os.environ["RESULT_DIR"], "deaf").touch()
    while True:
        select.select([], [], [], 10)


if __name__ == "__main__":
    main()
