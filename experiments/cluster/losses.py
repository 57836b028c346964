"""Moves or ends the runs of a machine that an administrator has declared lost. Part of scheduling: it writes runs' plan fields.

Nobody can prove that a machine that is not heard of has stopped: whoever declares it lost says so. Should it come back, its host is told
first that this happened, and kills what it has from before (see `protocol.Apply.fence`).
"""

from __future__ import annotations

import datetime as dt

from django.db import transaction
from django.db.models import F

from experiments.cluster import endings, fleet, scheduling, snapshot
from experiments.live import notify
from experiments.metrics import ingest
from experiments.models import Grant, Node, RunState, TrainingRun
from experiments.models.runs import LIVE
from experiments.runs import states


def abandon(node: Node, *, now: dt.datetime, reason: str) -> tuple[int, int]:
    """Free the node's slots, and let its runs go on elsewhere from their last checkpoint, or end where that was asked: how many of each.

    The caller has made sure that the node is silent, and has stored that it is lost (`fleet.fence`).
    """
    for run in TrainingRun.objects.filter(head_node=node, state__in=LIVE):
        ingest.catch_up(run.pk, now=now)  # what its journal says counts; before the locks, which are taken in another order
    with transaction.atomic():
        snapshot.lock_rules()
        node = fleet.fence(node, now=now)
        holders = Grant.objects.filter(slot__node=node, released_at__isnull=True).values("run")
        for run in TrainingRun.objects.filter(pk__in=holders):
            scheduling.close_all(run, node=node, now=now, reason=reason)
        headless = TrainingRun.objects.select_for_update(of=("self",), no_key=True).filter(head_node=node, state__in=LIVE)
        ended = [run for run in headless.select_related("experiment__project", "submitted_by") if _end(run, now=now, reason=reason)]
        moved = [run for run in headless if run not in ended]
        for run in moved:
            _move_on(run, now=now, reason=reason)
        notify.changed("cluster", "nodes", "lanes", "jobs")
        notify.nudge_schedule()
    return len(moved), len(ended)


def _end(run: TrainingRun, *, now: dt.datetime, reason: str) -> bool:
    """Where its journal says that it ended, or it was being stopped: there is nothing to go on with."""
    if run.outcome in endings.END_OF:
        state, words = endings.ending(run)
    elif run.stop_requested_at is not None:
        state, words = RunState.STOPPED, run.stop_reason or reason
    else:
        return False
    return states.transition(run, state, reason=words, now=now)


def _move_on(run: TrainingRun, *, now: dt.datetime, reason: str) -> None:
    """No process of this attempt counts any more; the next one starts where the plan says, and its slots' work is counted from nothing."""
    TrainingRun.objects.filter(pk=run.pk).update(head_node=None, leave_revision=None, attempt=F("attempt") + 1)
    TrainingRun.objects.filter(pk=run.pk, busy_counted_s__isnull=False).update(busy_counted_s=0)
    words = f"{reason} It goes on elsewhere from its last checkpoint."
    if not states.transition(run, RunState.SUSPENDED, reason=words, now=now):
        states.note(run, reason=words, now=now, actor=None)  # queued, or suspended already
