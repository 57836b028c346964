"""What a machine says of the stations there: of runs whose driver is on another machine. The only writer of Station.

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
from experiments.models import Node, Station, TrainingRun
from experiments.runs import states
from training_runtime.protocol import RunObservation


def take_in(node: Node, seen: RunObservation, *, now: dt.datetime) -> bool:
    """Whether there are new figures of its slots' use. A run that has ended meanwhile may still have a station: what that did counts."""
    run = TrainingRun.objects.filter(pk=seen.run).select_related("experiment").first()
    if run is None:
        return False
    with transaction.atomic():
        Station.objects.get_or_create(run=run, node=node)
        station = Station.objects.select_for_update().get(run=run, node=node)
        _count(run, station, seen, now=now)
        if seen.gave_up and (not station.gave_up or station.attempt < seen.attempt):
            _give_up(run, station, seen, now=now)
    return utilization.renew(run, seen, now=now, node=node)


def elsewhere(node: Node, runs: Collection[int]) -> dict[int, list[Station]]:
    """What is known of these runs on other machines than the node, by run; only of those that have or had slots there."""
    found: dict[int, list[Station]] = {}
    for station in Station.objects.filter(run__in=runs).exclude(node=node):
        found.setdefault(station.run_id, []).append(station)
    return found


def forget(node: Node, *, there: Collection[int]) -> None:
    """Of stations that the node's host does not know any more the next count begins at nothing."""
    forgotten = Station.objects.filter(node=node, counted_s__gt=0).exclude(run__in=there)
    if forgotten.exists():  # asked without a lock first: most machines never have any
        forgotten.update(counted_s=0, busy_counted_s=0, memory_bytes=None)


def _count(run: TrainingRun, station: Station, seen: RunObservation, *, now: dt.datetime) -> None:
    held_s, station.counted_s = max(0.0, seen.counted_s - station.counted_s), max(seen.counted_s, station.counted_s)
    station.all_counted_s += held_s
    if seen.busy_s is None or station.busy_counted_s is None or station.all_busy_s is None:
        station.busy_counted_s = station.all_busy_s = None
        TrainingRun.objects.filter(pk=run.pk, busy_counted_s__isnull=False).update(busy_s=None, busy_counted_s=None)
    else:
        added, station.busy_counted_s = max(0.0, seen.busy_s - station.busy_counted_s), max(seen.busy_s, station.busy_counted_s)
        station.all_busy_s += added
        if added:  # unknown stays unknown
            TrainingRun.objects.filter(pk=run.pk, busy_counted_s__isnull=False).update(busy_s=Coalesce(F("busy_s"), 0.0) + added)
    if seen.slots is not None:
        station.memory_bytes, station.seen_at = utilization.memory_of(seen), now
    station.save()


def _give_up(run: TrainingRun, station: Station, seen: RunObservation, *, now: dt.datetime) -> None:
    """From now on the run has no slots there; the planner says so, and its history why."""
    station.gave_up, station.detail, station.attempt = True, seen.detail, seen.attempt
    station.save(update_fields=["gave_up", "detail", "attempt"])
    if run.is_live():
        reason = f"It cannot work on {station.node.name}: {seen.detail}. It goes on without that machine."
        states.note(run, reason=reason, now=now, actor=None)
        notify.nudge_schedule()
