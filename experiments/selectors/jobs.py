"""Tables of runs: the cluster's, an experiment's, and a run's generations."""

from __future__ import annotations

import datetime as dt
import math
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from django.db.models import Q, QuerySet
from django.utils import timezone

from experiments.models import Experiment, GenerationRecord, Grant, MetricSeries, RunState, Slot, TrainingRun
from experiments.models.runs import ENDED, LIVE

MOST_COLUMNS = 40


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


@dataclass(frozen=True)
class RunRow:
    """A line of an experiment's tables: the run, slots held, latest value of each metric column (None: not there)."""

    run: TrainingRun
    slots: int
    metrics: list[float | None]


@dataclass(frozen=True)
class RunFilter:
    """Which runs of an experiment, and in which order. `query` is part of a name, a submitter, a command, a note or a tag, or "#id".

    `sort`: "name", "submitted", "duration", "ended", "step" or the name of a metric column; "" is the newest first.
    """

    query: str = ""
    tag: str = ""
    sort: str = ""
    descending: bool = False


@dataclass(frozen=True)
class ExperimentTables:
    """The runs of an experiment by how far they are; `columns` are the metric names, the same for the three tables."""

    columns: list[str]
    queued: list[RunRow]
    in_progress: list[RunRow]
    completed: list[RunRow]
    tags: list[str]  # of all runs of the experiment
    total: int  # of its runs, also those that are filtered away


def jobs(wanted: JobFilter, *, now: dt.datetime) -> tuple[list[JobRow], int]:
    """(rows of this page, number of runs that match), newest first."""
    found = _matching(wanted)
    rows = found.select_related("submitted_by", "version", "experiment").order_by("-submitted_at", "-id")
    shown = list(rows[wanted.offset : wanted.offset + wanted.limit])
    held = _held(run.pk for run in shown)
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


def experiment_tables(experiment: Experiment, wanted: RunFilter = RunFilter(), *, now: dt.datetime | None = None) -> ExperimentTables:
    shared = experiment.runs.prefetch_related("submitted_by")  # not joined: a thousand runs are of a few people
    found = list(shared.defer("error_traceback", "environment", "final_metrics"))
    runs = [run for run in found if _wanted(run, wanted)]
    columns, latest = _latest_metrics(experiment)
    held = _held(run.pk for run in runs)
    rows = []
    for run in runs:
        slots = sum(held[run.pk, device] for device in Slot.Device.values)
        rows.append(RunRow(run=run, slots=slots, metrics=[latest[run.pk].get(column) for column in columns]))
    tables = ExperimentTables(columns, [], [], [], sorted({tag for run in found for tag in run.tags}), len(found))
    for row in _sorted(rows, wanted, columns, now or timezone.now()):
        state = row.run.state
        (tables.queued if state == RunState.QUEUED else tables.completed if state in ENDED else tables.in_progress).append(row)
    return tables


def _latest_metrics(experiment: Experiment) -> tuple[list[str], dict[int, dict[str, float | None]]]:
    """The names of the columns, and each run's latest values by them."""
    latest: dict[int, dict[str, float | None]] = defaultdict(dict)
    columns: dict[str, None] = {}
    series = MetricSeries.objects.filter(run__experiment=experiment).order_by("group", "name")
    for run, group, name, value in series.values_list("run_id", "group", "name", "last_value"):
        column = f"{group} {name}"
        if column in columns or len(columns) < MOST_COLUMNS:
            columns[column] = None
            latest[run][column] = value
    return list(columns), latest


def _wanted(run: TrainingRun, wanted: RunFilter) -> bool:
    if wanted.tag and wanted.tag not in run.tags:
        return False
    words = wanted.query.casefold()
    if not words:
        return True
    where = (run.name, run.submitted_by.username, run.command, run.note, f"#{run.pk}", *run.tags)
    return any(words in each.casefold() for each in where)


def _sorted(rows: list[RunRow], wanted: RunFilter, columns: list[str], now: dt.datetime) -> list[RunRow]:
    """Runs without the value come last, whichever way."""

    def value(row: RunRow) -> float | str | None:
        run = row.run
        if wanted.sort in columns:
            number = row.metrics[columns.index(wanted.sort)]
            return number if number is not None and math.isfinite(number) else None
        span = run.duration(now)
        values: dict[str, float | str | None] = {
            "name": run.name.casefold(),
            "submitted": run.submitted_at.timestamp(),
            "duration": span.total_seconds() if span else None,
            "ended": run.ended_at.timestamp() if run.ended_at else None,
            "step": run.step,
        }
        return values.get(wanted.sort)

    if not wanted.sort:
        return rows
    with_value = [(each, row) for row in rows if (each := value(row)) is not None]
    with_value.sort(key=lambda pair: pair[0], reverse=wanted.descending)
    return [row for _, row in with_value] + [row for row in rows if value(row) is None]


def generations(run: TrainingRun, *, limit: int = 500) -> list[GenerationRecord]:
    """The run's memberships, newest first."""
    return list(run.generations.order_by("-seq")[:limit])


def run_slots(run: TrainingRun) -> list[Slot]:
    """The slots the run holds now, its node in the same query."""
    held = Slot.objects.filter(grants__run=run, grants__released_at__isnull=True)
    return list(held.select_related("node").order_by("node__name", "index"))


def _matching(wanted: JobFilter) -> QuerySet[TrainingRun]:
    found = TrainingRun.objects.all()
    if name := wanted.name.replace("\0", "").strip():
        match = Q(name__icontains=name) | Q(submitted_by__username__icontains=name)
        number = name.removeprefix("#")
        if number.isascii() and number.isdigit() and len(number) < 19:
            match |= Q(pk=int(number))
        found = found.filter(match)
    groups = {"live": LIVE, "ended": ENDED}
    return found.filter(state__in=groups.get(wanted.state, (wanted.state,))) if wanted.state else found


def _held(runs: Iterable[int]) -> Counter[tuple[int, str]]:
    """How many slots of each device class each of the runs holds."""
    held = Grant.objects.filter(run__in=list(runs), released_at__isnull=True)
    return Counter((run, device) for run, device in held.values_list("run_id", "slot__device"))
