"""The quiet parent that workers are forked from: imports, model and dataset are in its memory, no thread runs, no device is initialised.

It calls the datasets function once, so that all workers of the machine share the dataset copy-on-write; then it only forks, kills and reaps
on command of the driver and reports every exit. When the driver is gone it tells the workers, waits until they have written down what they
know, and goes too. For a script that must not be forked, `fork_server_spawned` makes one that holds nothing of the script's.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from typing import NoReturn, Protocol

from training_runtime.elastic.comm.segment import BEAT, Layout, Segment
from training_runtime.elastic.driver import advice
from training_runtime.elastic.driver.hang_rules import Grace
from training_runtime.elastic.job import Job
from training_runtime.elastic.processes.becoming import Becomes
from training_runtime.elastic.processes.commands import LIMIT_BYTES, Fork, Kill, decode
from training_runtime.elastic.processes.process_handles import (
    adopt_orphans,
    die_with_parent,
    has_ended,
    is_stopped,
    outlive_parent,
    reap_others,
    wait,
)
from training_runtime.elastic.processes.report_socket import Outbox
from training_runtime.elastic.processes.reports import Exited, Forked, ForkServerFailed, Sized, Unforkable
from training_runtime.elastic.processes.script import why_not_fork
from training_runtime.elastic.state import emergency_checkpoint
from training_runtime.errors import ProtocolError

EMERGENCY_S = 30.0  # how long workers without a driver may show nothing while they write down their state
_LOOK_S = 0.5
_UNTIDY_S = 10.0  # after a worker's end: what it left behind should have ended by then
_DYING_S = 5.0  # from the closing of a dead driver's sockets until it has ended


class Child(Protocol):
    """How a worker's process begins. `driver` is its pidfd."""

    segment_fd: int
    driver: int

    def leave(self) -> None: ...

    def __call__(self, command: Fork, lengths: tuple[int, int]) -> None: ...


def start(job: Job, child: Child, to_driver: Outbox) -> tuple[int, socket.socket]:
    """Fork the fork server from a process without threads; its pid and the socket for commands. `child` runs a worker in a process of
    its own."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    sys.stdout.flush()
    sys.stderr.flush()
    parent = os.getpid()
    pid = os.fork()
    if pid:
        theirs.close()
        return pid, ours
    ours.close()

    def prepare() -> tuple[tuple[int, int], Layout]:
        lengths = job.prepare_datasets()
        if job.fallback is not None and (why := why_not_fork()):
            to_driver.send(Unforkable(why, *lengths))
            theirs.recv(1)  # until the driver ends this process, for another one
        gc.collect()
        gc.freeze()
        return lengths, job.layout(job.shape(*lengths))

    return run(parent, prepare, child, theirs, to_driver, where="datasets function")


def run(
    parent: int,
    prepare: Callable[[], tuple[tuple[int, int], Layout]],
    child: Child,
    commands: socket.socket,
    to_driver: Outbox,
    *,
    where: str,
) -> NoReturn:
    """The whole life of a fork server, a child of the driver `parent`. `prepare` gives the lengths of the datasets and the segment's
    layout; `where` names it in an error. Raises Becomes in a worker that goes on in a loop of the script's."""
    code = 1
    try:
        die_with_parent(parent)
        child.leave()
        adopt_orphans(True)  # what a killed worker leaves behind is ours to reap
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in a terminal reaches everybody; the driver decides
        lengths, layout = prepare()
        outlive_parent()
        to_driver.send(Sized(*lengths))
        alive = _serve(child, commands, to_driver, lengths)
        if alive and wait(child.driver, _DYING_S):
            _drain(alive, Segment(child.segment_fd, layout))
        code = 0
    except Becomes:  # a worker's process
        raise
    except BaseException as error:
        try:
            to_driver.send(ForkServerFailed(where, traceback.format_exc(), advice.after(error)))
        finally:
            _exit(code)
    _exit(code)


def _serve(child: Child, commands: socket.socket, to_driver: Outbox, lengths: tuple[int, int]) -> dict[int, int]:
    """Until the driver closes its end; who is alive then. A pidfd becomes readable when its process has exited; then it is reaped and
    reported. What it leaves behind (its loaders, what the user's code has started) ends a little later and has no pidfd. Raises
    ConnectionError where the driver cannot be told: it then sees this process end, and begins anew."""
    alive: dict[int, tuple[int, int]] = {}  # pidfd -> pid, worker id
    untidy_until = 0.0
    poll = select.poll()
    poll.register(commands.fileno(), select.POLLIN)
    while True:
        untidy = time.monotonic() < untidy_until
        for fd, _ in poll.poll(1000 * _LOOK_S if untidy else None):
            if fd in alive:
                pid, worker_id = alive.pop(fd)
                poll.unregister(fd)
                os.close(fd)
                _, status = os.waitpid(pid, 0)
                to_driver.send(Exited(worker_id, os.waitstatus_to_exitcode(status)))
                untidy_until = time.monotonic() + _UNTIDY_S
                continue
            raw = _receive(commands)
            if not raw:
                return {fd: pid for fd, (pid, _) in alive.items()}
            command = decode(raw)
            if isinstance(command, Kill):
                for pid in (pid for pid, worker_id in alive.values() if worker_id == command.worker_id):
                    os.kill(pid, signal.SIGKILL)  # our child and not reaped: the pid is still its own
                continue
            if not isinstance(command, Fork):
                raise ProtocolError(f"a fork server does not {command.do}")
            pid = _fork(child, command, commands, lengths)
            fd = os.pidfd_open(pid)
            alive[fd] = (pid, command.worker_id)
            poll.register(fd, select.POLLIN)
            to_driver.send(Forked(command.worker_id, pid))
        if to_driver.unsent and not has_ended(child.driver):
            raise ConnectionError("the socket for reports was shut down")
        if untidy:
            reap_others({pid for pid, _ in alive.values()})


def _receive(commands: socket.socket) -> bytes:
    """Nothing when the driver has closed its end; a reset where it died with something unread."""
    try:
        return commands.recv(LIMIT_BYTES)
    except ConnectionResetError:
        return b""


def _drain(alive: dict[int, int], segment: Segment) -> None:
    """The driver is gone: `alive` (pidfd -> pid) are told and given time to write down their state, which begins anew while bytes are
    written. Who is stopped has none."""
    emergency_checkpoint.declare(segment)
    poll = select.poll()
    for fd in alive:
        poll.register(fd, select.POLLIN)
    grace = Grace(EMERGENCY_S, time.monotonic())
    while alive:
        for fd, _ in poll.poll(1000 * _LOOK_S):
            poll.unregister(fd)
            os.waitpid(alive.pop(fd), 0)
        over = grace.is_over(time.monotonic(), tuple(segment.get(worker_id, BEAT) for worker_id in range(segment.layout.max_workers)))
        for pid in alive.values():
            if over or is_stopped(pid):
                os.kill(pid, signal.SIGKILL)


def _fork(child: Child, command: Fork, commands: socket.socket, lengths: tuple[int, int]) -> int:
    parent = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        commands.close()
        die_with_parent(parent)
        child(command, lengths)
        code = 0
    except Becomes:
        raise
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else 1
    except BaseException:
        traceback.print_exc()
    return _exit(code)


def _exit(code: int) -> NoReturn:
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)
