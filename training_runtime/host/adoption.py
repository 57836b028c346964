"""How a host takes over from an earlier one that died: the state file's runs, their drivers if they still live, their outcomes
otherwise."""

from __future__ import annotations

import contextlib
import logging
import signal

from training_runtime.host import ending, processes, talk
from training_runtime.host.live import LiveRun, folder_of, journal_size, outcome_in_journal
from training_runtime.host.node import Node
from training_runtime.host.state import Saved, SavedRun

log = logging.getLogger(__name__)


def adopt(node: Node, saved: Saved, *, now: float) -> None:
    same_boot = saved.boot_id == processes.boot_id()
    node.revision = saved.revision
    for record in saved.runs:
        run = _remember(record, now)
        node.runs[run.run] = run
        if run.phase == "ended":
            continue
        if same_boot:
            _find(node, run, record)
        else:
            _after_reboot(run)
    node.changed = True


def _remember(record: SavedRun, now: float) -> LiveRun:
    run = LiveRun(record.run, record.attempt, record.result_dir, restarts=record.restarts, uid=record.uid, phase=record.phase)
    run.pid, run.start_ticks, run.journal_start = record.pid, record.start_ticks, record.journal_start
    run.keeper, run.keeper_ticks = record.keeper, record.keeper_ticks
    run.told, run.socket_token = list(record.told), record.socket_token
    run.exit_code, run.interrupted, run.problem = record.exit_code, record.interrupted, record.detail
    run.stop_asked_at = now if record.stop_asked else None
    run.busy_s, run.counted_s = record.busy_s, record.counted_s
    run.station, run.losses = record.station, record.losses
    run.journal_bytes = 0 if run.station else journal_size(run.result_dir)
    run.began_at = run.ended_at = now
    with contextlib.suppress(OSError):
        run.folder = folder_of(run.result_dir)
    return run


def _after_reboot(run: LiveRun) -> None:
    said = run.phase != "launching" and not run.station  # what the journal says is about the driver
    code = outcome_in_journal(run.result_dir, run.journal_start) if said else None
    run.phase, run.told = "ended", []
    run.interrupted = code is None
    run.exit_code = -signal.SIGKILL if code is None else code


def _find(node: Node, run: LiveRun, record: SavedRun) -> None:
    if run.phase == "launching":
        # It was never let through its gate, so no user code has run, and the gate that closed with the earlier host has ended it.
        run.phase, run.interrupted, run.exit_code = "ended", True, -signal.SIGKILL
        return
    for worker in record.workers:
        talk.watch_worker(node, run, worker)
    was_alive = run.phase == "alive"
    ending.watch(node, run)
    if run.phase == "alive":
        log.info("a run of an earlier host was found again run=%d attempt=%d pid=%d", run.run, run.attempt, run.pid)
        talk.connect(node, run)
    elif not was_alive:
        ending.check_cleared(node, run)
