"""The conversation with a run's driver: Members and Stop go out, Holding, Grown and Meets come in. The driver runs user code: nothing it
says is trusted."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import selectors
import time

from training_runtime.errors import ProtocolError, UnknownMessage
from training_runtime.host import processes, sockets
from training_runtime.host.actions import TellMembers
from training_runtime.host.node import Node
from training_runtime.host.runs.live import LiveRun
from training_runtime.host.sockets import LineSocket
from training_runtime.host.state import SentMembers
from training_runtime.imported import Imported
from training_runtime.meeting import Meets
from training_runtime.protocol import Authenticate, Grown, Holding, Members, Stop, Worker, decode, encode
from training_runtime.unknown_messages import LeftOut

log = logging.getLogger(__name__)
_MAX_WORKERS = 1024
_HIGHEST_SLOT = (1 << 63) - 1  # of the studio's database
_LONGEST_PAUSE_S = 5.0
_MOST_PIECES = 32


def connect(node: Node, run: LiveRun) -> None:
    """To the driver's socket. It succeeds before the driver accepts: what is sent waits in the socket."""
    run.retry_at = None
    try:
        link = LineSocket(sockets.connect(node.socket_file(run), timeout_s=0))
        link.send(encode(Authenticate(run.socket_token)))
    except OSError as error:
        if isinstance(error, FileNotFoundError | ConnectionRefusedError):  # it listens nowhere; one that is only busy is not gone
            run.unreachable_at = run.unreachable_at or time.monotonic()
        _lost(node, run, f"cannot connect: {error}")
        return
    run.unreachable_at = None
    run.link, run.members = link, None  # a driver that is connected to anew is told its members anew
    node.watch(link, functools.partial(_on_link, node, run))


def close(node: Node, run: LiveRun) -> None:
    """Both conversations, the gate's and the driver's, as far as they are open."""
    for line_socket in (run.link, run.gate):
        if line_socket is not None:
            node.unwatch(line_socket)
            line_socket.close()
    run.link = run.gate = run.retry_at = None


def tell(node: Node, run: LiveRun, told: TellMembers, *, revision: int) -> None:
    """From here on the driver may start a worker on each of the slots: that is noted, and written down, before it is sent. Where it cannot
    be written down, slots are only asked back."""
    slots, reason = told.slots, told.reason
    ids = tuple(slot.id for slot in slots)
    if run.told and (run.told[-1].slots, run.suspended, run.meeting) != (ids, told.suspend, told.meeting):
        # The host may change its mind between two snapshots of the studio: by the number the driver knows what is new.
        revision = max(revision, run.told[-1].revision + 1)
    run.told.append(SentMembers(revision, ids))
    run.slots |= {slot.id: slot for slot in slots}
    if not node.save() and slots:
        run.told.pop()
        return
    now = time.monotonic()
    asked_back = {slot: run.asked_back.get(slot, now) for slot in run.holding() if slot not in ids}
    run.evicted_at = run.evicted_at if run.asked_back.keys() & asked_back.keys() else None
    run.members, run.reason, run.asked_back = slots, reason, asked_back
    run.suspended, run.meeting = told.suspend, told.meeting
    _open_gpus(node, run)
    _send(node, run, encode(Members(revision, slots, reason, told.suspend, told.meeting)))


def _open_gpus(node: Node, run: LiveRun) -> None:
    """Before the driver is told of their slots. Where they stay closed, its workers there fail, and what is said of the run is why."""
    try:
        node.groups.open_gpus(run.group, run.gpus())
    except OSError as error:
        run.problem = f"the GPUs of its slots cannot be opened to it: {error}"
        log.error("%s run=%d", run.problem, run.run)


def ask_to_stop(node: Node, run: LiveRun, *, reason: str, now: float) -> None:
    run.stop_asked_at, run.reason = now, reason
    _send(node, run, encode(Stop(reason)))


def hear_last(run: LiveRun) -> None:
    """What a driver that has ended had said before that nobody else knows: of all else its end tells more."""
    with contextlib.suppress(OSError, ProtocolError):
        for _ in range(_MOST_PIECES if run.link is not None else 0):  # others may have the socket still, so it need not be closed
            assert run.link is not None
            for line in run.link.receive()[0]:
                with contextlib.suppress(UnknownMessage):
                    if isinstance(message := decode(line), Imported):
                        run.imported = message


def _send(node: Node, run: LiveRun, data: bytes) -> None:
    if run.link is None:
        return
    try:
        run.link.send(data)
    except OSError as error:
        hear_last(run)
        _lost(node, run, str(error))
    else:
        node.watch(run.link, functools.partial(_on_link, node, run))


def _on_link(node: Node, run: LiveRun, mask: int) -> None:
    link = run.link
    if link is None:
        return
    try:
        if mask & selectors.EVENT_WRITE:
            link.flush()
        lines, is_open = link.receive() if mask & selectors.EVENT_READ else ([], True)
        for line in lines:
            _receive(node, run, line)
    except ProtocolError as error:
        run.problem = f"the driver sent something that is not a message: {error}"
        log.warning("%s run=%d pid=%d", run.problem, run.run, run.pid)
        _lost(node, run, str(error))
    except OSError as error:
        _lost(node, run, str(error))
    else:
        run.link_failures = 0 if lines else run.link_failures
        if is_open:
            node.watch(link, functools.partial(_on_link, node, run))
        else:
            _lost(node, run, "closed by the driver")


def _lost(node: Node, run: LiveRun, why: str) -> None:
    """Connected to again after a pause, as long as the driver lives; what it holds stays as last known."""
    close(node, run)
    pause_s = min(_LONGEST_PAUSE_S, 0.05 * 2 ** min(run.link_failures, 10))
    run.link_failures += 1
    run.retry_at = time.monotonic() + pause_s
    node.changed = True
    if run.link_failures > 1:  # a driver that ends closes its socket a moment before it is reaped
        log.warning("the connection to a driver was lost (%s), trying again in %.2f s run=%d pid=%d", why, pause_s, run.run, run.pid)


def _receive(node: Node, run: LiveRun, line: bytes) -> None:
    try:
        message = decode(line)
    except UnknownMessage as error:
        run.left_out = run.left_out or LeftOut(log)
        run.left_out.note(error, of=f"the driver of run {run.run}")
        return
    if isinstance(message, Grown):
        if message.journal_bytes > run.journal_bytes and not run.remote:  # the journal is the driver's alone
            run.journal_bytes = message.journal_bytes
            node.grown.add(run.run)
    elif isinstance(message, Holding):
        _take_holding(node, run, message)
    elif isinstance(message, Imported):
        run.imported = message
    elif isinstance(message, Meets):
        run.met = message
        node.changed = True
    else:
        raise ProtocolError(f"a driver does not send {message.type}")


def _take_holding(node: Node, run: LiveRun, message: Holding) -> None:
    if len(message.workers) > _MAX_WORKERS:
        raise ProtocolError(f"more than {_MAX_WORKERS} workers")
    for worker in message.workers:
        if worker in run.workers:
            continue
        if not 0 <= worker.slot <= _HIGHEST_SLOT:  # what is held is told to the studio, in messages of a bounded length
            raise ProtocolError(f"{str(worker.slot)[:20]} is no slot")
        if len(run.workers) >= _MAX_WORKERS:  # each costs a descriptor, and it may go on naming others
            raise ProtocolError(f"more than {_MAX_WORKERS} workers")
        watch_worker(node, run, worker)
    # A worker that is no longer listed stays in `workers` until its own pidfd says that it has ended.
    taken_in = run.told[-1].revision if message.revision is None and run.told else message.revision or 0
    run.told = [told for told in run.told[:-1] if told.revision >= taken_in] + run.told[-1:]
    node.changed = True


def watch_worker(node: Node, run: LiveRun, worker: Worker) -> None:
    """Only processes of the run can hold its slots: a driver could otherwise name a process that never ends."""
    process = processes.look(worker.pid)
    if process is None or process.start_ticks != worker.start_ticks:
        return  # it has ended since
    if not _belongs(run, process):
        log.warning("a driver names a process that is not of its run run=%d pid=%d slot=%d", run.run, worker.pid, worker.slot)
        return
    if (handle := processes.open_handle(worker.pid, worker.start_ticks)) is not None:
        run.workers[worker] = handle
        node.watch(handle, lambda _: worker_ended(node, run, worker))


def _belongs(run: LiveRun, process: processes.Process | None) -> bool:
    while process is not None and process.pid > 1:
        if run.pid in (process.pid, process.session) or run.shim == process.pid:
            return True
        process = processes.look(process.parent)
    return False


def worker_ended(node: Node, run: LiveRun, worker: Worker) -> None:
    handle = run.workers.pop(worker)
    node.unwatch(handle)
    os.close(handle)
    node.changed = True
