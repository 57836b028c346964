"""Loader processes: they load batches for one worker while it computes.

Processes and not threads, because a dataset may draw from the global generators of `random`, numpy and torch: each batch is loaded from a
seed of its own (see `loading`), and two threads would draw from one another's. A loader is forked by a nursery, a quiet child that the
worker makes before anything in it has started a thread or a device; forking later from the worker itself would be unsafe. A batch comes
back through a memfd, two for each loader, so that it can load one while the other is fetched. All of them die with the worker.
"""

from __future__ import annotations

import io
import os
import pickle
import select
import signal
import socket
import sys
from collections import deque
from collections.abc import Callable
from typing import Any, NoReturn

import torch

from training_runtime.elastic.processes.process_handles import die_with_parent
from training_runtime.elastic.state.transfer import bytes_of, read_all, write_all

Load = Callable[[Any], Any]  # a task, which can be pickled -> its batch

_HEAD = 16  # bytes: where the pickled part lies, and how long it is
_LINE = 64
_TASK_BYTES = 1 << 20


class LoaderFailed(Exception):
    """A loader could not load or hand over a batch, or died."""


class Nursery:
    """The process that loaders are forked from."""

    def __init__(self, load: Load) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        sys.stdout.flush()
        sys.stderr.flush()
        worker = os.pidfd_open(os.getpid())
        self._pid = os.fork()
        if not self._pid:
            ours.close()
            _nurse(worker, theirs, load)
        os.close(worker)
        theirs.close()
        self._commands = ours

    def loader(self) -> Loader:
        """Start a loader. Raises OSError if the nursery is gone or there is no memory."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        rooms = (os.memfd_create("edt-batch"), os.memfd_create("edt-batch"))
        socket.send_fds(self._commands, [b"loader"], [theirs.fileno(), *rooms])
        theirs.close()
        return Loader(ours, rooms)

    def close(self) -> None:
        """End the nursery and its loaders; all are reaped when this returns."""
        self._commands.close()
        os.waitpid(self._pid, 0)


class Loader:
    """The worker's end of one loader. At most two tasks are with it at a time."""

    def __init__(self, channel: socket.socket, rooms: tuple[int, int]) -> None:
        self.channel, self._rooms = channel, rooms
        self.tasks: deque[Any] = deque()
        self._fetched = 0

    def ask(self, task: Any) -> None:
        """Give the loader a task. Raises LoaderFailed if it is gone."""
        try:
            self.channel.send(pickle.dumps(task))
        except OSError as error:
            raise LoaderFailed(str(error)) from None
        self.tasks.append(task)

    def fetch(self) -> tuple[Any, Any]:
        """Wait for the oldest task that was given; returns (task, batch). Raises LoaderFailed."""
        try:
            answer = self.channel.recv(4096)
        except OSError:
            answer = b""
        if answer != b"":
            task, room = self.tasks.popleft(), self._rooms[self._fetched % 2]
            self._fetched += 1
            if answer == b"loaded":
                return task, unpack(room)
        raise LoaderFailed(answer.decode() or "a loader died")

    def close(self) -> None:
        self.channel.close()
        for fd in self._rooms:
            os.close(fd)


def _nurse(worker: int, commands: socket.socket, load: Load) -> NoReturn:
    """Fork a loader for each set of descriptors that arrives, until the worker (a pidfd) closes its end or dies. Loaders are ended and
    reaped here: a worker that dies must not leave them to the driver."""
    loaders: list[int] = []
    try:
        poll = select.poll()
        for fd in (worker, commands.fileno()):
            poll.register(fd, select.POLLIN)
        while all(fd != worker for fd, _ in poll.poll()):
            message, fds, _, _ = socket.recv_fds(commands, 64, 3)
            if not message:
                break
            myself, pid = os.getpid(), os.fork()
            if not pid:
                commands.close()
                _serve(myself, socket.socket(fileno=fds[0]), (fds[1], fds[2]), load)
            loaders.append(pid)
            for fd in fds:
                os.close(fd)
    finally:
        for pid in loaders:
            os.kill(pid, signal.SIGKILL)  # our child and not reaped: the pid is still its own
        for pid in loaders:
            os.waitpid(pid, 0)
        os._exit(0)


def _serve(parent: int, channel: socket.socket, rooms: tuple[int, int], load: Load) -> NoReturn:
    """The loader's loop: load each requested batch, until the worker closes its end."""
    try:
        die_with_parent(parent)
        count = 0
        while raw := channel.recv(_TASK_BYTES):
            try:
                pack(rooms[count % 2], load(pickle.loads(raw)))  # noqa: S301 - from this run's own worker
                answer = b"loaded"
            except Exception as error:  # the worker will load it itself and meet the same error, where its traceback tells more
                answer = f"{type(error).__name__}: {error}".encode()[:1000]
            count += 1
            channel.send(answer)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


class _Packer(pickle.Pickler):
    """Pickles a batch; plain tensors are written apart. Others (strided, off a cache line) are pickled whole: so every tensor arrives
    with the strides and the alignment it had, which kernels may answer to."""

    def __init__(self, file: io.BytesIO, fd: int) -> None:
        super().__init__(file, protocol=5)
        self._fd, self.at = fd, _HEAD

    def persistent_id(self, obj: Any) -> tuple[torch.dtype, tuple[int, ...], int] | None:
        if type(obj) is not torch.Tensor or obj.device.type != "cpu" or obj.layout != torch.strided or obj.requires_grad:
            return None
        if not obj.numel() or not obj.is_contiguous() or obj.data_ptr() % _LINE or obj.is_conj() or obj.is_neg():
            return None
        start = -(-self.at // _LINE) * _LINE
        write_all(self._fd, memoryview(bytes_of(obj)), start)
        self.at = start + obj.numel() * obj.element_size()
        return obj.dtype, tuple(obj.shape), start


class _Unpacker(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, fd: int) -> None:
        super().__init__(file)
        self._fd = fd

    def persistent_load(self, pid: tuple[torch.dtype, tuple[int, ...], int]) -> torch.Tensor:
        dtype, shape, start = pid
        made = torch.empty(shape, dtype=dtype)
        read_all(self._fd, memoryview(bytes_of(made)), start)
        return made


def pack(fd: int, batch: Any) -> None:
    """Write a batch into a memfd."""
    file = io.BytesIO()
    packer = _Packer(file, fd)
    packer.dump(batch)
    raw = file.getvalue()
    os.pwrite(fd, packer.at.to_bytes(8, "little") + len(raw).to_bytes(8, "little"), 0)
    write_all(fd, memoryview(raw), packer.at)


def unpack(fd: int) -> Any:
    """The batch, in memory of its own."""
    head = os.pread(fd, _HEAD, 0)
    at, length = int.from_bytes(head[:8], "little"), int.from_bytes(head[8:], "little")
    raw = torch.empty(length, dtype=torch.uint8)
    read_all(fd, memoryview(bytes_of(raw)), at)
    return _Unpacker(io.BytesIO(bytes(memoryview(bytes_of(raw)))), fd).load()
