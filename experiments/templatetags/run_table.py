"""How a table of runs is written: heads that sort, cells, and what a refused filter's place looks like. No queries here."""

from __future__ import annotations

import datetime as dt
from typing import Any

from django import template
from django.utils.html import conditional_escape, format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe

from experiments.models import RunState, TrainingRun
from experiments.runtable.columns import Column
from experiments.runtable.language import Refused, quoted
from experiments.runtable.measured import Metric
from experiments.runtable.table_query import TableQuery
from experiments.selectors.run_groups import MetricSummary
from experiments.selectors.run_table import Measured, Plan, Row
from experiments.templatetags.studio import LONG_LABEL, icon, running_time, spell, state, tag, thousands, title_case, value, when

register = template.Library()

LONGEST_CELL = 60
NOTHING = "–"


@register.simple_tag
def table_query(asked: TableQuery, **changes: Any) -> str:
    """The query of the table's address with these changes."""
    return f"?{asked.query(**changes)}"


@register.simple_tag
def group_query(asked: TableQuery, wanted: str) -> str:
    """The runs of one group."""
    return f"?{asked.query(filter=wanted, group='', sort='')}"


@register.simple_tag
def column_head(plan: Plan, column: Column, place: int) -> SafeString:
    """First the best, where it is known which that is, then the other way round, then as before."""
    css = f"{'number ' if column.numeric else ''}{'first' if place < 0 else 'pin' if place < plan.pinned else ''}"
    return _head(plan.asked, column.key, title_case(column.label), first_down=column.descending_first, on=plan.sort == column, css=css)


@register.simple_tag
def group_head(plan: Plan, key: str, label: str, first_down: bool = False) -> SafeString:
    """Of a table of groups, which is sorted by this key."""
    own = plan.group is not None and plan.group.key == key
    on = plan.asked.sort == key or (own and not plan.asked.sort)
    return _head(plan.asked, key, label, first_down=first_down, on=on, css="first" if own else "number")


@register.simple_tag
def best_first(column: Metric) -> bool:
    return column.descending_first


def _head(asked: TableQuery, key: str, label: str, *, first_down: bool, on: bool, css: str) -> SafeString:
    """A button of the form that has the rest of the address: a link in each head would say all of it again."""
    first, then = ("-", "") if first_down else ("", "-")
    wanted = f"{first}{key}" if not on else f"{then}{key}" if asked.descending == first_down else ""
    order = format_html(' aria-sort="{}"', "descending" if asked.descending else "ascending") if on else ""
    arrow = icon("arrow--down" if asked.descending else "arrow--up") if on else ""
    title = format_html(' title="{}"', label) if len(label) > LONG_LABEL else ""
    shape = '<th scope="col" class="sorter {}"{}><button form="sorting" name="sort" value="{}"{}><span>{}</span>{}</button></th>'
    return format_html(shape, css.strip(), order, wanted, title, label, arrow)


@register.simple_tag
def cells(plan: Plan, row: Row) -> SafeString:
    """The run's cells behind its name. A page has thousands: each is put together of few parts."""
    live, parts = row.run.is_live(), []
    for place, (column, cell) in enumerate(zip(plan.columns, row.cells, strict=True)):
        css = f"{'number' if column.numeric else ''}{' pin' if place < plan.pinned else ''}"
        follows = live and isinstance(column, Metric) and column.use == "last"
        metric = format_html(' data-metric="{} {}"', column.group, column.name) if follows and isinstance(column, Metric) else ""
        shown = conditional_escape(_written(plan, column, row.run, cell))
        parts.append(f'<td class="{css.strip()}"{metric}>{shown}</td>' if css else f"<td{metric}>{shown}</td>")
    return mark_safe("".join(parts))  # noqa: S308  (what comes from people is escaped above)


def _written(plan: Plan, column: Column, run: TrainingRun, cell: object) -> str:
    if cell is None:
        return NOTHING
    if isinstance(cell, Measured):
        at = cell.step if isinstance(column, Metric) and column.use != "last" and cell.value is not None else None
        return value(cell.value) if at is None else format_html('{} <span class="quiet">@{}</span>', value(cell.value), thousands(at))
    if column.key == "duration":
        return running_time(run, plan.now)
    if column.key == "step":
        return format_html('<span data-f="step">{}</span>', thousands(run.step)) if run.is_live() else thousands(run.step)
    if isinstance(cell, RunState):
        return state(run)
    return _plain(cell)


def _plain(cell: object) -> str:
    if isinstance(cell, dt.timedelta):
        return spell(cell)
    if isinstance(cell, dt.datetime):
        return when(cell)
    if isinstance(cell, list):
        return format_html_join(" ", "{}", ((tag(each, "teal"),) for each in cell))
    text = str(cell)
    if len(text) > LONGEST_CELL:
        return format_html('<span title="{}">{}…</span>', text[:500], text[:LONGEST_CELL])
    return text


@register.simple_tag
def metric_summary(found: MetricSummary) -> SafeString:
    """Mean, least and greatest of a group, a cell each."""
    written = ((NOTHING if each is None else value(each),) for each in (found.mean, found.least, found.greatest))
    return format_html_join("", '<td class="number">{}</td>', written)


@register.simple_tag
def place_of(refused: Refused, text: str) -> SafeString:
    """The filter with the place marked that is wrong."""
    begin, end = refused.begin, max(refused.end, refused.begin + 1)
    wrong = text[begin:end] or "…"
    return format_html("<code>{}<mark>{}</mark>{}</code>", text[:begin], wrong, text[end:])


@register.filter
def written_in_filters(column: Column) -> str:
    """How the column is named there."""
    plain = column.key.replace(".", "").replace("_", "").replace("/", "").replace("-", "")
    return column.key if plain.isalnum() or column.key.endswith(")") else quoted(column.key)
