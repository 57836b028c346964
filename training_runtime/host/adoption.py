"""How a host takes over from an earlier one that died: the state file's runs, their drivers if they still live, their outcomes
otherwise."""

from __future__ import annotations

import contextlib
import logging
import re
import signal
from pathlib import Path

from training_runtime.host import processes
from training_runtime.host.node import Node
from training_runtime.host.runs import ending, talk
from training_runtime.host.runs.journals import journal_size, outcome_in_journal
from training_runtime.host.runs.live import LiveRun, folder_of
from training_runtime.host.sandbox.kernel import DRIVER_NAME, SHIM_NAME
from training_runtime.host.state import Saved, SavedRun

log = logging.getLogger(__name__)


def adopt(node: Node, saved: Saved, *, now: float) -> None:
    first = processes.first_ticks()
    same_container = 0 in (first, saved.first_ticks) or first == saved.first_ticks
    same_boot = saved.boot_id == processes.boot_id() and same_container
    node.revision = saved.revision
    if same_boot:
        node.spares.update(saved.spares)  # of which this host wants none (see `spares`)
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


def search(node: Node, runs: Path, *, now: float) -> None:
    """Without what the earlier host wrote down: find its runs among the processes, so that none is started a second time.

    A shim is known by its name, its run by the driver's name, its folder by the console there that it or processes below it write to, the
    attempt by the driver's socket. Which slots it was told of and its secret are not known, so it can be told nothing: its driver is
    killed, its workers write down their state, and the next attempt goes on from there. Until then no snapshot is taken in, so nothing that
    is said proves a slot free.
    """
    found = processes.table()
    for shim in found.values():
        driver = next((process for process in found.values() if process.parent == shim.pid), None)
        if processes.name(shim.pid) != SHIM_NAME or driver is None:
            continue
        below = processes.descendants({shim.pid}, found)
        console = next((path for pid in (shim.pid, *sorted(below)) for path in processes.outputs(pid) if _folder_of(path, runs)), None)
        named = re.fullmatch(rf"{DRIVER_NAME}(\d+)", processes.name(driver.pid))
        if console is None or named is None:
            continue  # of another studio on this machine
        number = int(named[1])
        run = LiveRun(number, _attempt(node, number), str(_folder_of(console, runs)), phase="alive", uid=driver.uid)
        run.pid, run.start_ticks, run.shim, run.shim_ticks = driver.pid, driver.start_ticks, shim.pid, shim.start_ticks
        run.remote = console.parent.name.startswith("agent-")
        run.began_at, run.found = now - processes.age_s(run.start_ticks), True
        run.journal_bytes = 0 if run.remote else journal_size(run.result_dir)
        node.runs[number] = run
        log.warning("a run of an earlier host was found among the processes run=%d attempt=%d pid=%d", number, run.attempt, run.pid)
        ending.watch(node, run)
        if run.phase == "alive":
            ending.kill_driver(node, run, now=now, interrupts=True)
    node.changed = True


def _folder_of(console: Path, runs: Path) -> Path | None:
    """The folder of the run in whose log this file is; None where it is in none."""
    if not console.is_relative_to(runs):
        return None
    name, *rest = console.relative_to(runs).parts
    return runs / name if rest[:1] == ["log"] else None


def _attempt(node: Node, run: int) -> int:
    """The last that has a socket here; 1 where none has."""
    numbers = [path.name.split(".")[1] for path in node.folder.glob(f"run-{run}.*.sock")]
    return max((int(number) for number in numbers if number.isdecimal()), default=1)


def _remember(record: SavedRun, now: float) -> LiveRun:
    run = LiveRun(record.run, record.attempt, record.result_dir, restarts=record.restarts, uid=record.uid, phase=record.phase)
    run.pid, run.start_ticks, run.journal_start = record.pid, record.start_ticks, record.journal_start
    run.shim, run.shim_ticks = record.shim, record.shim_ticks
    run.told, run.socket_token = list(record.told), record.socket_token
    run.exit_code, run.interrupted, run.problem = record.exit_code, record.interrupted, record.detail
    run.stop_asked_at = now if record.stop_asked else None
    run.busy_s, run.counted_s = record.busy_s, record.counted_s
    run.remote, run.losses, run.spare = record.remote, record.losses, record.spare
    run.slots = {slot.id: slot for slot in record.gpus}
    run.journal_bytes = 0 if run.remote else journal_size(run.result_dir)
    run.began_at, run.ended_at = now - processes.age_s(run.start_ticks), now
    with contextlib.suppress(OSError):
        run.folder = folder_of(run.result_dir)
    return run


def _after_reboot(run: LiveRun) -> None:
    said = run.phase != "launching" and not run.remote  # what the journal says is about the driver
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
