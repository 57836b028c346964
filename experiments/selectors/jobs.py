"""The cluster's table of runs; what a run holds, and its generations."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from django.db.models import Q, QuerySet

from experiments.models import GenerationRecord, Grant, MetricSeries, Project, Slot, TrainingRun
from experiments.models.runs import ENDED, LIVE


@dataclass(frozen=True)
class JobFilter:
    """What the cluster's table shows. `name` is part of a run's name, its id, or its submitter; `state`: a RunState, "live", "ended"
    or nothing."""

    name: str = ""
    state: str = ""
    limit: int = 100
    offset: int = 0


@dataclass(frozen=True)
class JobRow:
    """A line of the cluster's table. `duration` is from the first step to the end or now."""

    run: TrainingRun
    submitter: str
    kind: str
    cpu_slots: int
    gpu_slots: int
    duration: dt.timedelta | None


def jobs(wanted: JobFilter, *, now: dt.datetime, named: Q | None = None) -> tuple[list[JobRow], int]:
    """(rows of this page, number of runs that match), newest first. `named`: the runs that can be found by their names (None: all)."""
    found = _matching(wanted, Q() if named is None else named)
    rows = found.select_related("submitted_by", "version", "experiment").order_by("-submitted_at", "-id")
    shown = list(rows[wanted.offset : wanted.offset + wanted.limit])
    held = slots_held(run.pk for run in shown)
    return [
        JobRow(
            run=run,
            submitter=run.submitted_by.username,
            kind=run.version.get_distributed_display(),
            cpu_slots=held[run.pk, Slot.Device.CPU],
            gpu_slots=held[run.pk, Slot.Device.GPU],
            duration=run.duration(now),
        )
        for run in shown
    ], found.count()


def generations(run: TrainingRun, *, limit: int = 500) -> list[GenerationRecord]:
    """The run's memberships, newest first."""
    return list(run.generations.order_by("-seq")[:limit])


def run_slots(run: TrainingRun) -> list[Slot]:
    """The slots the run holds now, its node in the same query."""
    held = Slot.objects.filter(grants__run=run, grants__released_at__isnull=True)
    return list(held.select_related("node").order_by("node__name", "index"))


def _matching(wanted: JobFilter, named: Q) -> QuerySet[TrainingRun]:
    found = TrainingRun.objects.all()
    if hidden := list(Project.every.exclude(state=Project.State.HERE).values_list("pk", flat=True)):  # seldom, and few
        found = found.exclude(experiment__project__in=hidden)
    if name := wanted.name.replace("\0", "").strip():
        match = (Q(name__icontains=name) & named) | Q(submitted_by__username__icontains=name)
        number = name.removeprefix("#")
        if number.isascii() and number.isdigit() and len(number) < 19:
            match |= Q(pk=int(number))
        found = found.filter(match)
    groups = {"live": LIVE, "ended": ENDED}
    return found.filter(state__in=groups.get(wanted.state, (wanted.state,))) if wanted.state else found


def slots_held(runs: Iterable[int]) -> Counter[tuple[int, str]]:
    """How many slots of each device class each of the runs holds."""
    held = Grant.objects.filter(run__in=list(runs), released_at__isnull=True)
    return Counter((run, device) for run, device in held.values_list("run_id", "slot__device"))


def slots_of(runs: Iterable[int]) -> Counter[int]:
    """How many slots each of the runs holds."""
    return Counter(Grant.objects.filter(run__in=list(runs), released_at__isnull=True).values_list("run_id", flat=True))


def last_metrics(runs: Iterable[int]) -> dict[int, dict[str, float | None]]:
    """The last value of each metric by run, as {"train loss": 0.5}; None: it was no finite number."""
    found: dict[int, dict[str, float | None]] = {}
    series = MetricSeries.objects.filter(run__in=list(runs)).order_by("group", "name")
    for run, group, name, value in series.values_list("run_id", "group", "name", "last_value"):
        found.setdefault(run, {})[f"{group} {name}"] = value
    return found


def runs_with_tag(found: QuerySet[TrainingRun], tag: str) -> list[int]:
    """Those of the runs that have exactly this tag: databases keep JSON in ways of their own, so it is looked for here."""
    return [run for run, tags in found.exclude(tags=[]).order_by().values_list("pk", "tags") if tag in tags]
