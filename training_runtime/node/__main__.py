"""`edt-node join STUDIO --token TOKEN`, or `python -m training_runtime.node join ...`."""

from __future__ import annotations

import fcntl
import logging
import os
import sys

from training_runtime.node.link import Link
from training_runtime.node.settings import parse


def main() -> int:
    settings = parse(sys.argv[1:], os.environ)
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s node %(levelname)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    with open(settings.home / "node.lock", "ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sys.stderr.write(f"edt-node already runs in {settings.home}: give another one a home of its own (--home).\n")
            return 1
        return Link(settings).run()


if __name__ == "__main__":
    sys.exit(main())
