"""How a run's processes end: signals to all of them, and the proof that nothing is left, before which no slot of it is free."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import time

from training_runtime import json_object
from training_runtime.errors import ProtocolError
from training_runtime.host import processes
from training_runtime.host.node import Node
from training_runtime.host.runs import talk
from training_runtime.host.runs.journals import has_trained, journal_size, outcome_in_journal
from training_runtime.host.runs.launch import Ready
from training_runtime.host.runs.live import LiveRun, being_written, folder_of
from training_runtime.records import build

log = logging.getLogger(__name__)
_STUCK_AFTER_S = 2.0


def terminate(run: LiveRun, *, now: float, interrupts: bool = False) -> None:
    run.terminated_at = now
    run.interrupted = run.interrupted or interrupts
    if processes.alive(run.pid, run.start_ticks):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(run.pid, signal.SIGTERM)


def kill(node: Node, run: LiveRun, *, now: float, reason: str, interrupts: bool) -> None:
    """One pass over every process of the run; the caller comes back until none is left."""
    run.killed_at = now
    run.first_killed_at = run.first_killed_at or now
    run.interrupted = run.interrupted or interrupts
    if run.phase == "launching":
        talk.close(node, run)  # a child behind a closed gate goes by itself
        if not run.pid:
            run.phase, run.exit_code, run.ended_at = "ended", -signal.SIGKILL, now
            node.changed = True
            return
    members = members_of(node, run)
    if members:
        log.info("Kill: %s run=%d pids=%s", reason, run.run, [process.pid for process in members])
    for process in members:
        processes.send_signal(process, signal.SIGKILL)
    if not members and now - run.first_killed_at > _STUCK_AFTER_S:  # it has nobody left to keep and does not end: stopped by somebody
        shim = processes.look(run.shim) if run.shim else None
        if shim is not None and shim.start_ticks == run.shim_ticks:
            processes.send_signal(shim, signal.SIGKILL)


def fence(node: Node) -> None:
    """The machine was declared lost meanwhile: what runs here goes on elsewhere, so none of it may write anything more."""
    for run in node.runs.values():
        if run.phase != "ended" and not run.fenced:
            log.warning("this machine was declared lost, its run is killed run=%d attempt=%d", run.run, run.attempt)
            run.fenced = True
            kill(node, run, now=time.monotonic(), reason="this machine was declared lost", interrupts=True)
    node.changed = True


def evict(run: LiveRun, *, now: float) -> None:
    """Kill the workers on slots that were asked back."""
    slots = run.overdue()
    for worker, handle in run.workers.items():
        if worker.slot in slots:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                signal.pidfd_send_signal(handle, signal.SIGKILL)
    run.evicted_at = now


def kill_driver(node: Node, run: LiveRun, *, now: float, interrupts: bool = False) -> None:
    """Alone. Whoever stopped it may have stopped all of the run: the others are let go on, so that they can write down their state."""
    run.interrupted = run.interrupted or interrupts
    run.evicted_at = now if run.asked_back else None
    others = [process for process in members_of(node, run) if process.pid != run.pid]
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if run.driver_handle is not None:
            signal.pidfd_send_signal(run.driver_handle, signal.SIGKILL)
    for process in others:
        processes.send_signal(process, signal.SIGCONT)
    run.stopped_at = run.unreachable_at = None


def look_at(run: LiveRun, *, now: float) -> None:
    """Note what nobody tells: whether the driver is stopped by a signal (the kernel tells only its parent), whether the run's folder is
    still there, and whether state is being written, where a slot is waited for."""
    look_for_folder(run)
    look_for_writing(run, now=now)
    process = processes.look(run.pid)
    stopped = process is not None and process.start_ticks == run.start_ticks and process.state == "T"
    run.stopped_at, run.looked_at = (run.stopped_at or now) if stopped else None, now


def look_for_writing(run: LiveRun, *, now: float) -> None:
    """Note whether state is being written, by a run that has to give back slots or to end, or by workers that have lost their driver."""
    has_to = run.asked_back or run.stop_asked_at is not None or run.phase == "clearing"
    if has_to and (found := being_written(run.result_dir)) != run.written:
        run.written, run.wrote_at = found, now


def look_for_folder(run: LiveRun) -> None:
    """Somebody may have moved or deleted it: what the run writes is then nowhere that anybody would look."""
    with contextlib.suppress(OSError):  # a file system that does not answer now is another matter
        run.folder_lost = run.folder is not None and folder_of(run.result_dir) != run.folder


def members_of(node: Node, run: LiveRun) -> tuple[processes.Process, ...]:
    """Every live process of the run.

    This includes orphans that came to us because their shim was killed: a child of ours that is nobody's driver or shim was left behind
    by a run that is gone. (A child that is being launched may not have said yet whose it is.)
    """
    found = processes.table()
    members = processes.of_run(run.traces(), found)
    if run.phase == "clearing" and not any(other.phase == "launching" for other in node.runs.values()):
        known = {pid for other in node.runs.values() for pid in (other.pid, other.shim)} | {node.warm_pid} | node.helpers
        strays = {p.pid for p in found.values() if p.parent == os.getpid() and p.pid not in known}
        strays |= processes.descendants(strays, found)
        members += tuple(found[pid] for pid in strays - {p.pid for p in members} if found[pid].state not in "ZX")
    return members


def watch(node: Node, run: LiveRun) -> None:
    """Hear of the end of the driver and of its shim. Whichever of them is gone already has ended now."""
    run.driver_handle = processes.open_handle(run.pid, run.start_ticks)
    run.shim_handle = processes.open_handle(run.shim, run.shim_ticks) if run.shim else None
    if run.shim_handle is not None:
        node.watch(run.shim_handle, lambda _: _shim_ended(node, run))
    if run.driver_handle is not None:
        node.watch(run.driver_handle, lambda _: driver_ended(node, run))
    else:
        driver_ended(node, run)


def driver_ended(node: Node, run: LiveRun) -> None:
    if run.phase in ("clearing", "ended"):
        return
    run.phase, run.driver_gone_at = "clearing", time.monotonic()
    _hear_refusal(run)
    talk.hear_last(run)
    talk.close(node, run)
    if run.driver_handle is not None:
        node.unwatch(run.driver_handle)
        os.close(run.driver_handle)
        run.driver_handle = None
    node.changed = True
    check_cleared(node, run)


def _hear_refusal(run: LiveRun) -> None:
    """A child that cannot be boxed in says why and ends at once: its end may be seen before its words."""
    if run.gate is None:
        return
    with contextlib.suppress(OSError, ProtocolError):
        for line in run.gate.receive()[0]:
            raw = json_object.parse(line)
            if "refused" in raw:
                run.problem = build(Ready, raw).problem


def _shim_ended(node: Node, run: LiveRun) -> None:
    if run.shim_handle is not None:
        node.unwatch(run.shim_handle)
        os.close(run.shim_handle)
        run.shim_handle = None
    if run.phase == "clearing":
        check_cleared(node, run)
    else:
        log.error("the shim of a run was killed; the run goes on run=%d shim=%d", run.run, run.shim)


def check_cleared(node: Node, run: LiveRun) -> None:
    """Whether anything of a run whose driver is gone is still there; the moment it is not, its slots are free."""
    left = members_of(node, run)
    if left or run.shim_handle is not None:
        late = run.first_killed_at is not None and time.monotonic() - run.first_killed_at > _STUCK_AFTER_S
        stuck = tuple(sorted(process.pid for process in left)) if late else ()
        if stuck != run.stuck:
            log.error("processes of a run cannot be killed run=%d pids=%s", run.run, stuck)
            run.stuck, node.changed = stuck, True
        return
    for worker in tuple(run.workers):
        talk.worker_ended(node, run, worker)
    run.exit_code = _how_it_ended(node, run)
    look_for_folder(run)
    if run.folder_lost and run.stop_asked_at is None and run.exit_code:
        run.exit_code, run.problem = 1, f"The run's folder {run.result_dir} was moved or deleted while it ran: put it back and run it anew."
    elif run.over_limit and run.stop_asked_at is None and run.exit_code:
        run.exit_code, run.problem = 1, run.over_limit
    run.phase, run.told, run.members, run.stuck = "ended", [], None, ()
    run.journal_bytes = 0 if run.remote else max(run.journal_bytes, journal_size(run.result_dir))
    run.got_on = not run.remote and has_trained(run.result_dir, run.journal_start)
    if run.exit_code and run.stop_asked_at is None and not run.interrupted and not run.problem:
        _explain_memory(node, run)
    run.ended_at = time.monotonic()
    node.socket_file(run).unlink(missing_ok=True)
    node.changed = True
    what = "remote agent" if run.remote else "run"
    log.info("a %s has ended run=%d attempt=%d pid=%d exit_code=%s", what, run.run, run.attempt, run.pid, run.exit_code)


def _explain_memory(node: Node, run: LiveRun) -> None:
    """A script that was killed at the run's own limit would only meet it again, unless it has trained: then it goes on from there."""
    found = node.groups.shortage(run.group)
    run.problem = node.groups.explain(found)
    if run.exit_code == -signal.SIGKILL and found.kills and found.own and not run.got_on and not run.remote:
        run.exit_code = 1


def _how_it_ended(node: Node, run: LiveRun) -> int:
    """The driver's exit code: from its shim, from the kernel if it became our child, or else as its journal has it."""
    path = node.exit_file(run)
    try:
        return int(path.read_text())
    except (FileNotFoundError, ValueError):
        pass
    finally:
        path.unlink(missing_ok=True)
    code = node.reaped.pop(run.pid, None)
    if code is None:
        code = _reap(run.pid)
    if code is None and not run.remote:
        code = outcome_in_journal(run.result_dir, run.journal_start)
    return -signal.SIGKILL if code is None else code


def _reap(pid: int) -> int | None:
    """Of a driver that became our child and of whose end the pidfd has told before SIGCHLD did."""
    try:
        ended, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return None
    return os.waitstatus_to_exitcode(status) if ended else None
