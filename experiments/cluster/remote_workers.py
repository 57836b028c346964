"""Records what machines report about their remote agents, which serve runs whose driver is on another machine. The only writer of
RemoteAgent.

It concerns the slots of that machine alone: what is held there, how far it is at work, and whether the run can work there at all. It never
says anything of the run's state, its end or its journal.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection

from django.db import transaction
from django.db.models import F
from django.db.models.functions import Coalesce

from experiments.cluster import utilization
from experiments.live import notify
from experiments.models import Node, RemoteAgent, TrainingRun
from experiments.runs import states
from training_runtime.protocol import RunObservation


def take_in(node: Node, seen: RunObservation, *, now: dt.datetime) -> bool:
    """Whether there are new figures of its slots' use. A run that has ended meanwhile may still have a remote agent: what that did
    counts."""
    run = TrainingRun.objects.filter(pk=seen.run).select_related("experiment").first()
    if run is None:
        return False
    with transaction.atomic():
        RemoteAgent.objects.get_or_create(run=run, node=node)
        agent = RemoteAgent.objects.select_for_update().get(run=run, node=node)
        _count(run, agent, seen, now=now)
        if seen.abandoned and (not agent.abandoned or agent.attempt < seen.attempt):
            _abandon(run, agent, seen, now=now)
    return utilization.renew(run, seen, now=now, node=node)


def elsewhere(node: Node, runs: Collection[int]) -> dict[int, list[RemoteAgent]]:
    """Run id -> what is known of it on machines other than the node, for runs that have or had slots there."""
    found: dict[int, list[RemoteAgent]] = {}
    for agent in RemoteAgent.objects.filter(run__in=runs).exclude(node=node):
        found.setdefault(agent.run_id, []).append(agent)
    return found


def forget(node: Node, *, there: Collection[int]) -> None:
    """Reset the counted seconds of remote agents that the node's host no longer knows: their next process counts from zero."""
    forgotten = RemoteAgent.objects.filter(node=node, counted_s__gt=0).exclude(run__in=there)
    if forgotten.exists():  # asked without a lock first: most machines never have any
        forgotten.update(counted_s=0, busy_counted_s=0, memory_bytes=None)


def _count(run: TrainingRun, agent: RemoteAgent, seen: RunObservation, *, now: dt.datetime) -> None:
    held_s, agent.counted_s = max(0.0, seen.counted_s - agent.counted_s), max(seen.counted_s, agent.counted_s)
    agent.all_counted_s += held_s
    if seen.busy_s is None or agent.busy_counted_s is None or agent.all_busy_s is None:
        agent.busy_counted_s = agent.all_busy_s = None
        TrainingRun.objects.filter(pk=run.pk, busy_counted_s__isnull=False).update(busy_s=None, busy_counted_s=None)
    else:
        added, agent.busy_counted_s = max(0.0, seen.busy_s - agent.busy_counted_s), max(seen.busy_s, agent.busy_counted_s)
        agent.all_busy_s += added
        if added:  # unknown stays unknown
            TrainingRun.objects.filter(pk=run.pk, busy_counted_s__isnull=False).update(busy_s=Coalesce(F("busy_s"), 0.0) + added)
    if seen.slots is not None:
        agent.memory_bytes, agent.seen_at = utilization.memory_of(seen), now
    agent.save()


def _abandon(run: TrainingRun, agent: RemoteAgent, seen: RunObservation, *, now: dt.datetime) -> None:
    """From now on the run has no slots there; the planner says so, and its history why."""
    agent.abandoned, agent.detail, agent.attempt = True, seen.detail, seen.attempt
    agent.save(update_fields=["abandoned", "detail", "attempt"])
    if run.is_live():
        reason = f"It cannot work on {agent.node.name}: {seen.detail}. It goes on without that machine."
        states.note(run, reason=reason, now=now, actor=None)
        notify.nudge_schedule()
