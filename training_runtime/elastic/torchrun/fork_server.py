"""Where the workers of each start come from: a process that is forked from the driver before the driver has any thread forks them, with all
imported that they need before their script.

A worker is a child of the agent, which waits for it as for any other process: whoever has forked it ends before it begins, and the agent is
the subreaper of its run. What libraries read from the environment as they are loaded, or an interpreter as it starts, cannot be told to a
process that is forked: where a person has said such a variable, or somebody has killed the fork server, it is a fresh interpreter.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from training_runtime import console
from training_runtime.elastic.processes import process_handles
from training_runtime.elastic.torchrun import fork_server_process
from training_runtime.elastic.torchrun.fork_server_process import AHEAD, ANSWER_BYTES, READY, WORD_BYTES, WORKER, Ahead, Work
from training_runtime.imported import Imported

_ANSWER_S = 600.0  # a fork takes milliseconds, a fresh interpreter seconds, or minutes from a slow disk
_READ_EARLY = (
    *("ATEN_", "C10_", "DNNL_", "GOMP_", "GOTO_", "KINETO_", "KMP_", "LD_", "MALLOC_", "MKL_", "NPY_", "NUMPY_", "OMP_", "ONEDNN_"),
    *("OPENBLAS_", "PYTHON", "PYTORCH_", "TORCH"),
)


def read_early(said: Iterable[str]) -> list[str]:
    """Of these variables, those of which a process that is forked cannot be told."""
    return sorted(name for name in said if name.startswith(_READ_EARLY) or name == "GLIBC_TUNABLES")


class ForkServer:
    """The agent's end, made while its process has one thread. `said`: the names of the variables that the run's person has set."""

    def __init__(self, said: Iterable[str]) -> None:
        process_handles.adopt_orphans(True)
        self._next: _Server | None = None  # which imports ahead
        self._server = self._begin(is_fresh=bool(read_early(said)))

    def fork(self, work: Work, log: int, begins: int, tells: int = -1) -> int:
        """The pid of a worker, which leads a process group. It prints to `log`, closes `begins` when it begins with the script, and tells
        in `tells`, if there is one, what it imports; the caller keeps its own of these. Raises OSError where it cannot be forked."""
        fds = [log, begins, *([tells] if tells >= 0 else [])]
        try:
            return self._server.ask(WORKER, work, fds)
        except (ConnectionError, TimeoutError):
            self._server.end()
            self._server = self._begin(is_fresh=True)
            return self._server.ask(WORKER, work, fds)

    def import_ahead(self, work: Work, imported: Imported, varying: frozenset[str]) -> None:
        """Have another one import these, with the environment of `work` but for the variables of `varying`. Workers of later starts are
        forked from there."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs, suppress(OSError):  # it is missed by nobody
            asked = Ahead(imported, tuple(sorted(varying)))
            self._next = _Server(ours, self._server.ask(AHEAD, work, [theirs.fileno()], asked))

    def settle(self) -> str:
        """Take over what has been imported ahead, if it is done; then what came of it, in words."""
        if self._next is None or not (word := self._next.word()):
            return ""
        done, self._next = self._next, None
        if word != READY:
            done.end()
            return f"workers import their packages themselves: {word.decode(errors='replace')}"
        self._server.end()
        self._server = done
        return "workers are forked with their packages imported from now on"

    def end(self) -> None:
        """They have nothing to lose. The workers go on."""
        for each in (self._server, self._next):
            if each is not None:
                each.end()

    def _begin(self, *, is_fresh: bool) -> _Server:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            return _Server(ours, _fresh(theirs) if is_fresh else _forked(theirs))


class _Server:
    """One process, a child of the agent."""

    def __init__(self, commands: socket.socket, pid: int) -> None:
        self._commands, self._pid = commands, pid
        self._commands.settimeout(_ANSWER_S)
        self._handle = os.pidfd_open(pid)

    def ask(self, what: bytes, work: Work, fds: list[int], ahead: Ahead | None = None) -> int:
        order = os.memfd_create("edt-order")
        try:
            os.pwrite(order, json.dumps([asdict(work), None if ahead is None else asdict(ahead)]).encode(), 0)
            socket.send_fds(self._commands, [what], [order, *fds])
        finally:
            os.close(order)
        raw = self._commands.recv(ANSWER_BYTES)
        if not raw:
            raise ConnectionResetError("the fork server is gone")
        if (answer := int(raw)) < 0:
            raise OSError(-answer, f"no worker could be forked: {os.strerror(-answer)}")
        return answer

    def word(self) -> bytes:
        """What it has said by itself, at once; nothing where it has not."""
        try:
            return self._commands.recv(WORD_BYTES, socket.MSG_DONTWAIT) or b"its process has ended"
        except BlockingIOError:
            return b""
        except OSError as error:
            return str(error).encode()

    def end(self) -> None:
        self._commands.close()
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._handle, signal.SIGKILL)
        process_handles.wait(self._handle, None)
        process_handles.reap(self._pid)
        os.close(self._handle)


def _forked(commands: socket.socket) -> int:
    agent = os.getpid()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    pid = os.fork()
    if not pid:
        try:
            _leave(keep=commands.fileno())
            fork_server_process.serve(commands, agent)
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
        finally:
            os._exit(1)
    return pid


def _fresh(commands: socket.socket) -> int:
    command = [sys.executable, "-P", "-m", fork_server_process.__name__, str(commands.fileno()), str(os.getpid())]
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
