"""Which suspended runs have their process ended, to free the memory it holds: script, model and data. Part of scheduling.

Nothing is lost by it: their state is written down, and with slots they go on from there, after a start of their script. One that never came
to train() is left alone: nothing of what it did is written down.
"""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from django.conf import settings
from django.db import transaction
from django.db.models import Max, Q

from experiments.cluster import snapshot
from experiments.live import notify
from experiments.models import Grant, RunState, TrainingRun
from experiments.models.runs import TRAINED
from experiments.runs import states

MOST_ON_A_NODE = 16  # suspended processes; beyond, those that have waited longest go at once


@dataclass(frozen=True)
class Waiting:
    """A suspended run whose process is on the node."""

    run: int
    node: int
    since: dt.datetime


def chosen(waiting: Iterable[Waiting], *, now: dt.datetime, after_s: float, most: int = MOST_ON_A_NODE) -> dict[int, str]:
    """The runs whose process is to end, and why."""
    found: dict[int, str] = {}
    on: defaultdict[int, list[Waiting]] = defaultdict(list)
    for each in sorted(waiting, key=lambda each: (each.since, each.run), reverse=True):
        on[each.node].append(each)
        if len(on[each.node]) > most:
            found[each.run] = f"More than {most} suspended runs were kept in memory on its machine"
        elif (now - each.since).total_seconds() >= after_s:
            found[each.run] = f"It was suspended for {after_s / 60:g} minutes"
    return found


@notify.together()
def evict(now: dt.datetime) -> list[int]:
    """End the processes of runs that have been suspended for long; returns the runs' ids. Their next attempt starts where they get
    slots."""
    with transaction.atomic():
        snapshot.lock_rules()
        suspended = TrainingRun.objects.filter(
            state=RunState.SUSPENDED, engines__isnull=False, head_node__isnull=False, leave_revision=None
        )
        suspended = suspended.exclude(outcome=TRAINED).exclude(pk__in=Grant.objects.filter(released_at=None).values("run"))
        began = Q(transitions__new=RunState.SUSPENDED) & ~Q(transitions__old=RunState.SUSPENDED)
        rows = list(
            suspended.annotate(since=Max("transitions__at", filter=began)).select_related("head_node", "submitted_by", "experiment")
        )
        waiting = [Waiting(run.pk, run.head_node_id, run.since) for run in rows if run.since is not None and run.head_node_id is not None]
        reasons = chosen(waiting, now=now, after_s=settings.EDT_SUSPENDED_PROCESS_S)
        for run in rows:
            if run.pk in reasons and run.head_node is not None:
                run.leave_revision = run.head_node.revision
                run.save(update_fields=["leave_revision"])
                words = f"{reasons[run.pk]}: its process was ended to free its memory. It goes on from where it is when it gets slots."
                states.note(run, reason=words, now=now, actor=None)
                notify.nudge_node(run.head_node.name)
    return sorted(reasons)
