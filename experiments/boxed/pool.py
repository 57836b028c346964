"""Asks a boxed child to do a job on what a stranger wrote: `ask`. Any thread of any process of the studio may (not an event loop: it
blocks); the fork server behind it is started by the first that does, or beforehand by `warm`, and ends with the process.

There are lanes, so that those who look at pages do not wait for those who unpack gigabytes: so many jobs of a lane at once in a process,
and the next waits its turn (see `turns`), within a time. A child that takes too long is killed, one that breaks down or answers nonsense
has failed; the next call gets a new one in either case, since each call does.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NoReturn

from django.conf import settings
from django.utils.asyncio import async_unsafe

from experiments.boxed import turns, wire
from experiments.boxed.turns import Turns
from experiments.boxed.wire import Ended, Order
from training_runtime.errors import ProtocolError
from training_runtime.host.sandbox.file_box import Folder, Limits, Walls
from training_runtime.records import build

__all__ = ["PAGES", "SEARCHES", "UPLOADS", "Busy", "Lane", "Limits", "Unreadable", "ask", "walls", "warm"]

log = logging.getLogger(__name__)
MOST_ANSWER_BYTES = 4 << 20  # unless more is asked for: of JSON, which may be twenty times as large in memory
START_S = 60.0  # of a fork server, on a machine that is busy
SEND_S = 10.0
_KEPT = ("EDT_UID_BASE", "LD_LIBRARY_PATH", "LANG", "LC_ALL")
BROKEN = "what reads it broke down"


class Unreadable(Exception):
    """There is no answer. The message is why, as the end of a sentence: "it took longer than 3 s"."""


class Busy(Unreadable):
    """Others are at it, and have been for as long as one waits."""


class _Gone(Exception):
    """The fork server is not there any more."""


@dataclass(frozen=True)
class Lane:
    """So many jobs at once, and how long one waits for its turn."""

    name: str
    size: int
    patience_s: float


PAGES = Lane("pages", 4, 5.0)
SEARCHES = Lane("searches", 2, 5.0)
UPLOADS = Lane("uploads", 4, 120.0)


@async_unsafe("Work on people's files blocks: ask for it in a thread.")
def ask(
    job: str,
    said: Mapping[str, object],
    *,
    limits: Limits,
    wall_s: float,
    lane: Lane = PAGES,
    files: Sequence[int] = (),
    folder: tuple[int, Folder] | None = None,
    most_bytes: int = MOST_ANSWER_BYTES,
) -> object:
    """The answer of a job of `jobs.JOBS`, as JSON has it: of the right form only if the child is who it should be, so look at it closely.

    `files`: descriptors that the job reads, or writes; `folder`: one of a folder, and what the child may do in it; `most_bytes`: of the
    answer. Raises Unreadable, and OSError for what the system refuses: a full disk.
    """
    order = Order(limits, folder[1] if folder else "")
    descriptors = [*([folder[0]] if folder else []), *files]
    request = wire.line({"job": job, "said": said})
    with _turn(lane):
        deadline = time.monotonic() + wall_s
        for _ in range(2):
            server = _POOL.server()
            try:
                line = _answer(server, order, descriptors, request, deadline=deadline, most_bytes=most_bytes)
                break
            except _Gone:
                _POOL.discard(server)
            except TimeoutError:
                raise Unreadable(f"it took longer than {wall_s:g} s") from None
        else:
            raise Unreadable(BROKEN)
    return _believed(line, limits)


def warm() -> None:
    """Start the fork server if there is none, so that the first who asks need not wait for it."""
    with contextlib.suppress(Unreadable):
        _POOL.server()


def walls() -> Walls:
    """What holds around children here. Raises Unreadable where there can be none."""
    return _POOL.server().walls


@dataclass(frozen=True)
class _Server:
    process: subprocess.Popen[bytes]
    control: socket.socket
    walls: Walls


class _Pool:
    """Of this process: its fork server, and whose turn it is. A process that is forked from this one begins with none."""

    def __init__(self) -> None:
        self._watched = False
        self._begin()

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._server: _Server | None = None
        self._turns = {lane.name: Turns(lane.size) for lane in (PAGES, SEARCHES, UPLOADS)}

    def server(self) -> _Server:
        with self._lock:
            if self._server is None or self._server.process.poll() is not None:
                if not self._watched:
                    os.register_at_fork(after_in_child=self._leave)
                    self._watched = True
                self._close()
                self._server = _started()
            return self._server

    def discard(self, server: _Server) -> None:
        """It does not answer. Another takes its place."""
        with self._lock:
            if self._server is server:
                self._close()

    def close(self) -> None:
        with self._lock:
            self._close()

    def turns(self, lane: Lane) -> Turns:
        return self._turns[lane.name]

    def _close(self) -> None:
        if self._server is not None:
            self._server.control.close()
            self._server.process.kill()
            self._server.process.wait()
            self._server = None

    def _leave(self) -> None:
        """In a forked process: the fork server is the parent's, and ends when that one's end of the socket is closed."""
        if self._server is not None:
            self._server.control.close()
            self._server.process.returncode = 0  # not ours to wait for
        self._begin()


_POOL = _Pool()


@contextlib.contextmanager
def _turn(lane: Lane) -> Iterator[None]:
    mine, who = _POOL.turns(lane), turns.asks.get()
    if not mine.begin(who, patience_s=lane.patience_s):
        raise Busy("others are at it just now: try again in a moment")
    try:
        yield
    finally:
        mine.end(who)


def _started() -> _Server:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with contextlib.ExitStack() as cleanup:
        cleanup.callback(theirs.close)
        closing = cleanup.enter_context(contextlib.ExitStack())
        closing.callback(ours.close)
        script = Path(__file__).with_name("__main__.py")
        program = [sys.executable, "-I", str(script), str(theirs.fileno()), str(os.getpid()), str(settings.EDT_HOME)]
        environment = {name: os.environ[name] for name in _KEPT if name in os.environ}
        null = subprocess.DEVNULL
        try:
            process = subprocess.Popen(program, stdin=null, stdout=null, env=environment, cwd="/", pass_fds=(theirs.fileno(),))
        except OSError as error:
            raise Unreadable(f"no process can be started for it ({error.strerror})") from None
        closing.callback(process.wait)
        closing.callback(process.kill)
        theirs.close()
        ours.settimeout(START_S)
        try:
            found = build(Walls, json.loads(ours.recv(wire.ORDER_BYTES)))
        except (OSError, ValueError, ProtocolError):
            log.exception("the process that works on people's files does not start")
            raise Unreadable(BROKEN) from None
        ours.settimeout(SEND_S)
        closing.pop_all()
    log.info("work on people's files: %s", found)
    return _Server(process, ours, found)


def _answer(server: _Server, order: Order, descriptors: Sequence[int], request: bytes, *, deadline: float, most_bytes: int) -> bytes:
    """The line that came of it. Raises _Gone where nobody has looked at the order, TimeoutError, Unreadable."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with ours:
        with theirs:
            try:
                wire.send(server.control, json.dumps(asdict(order)).encode(), [theirs.fileno(), *descriptors])
            except OSError:
                raise _Gone from None
        pidfd = _begun(ours, deadline)
        try:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it ended at once: what was said of it can be read
                ours.settimeout(_seconds_left(deadline))
                ours.sendall(request)
            return _line(ours, deadline, most_bytes)
        except ConnectionResetError:
            raise Unreadable(BROKEN) from None
        finally:
            _end(pidfd, writes=order.limits.file_bytes > 0)


def _begun(at: socket.socket, deadline: float) -> int:
    """The child, as a pidfd."""
    at.settimeout(_seconds_left(deadline))
    try:
        begun, pidfds = wire.receive(at, 1)
    except ConnectionResetError:
        raise _Gone from None
    if begun == wire.NOT_BEGUN:
        raise Unreadable("no process can be started for it")
    if begun != wire.BEGUN or len(pidfds) != 1:
        raise _Gone
    return pidfds[0]


def _seconds_left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _line(at: socket.socket, deadline: float, most_bytes: int) -> bytes:
    """Up to the end of the first line, or of all."""
    pieces, size = [], 0
    while True:
        at.settimeout(_seconds_left(deadline))
        piece = at.recv(1 << 18)
        pieces.append(piece)
        size += len(piece)
        if not piece or b"\n" in piece:
            return b"".join(pieces).partition(b"\n")[0]
        if size > most_bytes:
            raise Unreadable(f"more than {_format_size(most_bytes)} came of it")


def _end(pidfd: int, *, writes: bool) -> None:
    """Whatever it is still doing, also one that has answered. Where it may write, it is gone when this returns, or nothing came of it."""
    try:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        if writes and not select.select([pidfd], [], [], SEND_S)[0]:
            raise Unreadable("the disk does not let go of it")
    finally:
        os.close(pidfd)


def _believed(line: bytes, limits: Limits) -> object:
    """The answer; it was written by a child that may have been taken over, so nothing is taken for granted."""
    try:
        said = json.loads(line)
    except (ValueError, RecursionError):
        raise Unreadable(BROKEN) from None
    if not isinstance(said, dict) or "answer" not in said:
        _tell(said if isinstance(said, dict) else {}, limits)
    return said["answer"]


def _tell(said: Mapping[str, object], limits: Limits) -> NoReturn:
    failed, number = said.get("failed"), said.get("number")
    if failed == "memory":
        raise Unreadable(f"it needs more memory than {_format_size(limits.memory_bytes)}")
    if failed == "depth":
        raise Unreadable("it is nested too deeply")
    if failed == "system" and isinstance(number, int) and 0 < number < 4096:
        raise OSError(number, os.strerror(number))
    if failed == "error":
        log.warning("work on a file failed: %.500s", said.get("said"))
    with contextlib.suppress(ProtocolError):
        ended = build(Ended, said.get("ended"))
        if ended.signal == signal.SIGXCPU or ended.cpu_s >= limits.cpu_s:
            raise Unreadable(f"it took longer than {limits.cpu_s} s")
        if ended.signal == signal.SIGKILL:
            raise Unreadable("it needs more memory than there is")
    raise Unreadable(BROKEN)


def _format_size(size_bytes: int) -> str:
    return f"{size_bytes >> 20} MiB"
