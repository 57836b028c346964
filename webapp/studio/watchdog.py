"""Notices children that hang: those that said "WATCHDOG=1" once (see training_runtime.watchdog) and have stopped saying so.

A child is known by the number of the process that sent the message, which the kernel vouches for. Decides; kills nothing itself.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from pathlib import Path

from training_runtime.watchdog import PING

SILENT_S = 30.0
LONGEST_START_S = 300.0
ASLEEP_S = 5.0  # a turn that comes so late: this process was stopped itself, or the whole machine
_CREDENTIALS = struct.Struct("3i")


class Watchdog:
    """`heard_at`: when each process last said that it is alive, by its number; times are of the monotonic clock."""

    def __init__(self, path: Path, *, silent_s: float = SILENT_S) -> None:
        self.path = path
        self.silent_s = silent_s
        self.heard_at: dict[int, float] = {}
        self._turned_at = self._awake_since = 0.0
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self._bind()

    def _bind(self) -> None:
        self.path.unlink(missing_ok=True)
        folder = os.open(self.path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self._socket.bind(f"/proc/self/fd/{folder}/{self.path.name}")  # its path may be longer than an address can be
        finally:
            os.close(folder)
        self.path.chmod(0o600)

    def listen(self, now: float) -> None:
        """Take in what was said since. To be called often: a long pause between two calls counts for nobody's silence."""
        if now - self._turned_at > ASLEEP_S:
            self._awake_since = now
        self._turned_at = now
        with contextlib.suppress(BlockingIOError):
            while True:
                data, ancillary, _, _ = self._socket.recvmsg(64, socket.CMSG_SPACE(_CREDENTIALS.size))
                for level, kind, said in ancillary:
                    if (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS) and data.startswith(PING):
                        self.heard_at[_CREDENTIALS.unpack(said)[0]] = now

    def note_alive(self, pid: int, now: float) -> None:
        """It has answered in another way."""
        self.heard_at[pid] = now

    def hangs(self, pid: int, *, started_at: float, now: float) -> bool:
        """Whether the process has been silent for too long. One that has not spoken yet is given the time to start."""
        heard = self.heard_at.get(pid)
        since = started_at + LONGEST_START_S - self.silent_s if heard is None else heard
        return now - max(since, self._awake_since) > self.silent_s

    def forget(self, pid: int) -> None:
        self.heard_at.pop(pid, None)

    def close(self) -> None:
        self._socket.close()
        self.path.unlink(missing_ok=True)
