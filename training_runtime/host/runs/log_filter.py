"""Writes the logs of a run that has secrets, without their values: a thread of the run's shim.

Each of the run's processes prints into a pipe, whose other end came here together with the log that it belongs to (`console.open_log`).
The shim is there before the first of them and after the last, so whatever ends them, all that they printed is written, and what is hidden
has never been on the disk. What a process of the run sends is not trusted: it names descriptors of its own, which are checked and nothing
more than written to.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import socket
import stat
import threading
import traceback
from dataclasses import dataclass

from training_runtime import console
from training_runtime.masking import Mask, Stream

MOST_LOGS = 4096
_PIECE_BYTES = 1 << 16
_MESSAGE_BYTES = 64


@dataclass
class _Log:
    """A pipe and where it leads. `file` forgives a full disk."""

    pipe: int
    file: console.Forgiving
    stream: Stream


class LogFilter:
    """`begin` returns at once, `end` when all that was printed is written. They are for the shim's thread, the rest for another."""

    def __init__(self, control: socket.socket, secrets: list[str]) -> None:
        self._control, self._mask = control, Mask(secrets)
        self._logs: dict[int, _Log] = {}
        self._poll = select.poll()
        self._stop, self._stops = os.pipe()
        self._thread = threading.Thread(target=self._serve, name="logs", daemon=True)

    def begin(self) -> None:
        self._thread.start()

    def end(self) -> None:
        """Nobody is left who could print."""
        os.close(self._stops)
        self._thread.join()

    def _serve(self) -> None:
        try:
            for fd in (self._stop, self._control.fileno()):
                self._poll.register(fd, select.POLLIN)
            while self._turn():
                pass
            self._drain()
        except BaseException:  # better that they cannot print than that they wait for ever to be read
            traceback.print_exc()
        finally:
            self._control.close()
            for log in tuple(self._logs.values()):
                self._close(log)

    def _turn(self) -> bool:
        """False when it is to end."""
        for fd, _ in self._poll.poll():
            if fd in self._logs:
                self._read(self._logs[fd])
            elif fd == self._stop:
                return False
            elif fd == self._control.fileno():  # or of a log that was closed a moment ago
                self._read_control()
        return True

    def _read_control(self) -> None:
        message, fds, _, _ = socket.recv_fds(self._control, _MESSAGE_BYTES, 2)
        if message == console.LOG and len(fds) == 2 and self._add_log(*fds):
            return
        if message == console.SETTLE:
            self._drain()
        for fd in fds:
            os.close(fd)
        if not message:
            self._poll.unregister(self._control.fileno())

    def _add_log(self, pipe: int, file: int) -> bool:
        if len(self._logs) >= MOST_LOGS or not stat.S_ISFIFO(os.fstat(pipe).st_mode) or not stat.S_ISREG(os.fstat(file).st_mode):
            return False
        if not self._logs:  # by this the shim tells a host that knows nothing whose it is
            os.dup2(file, 1, inheritable=False)
        os.set_blocking(pipe, False)
        self._logs[pipe] = _Log(pipe, console.Forgiving(file, "wb"), Stream(self._mask))
        self._poll.register(pipe, select.POLLIN)
        return True

    def _drain(self) -> None:
        """Take all that is there now. Who prints faster than it is written is not waited for."""
        for log in tuple(self._logs.values()):
            for _ in range(256):
                if not self._read(log):
                    break

    def _read(self, log: _Log) -> bool:
        """Whether something was there."""
        try:
            data = os.read(log.pipe, _PIECE_BYTES)
        except BlockingIOError:
            return False
        if not data:
            self._close(log)
            return False
        _write(log.file, log.stream.pass_on(data))
        return True

    def _close(self, log: _Log) -> None:
        del self._logs[log.pipe]
        with contextlib.suppress(KeyError):
            self._poll.unregister(log.pipe)
        os.close(log.pipe)
        _write(log.file, log.stream.end())
        with contextlib.suppress(OSError):
            log.file.close()


def _write(file: console.Forgiving, data: bytes) -> None:
    """A write that cannot be done is dropped: nobody here could do anything about it."""
    with contextlib.suppress(OSError):
        while data:
            data = data[file.write(data) :]


def listen(control: socket.socket, driver: int) -> LogFilter | None:
    """What the driver says first: its secrets; None where it has none. Logs may become as large as it may write files."""
    message, fds, _, _ = socket.recv_fds(control, _MESSAGE_BYTES, 2)
    secrets: list[str] = []
    for fd in fds:
        if message == console.SECRETS:
            secrets = [str(value) for value in json.loads(os.pread(fd, os.fstat(fd).st_size, 0))]
        os.close(fd)
    if not secrets:
        control.close()
        return None
    with contextlib.suppress(OSError):
        resource.setrlimit(resource.RLIMIT_FSIZE, resource.prlimit(driver, resource.RLIMIT_FSIZE))
    return LogFilter(control, secrets)
