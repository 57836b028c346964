"""The rows of a table of runs, of an experiment or of all of a project: found, sorted, a page of them with what their columns show.

Finding and sorting is the database's; a page costs what it shows.
"""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from django.db.models import Q, QuerySet

from experiments.models import Experiment, MetricSeries, Project, RunColumn, RunValue, TrainingRun
from experiments.runtable.catalogue import Catalogue, Known
from experiments.runtable.columns import Column
from experiments.runtable.conditions import condition
from experiments.runtable.facts import GROUPING, Fact
from experiments.runtable.language import Refused
from experiments.runtable.measured import Argument, Metric
from experiments.runtable.table_query import TableQuery

PAGE_ROWS = 50
ROWS_AT_ONCE = 500  # of a query: databases limit how many numbers can stand in one
COUNT = "runs"  # what groups may be sorted by beside their key and their metrics
MOST_KNOWN = 20_000  # columns of a project's experiments


@dataclass(frozen=True)
class Scope:
    """Whose runs: of the experiment, else of all the project's."""

    project: Project
    experiment: Experiment | None = None

    def runs(self) -> QuerySet[TrainingRun]:
        if self.experiment is not None:
            return TrainingRun.objects.filter(experiment=self.experiment)
        return TrainingRun.objects.filter(experiment__project=self.project)


@dataclass(frozen=True)
class Measured:
    """A metric's value and its step; None is no finite number."""

    value: float | None
    step: int | None


@dataclass(frozen=True)
class Row:
    """`cells`: a text, a number, a moment, a length of time, a list of tags, Measured, or None where the run has nothing, by column."""

    run: TrainingRun
    cells: list[object]


@dataclass(frozen=True)
class Plan:
    """What is read: the columns in their order, pinned ones first. `unknown`: what was asked for and is no column. `refused`: the filter is
    none, so there are no runs."""

    scope: Scope
    asked: TableQuery
    now: dt.datetime
    catalogue: Catalogue
    columns: list[Column]
    pinned: int
    sort: Column | None
    group: Column | None
    condition: Q
    refused: Refused | None
    unknown: list[str]

    def runs(self) -> QuerySet[TrainingRun]:
        return self.scope.runs().filter(self.condition)


@dataclass(frozen=True)
class Table:
    """A page of it. `found`: runs that match, of `total`."""

    plan: Plan
    rows: list[Row]
    found: int
    total: int
    page: int
    pages: int


def catalogue(scope: Scope) -> Catalogue:
    there = RunColumn.objects.filter(experiment=scope.experiment)
    if scope.experiment is None:
        there = RunColumn.objects.filter(experiment__project=scope.project)
    found: dict[tuple[str, str], tuple[str, bool]] = {}
    for kind, name, first, varies in there.order_by("id").values_list("kind", "name", "first", "varies")[:MOST_KNOWN]:
        known, differs = found.get((kind, name), (first, False))
        found[kind, name] = (known, differs or varies or first != known)
    return Catalogue(Known(kind, name, varies) for (kind, name), (_, varies) in found.items())


def plan(scope: Scope, asked: TableQuery, *, now: dt.datetime) -> Plan:
    known = catalogue(scope)
    chosen = {key: known.keyed(key) for key in (*asked.pinned, *asked.columns)}
    shown = [column for column in chosen.values() if column is not None]
    pinned = len({column for key in asked.pinned if (column := chosen[key]) is not None})
    if not asked.columns:
        keys = {column.key for column in shown}
        shown += [column for column in known.usual(with_experiment=scope.experiment is None) if column.key not in keys]
    sort, group = (known.keyed(key) if key else None for key in (asked.sort, asked.group))
    named = {**chosen, asked.sort: sort, asked.group: group}
    unknown = [key for key, column in named.items() if key and column is None and not (key == COUNT and asked.group)]
    if group is not None and not (isinstance(group, Argument) or group.key in GROUPING):
        group, unknown = None, [*unknown, asked.group]
    wanted, refused = Q(), None
    try:
        wanted = condition(asked.filter, known, now=now)
    except Refused as refusal:
        wanted, refused = Q(pk__in=[]), refusal
    return Plan(scope, asked, now, known, list(dict.fromkeys(shown)), pinned, sort, group, wanted, refused, unknown)


def table(plan: Plan) -> Table:
    total = plan.scope.runs().count()
    in_order: Sequence[int] | QuerySet[TrainingRun, int] = numbers(plan)
    if plan.asked.filter:
        in_order = list(in_order)  # numbers alone, so that what is found need not be found once more to be counted
    found = len(in_order) if isinstance(in_order, list) else total
    pages = max(1, -(-found // PAGE_ROWS))
    page = min(plan.asked.page, pages)
    shown = list(in_order[(page - 1) * PAGE_ROWS : page * PAGE_ROWS])
    return Table(plan, rows(plan, shown), found, total, page, pages)


def numbers(plan: Plan) -> QuerySet[TrainingRun, int]:
    """The runs in their order, by number; those that are alike newest first."""
    if plan.sort is None:
        return plan.runs().order_by("-submitted_at", "-id").values_list("pk", flat=True)
    keys, by = plan.sort.order(descending=plan.asked.descending, now=plan.now)
    return plan.runs().annotate(**keys).order_by(*by, "-submitted_at", "-id").values_list("pk", flat=True)


def every_row(plan: Plan) -> Iterator[Row]:
    """Of all pages."""
    rest = iter(list(numbers(plan)))
    while some := list(islice(rest, ROWS_AT_ONCE)):
        yield from rows(plan, some)


def rows(plan: Plan, runs: Sequence[int]) -> list[Row]:
    """These, in this order; one that was deleted meanwhile is not there."""
    related = {column.path.rpartition("__")[0] for column in plan.columns if isinstance(column, Fact) and "__" in column.path}
    found = TrainingRun.objects.filter(pk__in=runs).defer("error_traceback", "environment", "final_metrics").prefetch_related(*related)
    there = {run.pk: run for run in found}
    arguments, metrics = _arguments(plan.columns, runs), _metrics(plan.columns, runs)

    def cell(run: TrainingRun, column: Column) -> object:
        if isinstance(column, Argument):
            return arguments[run.pk].get(column.name)
        if isinstance(column, Metric):
            return metrics[run.pk].get((column.group, column.name, column.which))
        if isinstance(column, Fact):
            return column.value(run, plan.now)
        return run.tags or None

    return [Row(there[number], [cell(there[number], column) for column in plan.columns]) for number in runs if number in there]


def _arguments(columns: Sequence[Column], runs: Sequence[int]) -> dict[int, dict[str, str]]:
    found: dict[int, dict[str, str]] = defaultdict(dict)
    names = [column.name for column in columns if isinstance(column, Argument)]
    stored = RunValue.objects.filter(run__in=runs, kind="argument", name__in=names) if names else RunValue.objects.none()
    for run, name, text in stored.values_list("run_id", "name", "text"):
        found[run][name] = text
    return found


def _metrics(columns: Sequence[Column], runs: Sequence[int]) -> dict[int, dict[tuple[str, str, str], Measured]]:
    found: dict[int, dict[tuple[str, str, str], Measured]] = defaultdict(dict)
    wanted = {(column.group, column.name, column.which): column for column in columns if isinstance(column, Metric)}
    if not wanted:
        return found
    stored = MetricSeries.objects.filter(run__in=runs, name__in={name for _, name, _ in wanted})
    fields = ("last_value", "last_step", "least", "least_step", "greatest", "greatest_step")
    for run, group, name, *values in stored.values_list("run_id", "group", "name", *fields):
        for place, which in enumerate(("last", "min", "max")):
            if (group, name, which) in wanted:
                found[run][group, name, which] = Measured(values[2 * place], values[2 * place + 1])
    return found
