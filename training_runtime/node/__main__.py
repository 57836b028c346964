"""`edt-node join STUDIO --token TOKEN`, or `python -m training_runtime.node join ...`."""

from __future__ import annotations

import contextlib
import fcntl
import glob
import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import IO

from training_runtime.errors import RootlessUnavailable
from training_runtime.host import processes, rootless
from training_runtime.node.link import Link
from training_runtime.node.settings import Settings, parse

log = logging.getLogger(__name__)
GONE_WITHIN_S = 10.0
RUNS_HERE = "edt-node already runs in {home}: give another one a home of its own (--home), or take over from this one (--replace).\n"
RUNS_ELSEWHERE = (
    "edt-node already runs in {home}, in another container or on another machine that has this folder: end it there, or give this one a "
    "home of its own (--home).\n"
)


def main() -> int:
    settings = parse(sys.argv[1:], os.environ)
    try:
        rootless.enter(settings.work, os.environ.get(rootless.SETTING, ""))
    except RootlessUnavailable as error:
        sys.stderr.write(f"{error}\n")
        return 2
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s node %(levelname)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    with open(settings.home / "node.lock", "a+") as lock:
        if settings.replace:
            _end(settings.home / "node.lock")
            for host in _own_hosts(settings):
                _end(host)
        if not _held(lock, GONE_WITHIN_S if settings.replace else 0.0):
            seen = processes.holder(settings.home / "node.lock") is not None
            sys.stderr.write((RUNS_HERE if seen else RUNS_ELSEWHERE).format(home=settings.home))
            return 1
        lock.truncate(0)
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        status = Link(settings).run()
        if settings.temporary:
            _delete(settings.home)
        return status


def _delete(home: Path) -> None:
    """As who moved here by `rootless`, also what belongs to users of runs. By a program that no depth of folders stops."""
    subprocess.run(["rm", "-rf", "--one-file-system", "--", str(home)], check=False)


def _own_hosts(settings: Settings) -> list[Path]:
    """The locks of node hosts that are this link's to end. In shared folders are those of other machines, too."""
    if not settings.has_host:
        return []
    name = glob.escape(settings.name) if settings.shares is not None else "*"
    return sorted((settings.work / "host").glob(f"{name}/host.lock")) if name else []


def _held(lock: IO[str], patience_s: float) -> bool:
    """Whether the lock is this process's, which may take as long as another needs to be gone."""
    end = time.monotonic() + patience_s
    while True:
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        if time.monotonic() >= end:
            return False
        time.sleep(0.05)


def _end(lock: Path) -> None:
    """SIGKILL for who holds that lock, and for nothing that it has started: what a host leaves the next finds."""
    if (process := processes.holder(lock)) is not None:
        log.info("Process %d is ended, and its runs train on (%s).", process.pid, lock.name)
        processes.send_signal(process, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main())
