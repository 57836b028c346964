"""The runs of an experiment, as its page shows them: found, sorted, a page of them with their metrics.

Two steps, so that a page costs what it shows: all runs are read as Lines, with no more than finding and sorting takes; the runs themselves,
their slots and their latest metrics are read for the rows that are shown.
"""

from __future__ import annotations

import datetime as dt
import math
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from django.utils import timezone

from experiments.models import Experiment, MetricSeries, Project, RunState, Slot, TrainingRun
from experiments.models.runs import ENDED
from experiments.selectors.jobs import slots_held

MOST_COLUMNS = 40
LATEST_RUNS = 20
ROWS_AT_ONCE = 500  # of a query: databases limit how many numbers can stand in one
FACTS = ("pk", "state", "started_at", "ended_at")
SEARCHED = ("name", "submitted_by__username", "command", "note")


@dataclass(frozen=True)
class RunFilter:
    """Which runs of an experiment, in which order, and how many of them.

    `query` is part of a name, a submitter, a command, a note or a tag, or "#id". `sort`: "name", "submitted", "duration", "ended", "step"
    or the name of a metric column; "" is the newest first. `most_queued` rows are shown of the queued runs, and from `offset` on
    `most_ended` of the ended ones; None: all.
    """

    query: str = ""
    tag: str = ""
    sort: str = ""
    descending: bool = False
    offset: int = 0
    most_queued: int | None = None
    most_ended: int | None = None


@dataclass(frozen=True)
class RunRow:
    """A line of an experiment's tables: the run, slots held, latest value of each metric column (None: not there; NaN: not finite)."""

    run: TrainingRun
    slots: int
    metrics: list[float | None]


@dataclass(frozen=True)
class RunTable:
    """`rows` are those that are shown of `total`."""

    rows: list[RunRow]
    total: int


@dataclass(frozen=True)
class ExperimentTables:
    """The runs of an experiment by how far they are; `columns` are the metric names, the same for the three tables."""

    columns: list[str]
    queued: RunTable
    in_progress: RunTable
    completed: RunTable
    tags: list[str]  # of all runs of the experiment
    total: int  # of its runs, also those that are filtered away
    found: int  # of its runs, those that are not
    running_time: dt.timedelta  # of those
    ticking: bool  # it grows


@dataclass(frozen=True)
class Line:
    """What a run is found, counted and sorted by. `key`: what it is sorted by; None comes last."""

    run: int
    state: str
    running_time: dt.timedelta | None
    key: float | str | None


def experiment_tables(experiment: Experiment, wanted: RunFilter = RunFilter(), *, now: dt.datetime | None = None) -> ExperimentTables:
    columns = metric_names(experiment)
    lines = _lines(experiment, wanted, columns, now or timezone.now())
    queued = [line.run for line in lines if line.state == RunState.QUEUED]
    ended = [line.run for line in lines if line.state in ENDED]
    in_progress = [line.run for line in lines if line.state != RunState.QUEUED and line.state not in ENDED]
    last = None if wanted.most_ended is None else wanted.offset + wanted.most_ended
    first, page = queued[: wanted.most_queued], ended[wanted.offset : last]
    rows = _rows(experiment, [*first, *in_progress, *page], columns)
    tags = experiment.runs.exclude(tags=[]).values_list("tags", flat=True)
    return ExperimentTables(
        columns=columns,
        queued=RunTable([rows[run] for run in first if run in rows], len(queued)),
        in_progress=RunTable([rows[run] for run in in_progress if run in rows], len(in_progress)),
        completed=RunTable([rows[run] for run in page if run in rows], len(ended)),
        tags=sorted({tag for each in tags for tag in each}),
        total=experiment.runs.count(),
        found=len(lines),
        running_time=sum((line.running_time for line in lines if line.running_time), dt.timedelta()),
        ticking=any(line.running_time is not None and line.state not in ENDED for line in lines),
    )


def metric_names(experiment: Experiment) -> list[str]:
    """The names of the metrics that runs of the experiment have."""
    series = MetricSeries.objects.filter(run__experiment=experiment).order_by("group", "name")
    return [f"{group} {name}" for group, name in series.values_list("group", "name").distinct()[:MOST_COLUMNS]]


def recent_metric_names(project: Project) -> list[str]:
    """The names of the metrics that the project's latest runs have."""
    latest = list(TrainingRun.objects.filter(experiment__project=project).order_by("-pk").values_list("pk", flat=True)[:LATEST_RUNS])
    series = MetricSeries.objects.filter(run__in=latest).order_by("group", "name")
    return [f"{group} {name}" for group, name in series.values_list("group", "name").distinct()[:MOST_COLUMNS]]


def _lines(experiment: Experiment, wanted: RunFilter, columns: list[str], now: dt.datetime) -> list[Line]:
    """Those that are wanted, in the order that is wanted. Runs without the value come last, whichever way."""
    needed = [*FACTS, *({"name": ["name"], "submitted": ["submitted_at"], "step": ["step"]}.get(wanted.sort, []))]
    if wanted.query or wanted.tag:
        needed += [*SEARCHED, "tags"]
    by_metric = _values(experiment, wanted.sort) if wanted.sort in columns else None
    lines = []
    for values in experiment.runs.values_list(*needed):
        facts = dict(zip(needed, values, strict=True))
        if _matches(facts, wanted):
            since = facts["started_at"]
            span = (facts["ended_at"] or now) - since if since else None
            key = by_metric.get(facts["pk"]) if by_metric is not None else _key(facts, wanted.sort, span)
            lines.append(Line(facts["pk"], facts["state"], span, key))
    if not wanted.sort:
        return lines
    with_key = [(line.key, line) for line in lines if line.key is not None]
    with_key.sort(key=lambda pair: pair[0], reverse=wanted.descending)
    return [line for _, line in with_key] + [line for line in lines if line.key is None]


def _values(experiment: Experiment, column: str) -> dict[int, float]:
    """The latest value of one metric by run, where it is a number."""
    group, _, name = column.partition(" ")
    found = MetricSeries.objects.filter(run__experiment=experiment, group=group, name=name).values_list("run_id", "last_value")
    return {run: value for run, value in found if value is not None and math.isfinite(value)}


def _key(facts: dict[str, Any], sort: str, span: dt.timedelta | None) -> float | str | None:
    if sort == "duration":
        return span.total_seconds() if span is not None else None
    value = facts.get({"submitted": "submitted_at", "ended": "ended_at"}.get(sort, sort))
    if isinstance(value, dt.datetime):
        return value.timestamp()
    return value.casefold() if isinstance(value, str) else value


def _matches(facts: dict[str, Any], wanted: RunFilter) -> bool:
    if wanted.tag and wanted.tag not in facts["tags"]:
        return False
    words = wanted.query.casefold()
    if not words:
        return True
    where = (*(facts[name] for name in SEARCHED), f"#{facts['pk']}", *facts["tags"])
    return any(words in each.casefold() for each in where)


def _rows(experiment: Experiment, runs: list[int], columns: list[str]) -> dict[int, RunRow]:
    """The rows of these runs, by run: one that was deleted meanwhile is not there."""
    rows: dict[int, RunRow] = {}
    for begin in range(0, len(runs), ROWS_AT_ONCE):
        some = runs[begin : begin + ROWS_AT_ONCE]
        held = slots_held(some)
        latest: dict[int, dict[str, float | None]] = defaultdict(dict)
        for run, group, name, value in MetricSeries.objects.filter(run__in=some).values_list("run_id", "group", "name", "last_value"):
            latest[run][f"{group} {name}"] = math.nan if value is None else value
        # People and machines are not joined: many runs are of few of them.
        found = (
            experiment.runs.filter(pk__in=some)
            .defer("error_traceback", "environment", "final_metrics")
            .prefetch_related("submitted_by", "head_node")
        )
        for each in found:
            slots = sum(held[each.pk, device] for device in Slot.Device.values)
            rows[each.pk] = RunRow(run=each, slots=slots, metrics=[latest[each.pk].get(column) for column in columns])
    return rows
