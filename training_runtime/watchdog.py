"""Says to whoever supervises this process that it is alive and its loop turns: "WATCHDOG=1" to NOTIFY_SOCKET, as in sd_notify(3).

Nothing is sent where nobody has asked for it. Nothing here waits or raises: a supervisor that is away harms nobody. Standard library only.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

PING = b"WATCHDOG=1"
EVERY_S = 2.0


def ping(environment: dict[str, str] | None = None) -> bool:
    """Whether a supervisor was told."""
    where = (os.environ if environment is None else environment).get("NOTIFY_SOCKET", "")
    if not where:
        return False
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC) as sender,
        contextlib.suppress(OSError),
    ):
        if where.startswith("@"):
            sender.sendto(PING, f"\0{where[1:]}")
            return True
        # An address holds 107 bytes, a path may be longer: it is named through its open folder.
        path = Path(where)
        folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            sender.sendto(PING, f"/proc/self/fd/{folder}/{path.name}")
        finally:
            os.close(folder)
        return True
    return False


class Pinger:
    """For a loop: pings at most every EVERY_S, however often it turns."""

    def __init__(self) -> None:
        self._due = 0.0

    def turn(self, now: float) -> None:
        """`now` is monotonic."""
        if now >= self._due:
            self._due = now + EVERY_S
            ping()


class Thread(threading.Thread):
    """For a process whose loops may be busy for long: pings as long as `is_well` says that they turn."""

    def __init__(self, is_well: Callable[[float], bool]) -> None:
        super().__init__(name="watchdog", daemon=True)
        self.is_well = is_well
        self.stop = threading.Event()

    def run(self) -> None:
        while not self.stop.is_set():
            if self.is_well(time.monotonic()):
                ping()
            self.stop.wait(EVERY_S)
