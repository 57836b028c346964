"""Where the workers of each start come from: a process that is forked from the driver before the driver has any thread forks them, with all
imported that they need before their script.

A worker is a child of the agent, which waits for it as for any other process: whoever has forked it ends before it begins, and the agent is
the subreaper of its run. What libraries read from the environment as they are loaded, or an interpreter as it starts, cannot be told to a
process that is forked: where a person has said such a variable, or somebody has killed the fork server, it is a fresh interpreter.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from training_runtime import console
from training_runtime.elastic.processes import process_handles
from training_runtime.elastic.torchrun import worker

_ANSWER_S = 60.0  # a fork takes milliseconds, a fresh interpreter seconds
_ANSWER_BYTES = 32  # the worker's pid, or the number of an error, negative
_READ_EARLY = ("ATEN_", "C10_", "GOMP_", "KMP_", "LD_", "MALLOC_", "MKL_", "OMP_", "OPENBLAS_", "PYTHON", "PYTORCH_", "TORCH")


def read_early(said: Iterable[str]) -> list[str]:
    """Of these variables, those of which a process that is forked cannot be told."""
    return sorted(name for name in said if name.startswith(_READ_EARLY) or name == "GLIBC_TUNABLES")


class ForkServer:
    """The agent's end, made while its process has one thread. `said`: the names of the variables that the run's person has set."""

    def __init__(self, said: Iterable[str]) -> None:
        process_handles.adopt_orphans(True)
        self._begin(is_fresh=bool(read_early(said)))

    def fork(self, argv: Sequence[str], folder: str, environment: Mapping[str, str], log: int, begins: int) -> int:
        """The pid of a worker that runs `python ARGV` in `folder`, in its own session. Prints to `log`, closes `begins` when it begins with
        the script; the caller keeps its own of both. Raises OSError where it cannot be forked."""
        order = os.memfd_create("edt-order")
        try:
            os.pwrite(order, json.dumps([os.getpid(), list(argv), folder, dict(environment)]).encode(), 0)
            fds = [order, log, begins]
            try:
                return self._ask(fds)
            except (ConnectionError, TimeoutError):
                self.end()
                self._begin(is_fresh=True)
                return self._ask(fds)
        finally:
            os.close(order)

    def end(self) -> None:
        """It has nothing to lose. The workers go on."""
        self._commands.close()
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._handle, signal.SIGKILL)
        process_handles.wait(self._handle, None)
        process_handles.reap(self._pid)
        os.close(self._handle)

    def _ask(self, fds: list[int]) -> int:
        socket.send_fds(self._commands, [b"fork"], fds)
        raw = self._commands.recv(_ANSWER_BYTES)
        if not raw:
            raise ConnectionResetError("the fork server is gone")
        if (answer := int(raw)) < 0:
            raise OSError(-answer, f"no worker could be forked: {os.strerror(-answer)}")
        return answer

    def _begin(self, *, is_fresh: bool) -> None:
        self._commands, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._commands.settimeout(_ANSWER_S)
        with theirs:
            self._pid = _fresh(theirs) if is_fresh else _forked(theirs)
        self._handle = os.pidfd_open(self._pid)


def _forked(commands: socket.socket) -> int:
    agent = os.getpid()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    pid = os.fork()
    if not pid:
        try:
            _leave(keep=commands.fileno())
            serve(commands, agent)
        finally:
            os._exit(1)
    return pid


def _fresh(commands: socket.socket) -> int:
    command = [sys.executable, "-P", "-m", __name__, str(commands.fileno()), str(os.getpid())]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=[commands.fileno()])
    process.returncode = 0  # its object does not reap it
    return process.pid


def _leave(keep: int) -> None:
    """Let go of what the driver has open. The numbers stay taken: objects that are in this process as well close them some day."""
    console.inherit(-1)
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in [int(entry.name) for entry in Path("/proc/self/fd").iterdir()]:
        if number > 2 and number not in (keep, nothing):
            with suppress(OSError):  # of the listing itself
                os.fstat(number)
                os.dup2(nothing, number, inheritable=False)
    os.close(nothing)


def serve(commands: socket.socket, agent: int) -> NoReturn:
    """The whole life of a fork server: until the agent closes its end, or is gone."""
    process_handles.die_with_parent(agent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        raw, fds, _, _ = socket.recv_fds(commands, _ANSWER_BYTES, 3)
        if not raw:
            os._exit(0)
        try:
            answer = _fork(commands, fds)
        except OSError as error:
            answer = -(error.errno or errno.EAGAIN)
        commands.send(str(answer).encode())
        for fd in fds:
            os.close(fd)


def _fork(commands: socket.socket, fds: list[int]) -> int:
    """By way of a process between, at whose end the worker becomes the agent's."""
    told, tells = os.pipe()
    is_adopted, adopts = os.pipe()
    between = os.fork()
    if not between:
        try:
            if pid := os.fork():
                os.write(tells, str(pid).encode())
                os._exit(0)
            for fd in (told, tells, adopts, commands.detach()):
                os.close(fd)
            os.read(is_adopted, 1)
            os.close(is_adopted)
            worker.main(*fds)
        finally:
            os._exit(1)
    os.close(tells)
    os.waitpid(between, 0)
    answer = os.read(told, _ANSWER_BYTES)
    for fd in (told, is_adopted, adopts):
        os.close(fd)
    if not answer:
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
    return int(answer)


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2]))
