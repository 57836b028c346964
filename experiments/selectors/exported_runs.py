"""A table of runs as columns of plain values, as files take them: all of its pages, in its order."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterator

from experiments.models import RunState
from experiments.runtable.columns import Column
from experiments.runtable.measured import Metric
from experiments.selectors import run_groups
from experiments.selectors.run_groups import MetricSummary
from experiments.selectors.run_table import Measured, Plan, every_row

Plain = str | int | float | dt.datetime | None
ALWAYS = ("id", "name")


def exported(plan: Plan) -> tuple[list[str], Iterator[list[Plain]]]:
    """(the columns by their keys, a list for each run or group): lengths of time in seconds, a metric that is no finite number as nan, and
    beside one that is not the last its step."""
    if plan.group is not None:
        return _grouped(plan)
    columns = [column for column in plan.columns if column.key not in ALWAYS]
    header = [*ALWAYS, *(name for column in columns for name in _names(column))]
    return header, _runs(plan, columns)


def _names(column: Column) -> list[str]:
    return [column.key, f"{column.key} step"] if _stepped(column) else [column.key]


def _stepped(column: Column) -> bool:
    return isinstance(column, Metric) and column.use != "last"


def _runs(plan: Plan, columns: list[Column]) -> Iterator[list[Plain]]:
    for row in every_row(plan):
        cells = dict(zip(plan.columns, row.cells, strict=True))
        values = [value for column in columns for value in _values(cells[column], stepped=_stepped(column))]
        yield [row.run.pk, row.run.name, *values]


def _values(cell: object, *, stepped: bool) -> list[Plain]:
    if isinstance(cell, Measured):
        value = math.nan if cell.value is None else cell.value
        return [value, cell.step] if stepped else [value]
    return [plain(cell)] + [None] * stepped


def plain(cell: object) -> Plain:
    """What a file, or JSON, has of it."""
    if isinstance(cell, RunState):
        return str(cell.value)
    if isinstance(cell, dt.timedelta):
        return cell.total_seconds()
    if isinstance(cell, list):
        return ", ".join(cell)
    if isinstance(cell, Measured):
        return cell.value
    assert cell is None or isinstance(cell, str | int | float | dt.datetime)
    return cell


def _grouped(plan: Plan) -> tuple[list[str], Iterator[list[Plain]]]:
    assert plan.group is not None
    columns = run_groups.metrics(plan)
    header = [plan.group.key, "runs", *(f"{word} of {column.key}" for column in columns for word in ("mean", "min", "max"))]

    def figures(found: MetricSummary) -> list[Plain]:
        return [found.mean, found.least, found.greatest]

    rows = ([each.value, each.runs, *(value for one in each.summaries for value in figures(one))] for each in run_groups.every_group(plan))
    return header, rows
