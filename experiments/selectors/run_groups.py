"""A table of runs put together by what they have in one column: how many have it, and the mean, least and greatest of their metrics."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from django.db.models import Count, F, FloatField, Max, Min, Sum, Value
from django.db.models.expressions import Combinable

from experiments.models import MetricSeries, RunState
from experiments.runtable.columns import Column
from experiments.runtable.facts import Fact
from experiments.runtable.language import quoted
from experiments.runtable.measured import Argument, Metric
from experiments.selectors.run_table import COUNT, PAGE_ROWS, Plan

Key = tuple[float | None, str | None]  # an argument that is a number is the same number however it is written


@dataclass(frozen=True)
class MetricSummary:
    """Of the runs of a group that have a finite value; `mean` None: none has."""

    count: int = 0
    total: float = 0.0
    least: float | None = None
    greatest: float | None = None

    @property
    def mean(self) -> float | None:
        return self.total / self.count if self.count else None

    def __add__(self, other: MetricSummary) -> MetricSummary:
        least = [each for each in (self.least, other.least) if each is not None]
        greatest = [each for each in (self.greatest, other.greatest) if each is not None]
        return MetricSummary(self.count + other.count, self.total + other.total, min(least, default=None), max(greatest, default=None))


@dataclass(frozen=True)
class Group:
    """`value`: what its runs have, None those that have nothing; `filter`: finds them; `summaries` by metric column."""

    value: str | None
    runs: int
    filter: str
    summaries: list[MetricSummary]


@dataclass(frozen=True)
class Groups:
    """A page of the `found` groups."""

    plan: Plan
    columns: list[Metric]
    groups: list[Group]
    found: int
    page: int
    pages: int


def groups(plan: Plan) -> Groups:
    every = list(every_group(plan))
    pages = max(1, -(-len(every) // PAGE_ROWS))
    page = min(plan.asked.page, pages)
    return Groups(plan, metrics(plan), every[(page - 1) * PAGE_ROWS : page * PAGE_ROWS], len(every), page, pages)


def metrics(plan: Plan) -> list[Metric]:
    return [column for column in plan.columns if isinstance(column, Metric)]


def every_group(plan: Plan) -> Iterator[Group]:
    """In their order: by what the runs have, or by how many, or by the mean of a metric."""
    assert plan.group is not None
    columns, counted, figures = metrics(plan), _counted(plan, plan.group), _summaries(plan, plan.group)
    for number, text in _in_order(plan, counted, columns, figures):
        value = text if number is None else f"{number:g}" if float(f"{number:g}") == number else repr(number)
        found = [figures[column][number, text] for column in columns]
        yield Group(_spelled(plan.group, value), counted[number, text], _filter(plan, plan.group, value, number), found)


def _counted(plan: Plan, by: Column) -> dict[Key, int]:
    counted: dict[Key, int] = defaultdict(int)
    number, text = _keys(by, "pk", "")
    rows = plan.runs().annotate(key_number=number, key_text=text).order_by().values("key_number", "key_text")
    for row in rows.annotate(found=Count("pk")):
        counted[_key(by, row["key_number"], row["key_text"])] += row["found"]
    return counted


def _summaries(plan: Plan, by: Column) -> dict[Metric, dict[Key, MetricSummary]]:
    """For each metric column, one query for all that show the same of their curves' values."""
    found: dict[Metric, dict[Key, MetricSummary]] = {column: defaultdict(MetricSummary) for column in metrics(plan)}
    number, text = _keys(by, "run_id", "run__")
    for field in {column.field for column in found}:
        names = {column.name for column in found if column.field == field}
        curves = MetricSeries.objects.filter(name__in=names, run__in=plan.runs().order_by().values("pk"))
        keyed = curves.annotate(key_number=number, key_text=text).order_by().values("key_number", "key_text", "group", "name")
        for row in keyed.annotate(count=Count(field), total=Sum(field), least=Min(field), greatest=Max(field)):
            key, figures = (
                _key(by, row["key_number"], row["key_text"]),
                MetricSummary(row["count"], row["total"] or 0.0, row["least"], row["greatest"]),
            )
            for column in (each for each in found if (each.field, each.group, each.name) == (field, row["group"], row["name"])):
                found[column][key] += figures
    return found


def _keys(by: Column, run: str, prefix: str) -> tuple[Combinable, Combinable]:
    """What a query groups by: number and text. `prefix`: of the run's fields in it."""
    if isinstance(by, Argument):
        return by.stored("number", run=run), by.stored("text", run=run)
    assert isinstance(by, Fact)
    return Value(None, output_field=FloatField()), F(f"{prefix}{by.path}")


def _key(by: Column, number: float | None, text: str | None) -> Key:
    """An argument may be an empty text; a fact that is one is not set."""
    if number is not None:
        return number, None
    return None, text if isinstance(by, Argument) else text or None


def _in_order(plan: Plan, counted: dict[Key, int], columns: Iterable[Metric], figures: dict[Metric, dict[Key, MetricSummary]]) -> list[Key]:
    """Groups without a value come last, whichever way."""
    down = plan.asked.descending
    by_key = sorted(counted, key=lambda key: (key[0] is None, key[0] or 0.0, key[1] or ""))

    def value(key: Key) -> float | None:
        if plan.asked.sort == COUNT:
            return float(counted[key])
        mean = figures[plan.sort][key].mean if isinstance(plan.sort, Metric) and plan.sort in figures else None
        return mean if mean is not None and math.isfinite(mean) else None

    if plan.asked.sort == COUNT or (isinstance(plan.sort, Metric) and plan.sort in columns):
        known = sorted((key for key in by_key if value(key) is not None), key=lambda key: value(key) or 0.0, reverse=down)
        return [*known, *(key for key in by_key if value(key) is None)]
    there = [key for key in by_key if key != (None, None)]
    turned = down and plan.sort == plan.group
    return [*(reversed(there) if turned else there), *(key for key in by_key if key == (None, None))]


def _spelled(by: Column, value: str | None) -> str | None:
    return str(RunState(value).label) if by.key == "state" and value else value


def _filter(plan: Plan, by: Column, value: str | None, number: float | None) -> str:
    """Of the table's, and this group's runs alone."""
    name = by.key if isinstance(by, Fact) else quoted(by.key)
    own = f"{name} is not set" if value is None else f"{name} = {value if number is not None else quoted(value)}"
    return f"({plan.asked.filter}) and {own}" if plan.asked.filter else own
