"""Who can be hit in a studio, and how: processes by what they are, its database, its disk. For `benchmarks.chaos`."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil

SUPERVISED = ("web", "control", "ingest", "link", "broker", "host")
KINDS = ("studio", *SUPERVISED, "warm", "shim", "driver", "fork server", "worker")
DISK_BYTES = 1 << 30


def processes_by_kind(home: Path, processes: list[psutil.Process], studio: int) -> dict[str, list[int]]:
    """Process ids by kind, of the processes of the studio in `home`, whose own process is `studio`."""
    kinds: dict[str, list[int]] = defaultdict(list)
    kinds["studio"] = [studio]
    for name in SUPERVISED:
        with contextlib.suppress(OSError, ValueError, IndexError):  # it has just ended, or the disk was full
            kinds[name] = [int((home / "run" / f"{name}.pid").read_text().split()[0])]
    names: dict[int, str] = {}
    parents: dict[int, int] = {}
    for process in processes:
        with contextlib.suppress(psutil.Error):
            names[process.pid], parents[process.pid] = process.name(), process.ppid()
            if any("training_runtime.host.spares.warm" in word for word in process.cmdline()) and process.name().startswith("python"):
                kinds["warm"].append(process.pid)
    for pid, name in names.items():
        if name == "edt-shim":
            kinds["shim"].append(pid)
        elif name.startswith("edt-run-"):
            above = [names.get(parents[pid], ""), names.get(parents.get(parents[pid], 0), "")]
            in_run = sum(each.startswith("edt-run-") for each in above)
            kinds[("driver", "fork server", "worker")[in_run]].append(pid)
    return {kind: pids for kind, pids in kinds.items() if pids}


def strike(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


@contextlib.contextmanager
def disk_of_its_own(home: Path) -> Iterator[bool]:
    """A small file system on `home`, so that filling it harms nobody else. False where this machine does not let us mount one."""
    mounting = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES},mode=755", "edt-chaos", str(home)]
    mounted = os.geteuid() == 0 and subprocess.run(mounting, capture_output=True, check=False).returncode == 0
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", "--lazy", str(home)], check=True)
            shutil.rmtree(home, ignore_errors=True)  # where it was mounted


def fill(home: Path) -> Callable[[], None]:
    """Take every byte that is left on the disk of `home`; the result gives them back."""
    ballast = home / "ballast"
    with open(ballast, "wb", buffering=0) as file:
        for size in (1 << 20, 1 << 12, 1):
            with contextlib.suppress(OSError):
                while True:
                    file.write(bytes(size))
    return lambda: ballast.unlink(missing_ok=True)


LOCK = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], timeout=30, isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
sys.stdin.read()
"""


def lock(database: Path) -> Callable[[], None]:
    """Hold SQLite's write lock; the result lets it go. From a process of its own: another SQLite library in this one, that of Django's
    connection, would lose its locks when this one closes the file."""
    holder = subprocess.Popen([sys.executable, "-c", LOCK, str(database)], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)

    def release() -> None:
        holder.communicate()

    return release


class Healing:
    """What has been broken for a while is mended on time, also when several things are broken at once."""

    def __init__(self) -> None:
        self._timers: list[threading.Timer] = []

    def after(self, seconds: float, mend: Callable[[], None]) -> None:
        timer = threading.Timer(seconds, mend)
        self._timers.append(timer)
        timer.start()

    def at_once(self) -> None:
        """Wait until all is mended."""
        for timer in self._timers:
            timer.join()
