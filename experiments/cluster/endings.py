"""How a run ended whose processes are all gone: its journal's word first, then its exit code. Writes how a TrainingRun failed."""

from __future__ import annotations

import datetime as dt
import signal

from django.db import transaction

from experiments.cluster import scheduling
from experiments.files import runfiles
from experiments.live import notify
from experiments.metrics import ingest
from experiments.models import Node, RunState, TrainingRun
from experiments.runs import states
from training_runtime.crashes import ended_how
from training_runtime.protocol import RunObservation

STILL_READ = "Its processes have ended; the rest of its journal is being read."
LOG_TAIL_BYTES = 4000
NO_MEMORY = "out of memory"  # as torch says it of a GPU, and drivers of workers too
END_OF = {"completed": RunState.COMPLETED, "stopped": RunState.STOPPED, "failed": RunState.FAILED}


def finish(node: Node, run: TrainingRun, seen: RunObservation, *, exit_code: int, now: dt.datetime) -> None:
    """Every process of the run is gone: free its slots, take in the rest of its journal, then say how it ended.

    A long journal is taken in elsewhere, in turns; meanwhile the run is stopping, and the host says again and again that it has ended.
    """
    _, over = ingest.catch_up_some(run.pk, now=now, most_batches=1, final=True)
    run.refresh_from_db()
    if not over:
        states.transition(run, RunState.STOPPING, reason=STILL_READ, now=now)
        scheduling.close_all(run, node=node, now=now, reason=STILL_READ)
        return
    state, reason = _ending(run, exit_code, detail=seen.detail)
    crowding = seen.crowding if state == RunState.FAILED and seen.crowding and _lacked_memory(run, reason) else ""
    reason = " ".join(filter(None, (reason, crowding)))
    with transaction.atomic():
        facts: dict[str, object] = {"exit_code": exit_code}
        if state == RunState.FAILED:
            # Without a traceback (a wrong argument, say) what the script said last is what a person needs to read.
            message = " ".join(filter(None, (run.error_message, crowding))) if run.error_message else reason
            facts |= {"error_message": message, "error_traceback": run.error_traceback or _log_tail(run)}
        if run.started_at is None:  # it trained no step: its time is that of its script
            facts["started_at"] = run.started_at = states.began_at(run)
        TrainingRun.objects.filter(pk=run.pk).update(**facts)
        states.transition(run, state, reason=reason, now=now)
    scheduling.close_all(run, node=node, now=now, reason=reason)
    notify.nudge_node(node.name)  # the host forgets it


def _ending(run: TrainingRun, exit_code: int, *, detail: str) -> tuple[RunState, str]:
    """How a run ended and why: its journal's word where there is one, else its exit code."""
    asked = run.stop_requested_at is not None
    detail = "" if detail == ended_how(exit_code) else detail  # it says no more than the exit code
    if run.outcome in END_OF:
        return ending(run)
    if asked:
        return RunState.STOPPED, run.stop_reason or "It was stopped."
    if exit_code == 0:
        return RunState.COMPLETED, "The script ended."
    if exit_code < 0:
        return RunState.FAILED, " ".join(filter(None, (f"Killed by {_signal_name(-exit_code)}.", detail)))
    if run.error_message:
        return RunState.FAILED, run.error_message
    return RunState.FAILED, " ".join(filter(None, (f"The script ended with exit code {exit_code}.", detail)))


def ending(run: TrainingRun) -> tuple[RunState, str]:
    """How a run ended whose journal says so, and why."""
    words = {"completed": "It finished.", "stopped": run.stop_reason or "It was stopped.", "failed": run.error_message or "It failed."}
    return END_OF[run.outcome], words[run.outcome]


def _lacked_memory(run: TrainingRun, reason: str) -> bool:
    return NO_MEMORY in "\n".join((reason, run.error_traceback, _log_tail(run))).lower()


def _signal_name(number: int) -> str:
    try:
        return f"signal {number} ({signal.Signals(number).name})"
    except ValueError:
        return f"signal {number}"


def _log_tail(run: TrainingRun) -> str:
    """The last lines of the driver's console."""
    _, size = runfiles.read(run, runfiles.DRIVER_LOG, begin=0, limit_bytes=0)
    text, _ = runfiles.read(run, runfiles.DRIVER_LOG, begin=max(0, size - LOG_TAIL_BYTES), limit_bytes=LOG_TAIL_BYTES)
    return "\n".join(text.decode(errors="replace").replace("\0", "").splitlines()[-20:])
