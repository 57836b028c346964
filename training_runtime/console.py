"""What a run's processes print: where it goes, and what becomes of it where the disk is full.

It is telemetry, so a full disk never costs a step: it is dropped, and how much is said later. Where the run has secrets it goes through its
shim (`host.log_filter`), which writes the logs without them; else each process writes its own.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import select
import socket
import stat
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from training_runtime import storage
from training_runtime.errors import SandboxRefused

# To the shim, each with its descriptors: of a file with the secrets; of a pipe and the log that it belongs to; of a pipe that it closes
# when all that was printed before is in the logs.
SECRETS, LOG, SETTLE = b"secrets", b"log", b"settle"
SETTLE_S = 5.0
_shim: socket.socket | None = None  # of this process, and by inheritance of those that it forks


class Forgiving(io.FileIO):
    lost_bytes = 0

    def write(self, data: Any, /) -> int:
        try:
            if self.lost_bytes:
                super().write(f"\n[the disk was full: {self.lost_bytes} bytes of output are missing here]\n".encode())
                self.lost_bytes = 0
            return super().write(data) or 0
        except BrokenPipeError:  # whoever wrote the log was killed
            return len(data)
        except OSError as error:
            if error.errno not in storage.UNAVAILABLE:
                raise
            self.lost_bytes += len(data)
            return len(data)


def forgive_full_disks() -> None:
    """Replace Python's standard output and standard error, once. Forked processes inherit it."""
    for name, fd in (("stdout", 1), ("stderr", 2)):
        before = getattr(sys, name)
        if isinstance(getattr(getattr(before, "buffer", None), "raw", None), Forgiving):
            continue
        before.flush()
        stream = io.BufferedWriter(Forgiving(fd, "wb", closefd=False))
        after = io.TextIOWrapper(stream, encoding=before.encoding, errors=before.errors, line_buffering=True, write_through=True)
        setattr(sys, name, after)


def hide(secrets: Iterable[str], shim: socket.socket) -> None:
    """From here on logs are opened through the shim, which is told what to hide. Its values go by a file in memory: there may be many."""
    global _shim
    file = os.memfd_create("edt-secrets")
    os.pwrite(file, json.dumps(list(secrets)).encode(), 0)
    socket.send_fds(shim, [SECRETS], [file])
    os.close(file)
    _shim = shim


def shim_fd() -> int:
    """For a fresh interpreter; -1 where this process writes its logs itself."""
    return _shim.fileno() if _shim is not None else -1


def inherit(fd: int) -> None:
    """In that interpreter."""
    global _shim
    _shim = socket.socket(fileno=fd) if fd >= 0 else None


def open_log(path: Path, *, mode: int = 0o640) -> int:
    """A descriptor to print to. Appends. O_NONBLOCK: a pipe put in its place by user code must not block the start. Raises SandboxRefused
    where something else is there."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    fd = os.open(path, flags, mode)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise SandboxRefused(f"{path} is not a plain file")
    os.set_blocking(fd, True)
    if _shim is None:
        return fd
    reads, writes = os.pipe()
    try:
        socket.send_fds(_shim, [LOG], [reads, fd])
    except OSError:
        os.close(writes)
        raise
    finally:
        os.close(reads)
        os.close(fd)
    return writes


def print_to(path: Path, *, mode: int = 0o640) -> None:
    """Standard output and standard error of this process, from here on."""
    fd = open_log(path, mode=mode)
    sys.stdout.flush()
    sys.stderr.flush()
    for number in (1, 2):
        os.dup2(fd, number)
    os.close(fd)


def settle() -> None:
    """Wait until all that was printed before is in the logs, a moment at most."""
    if _shim is None:
        return
    sys.stdout.flush()
    sys.stderr.flush()
    reads, writes = os.pipe()
    with contextlib.suppress(OSError):  # user code has closed it, or the shim was killed: then it ends at once
        socket.send_fds(_shim, [SETTLE], [writes])
    os.close(writes)
    poll = select.poll()
    poll.register(reads, select.POLLIN)
    poll.poll(1000 * SETTLE_S)
    os.close(reads)
