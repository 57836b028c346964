"""The table of runs, of an experiment or of all of a project: the page, its parts, and the same as a file."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator

from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.http import content_disposition_header
from django.utils.text import slugify
from django.views.decorators.http import require_safe

from experiments import access
from experiments.models import SavedView
from experiments.runs.run_values import number_of
from experiments.runtable import table_query
from experiments.runtable.catalogue import TAGS
from experiments.runtable.columns import Column
from experiments.runtable.facts import FACTS, GROUPING
from experiments.runtable.measured import Argument
from experiments.selectors import exported_runs, run_groups, run_table, saved_views
from experiments.selectors.exported_runs import Plain
from experiments.selectors.run_table import Plan, Scope
from experiments.views.experiments import experiment_tab
from experiments.views.projects import tab
from experiments.views.responses import later, number, page, person, spreadsheet

PARQUET = "application/vnd.apache.parquet"
PARTS = {"rows": "run_table/_rows.html", "columns": "run_table/_columns.html"}


@require_safe
def of_project(request: HttpRequest, pk: int) -> HttpResponse:
    project = access.project(person(request), pk)
    context = {**tab(project, "runs"), "base": "projects/_base.html", "topic": f"project-{pk}", "may_control": access.may(project, "write")}
    return _answer(request, Scope(project), {**context, "act_at": reverse("selected_project_runs", args=[pk])})


@require_safe
def of_experiment(request: HttpRequest, pk: int) -> HttpResponse:
    experiment, context = experiment_tab(request, pk, "table")
    context = {**context, "base": "experiments/_base.html", "topic": f"experiment-{pk}"}
    return _answer(request, Scope(experiment.project, experiment), {**context, "act_at": reverse("selected_runs", args=[pk])})


def _answer(request: HttpRequest, scope: Scope, context: dict[str, object]) -> HttpResponse:
    plan = run_table.plan(scope, table_query.read(request.GET), now=timezone.now())
    if (kind := request.GET.get("format", "")) in ("csv", "parquet"):
        return _file(plan, kind)
    views = saved_views.visible(person(request), scope.project)
    wanted = number(request, "view", 0, least=0, most=2**62)
    table = later(lambda: run_groups.groups(plan) if plan.group is not None else run_table.table(plan))
    grouping = [*(FACTS[key] for key in GROUPING), *(Argument(name) for name in plan.catalogue.arguments)]
    context = {
        **context,
        "plan": plan,
        "asked": plan.asked,
        "table": table,
        "grouping": grouping,
        "views": views,
        "view": next((view for view in views if view.pk == wanted), None),
        "offered": later(lambda: _offered(plan)),
        "pinned_keys": {column.key for column in plan.columns[: plan.pinned]},
        "facts": FACTS,
    }
    return page(request, "run_table/page.html", context, parts=PARTS)


def _offered(plan: Plan) -> dict[str, list[Column]]:
    """What can be shown beside what is."""
    known, shown = plan.catalogue, {column.key for column in plan.columns} | {"name"}
    every: dict[str, list[Column]] = {
        "arguments": [Argument(name) for name in known.arguments],
        "metrics": [column for columns in known.measured() for column in columns],
        "facts": [TAGS, *FACTS.values()],
    }
    return {kind: [column for column in columns if column.key not in shown] for kind, columns in every.items()}


def address(view: SavedView) -> str:
    """Of the page that shows it."""
    if view.experiment_id is not None:
        return f"{reverse('experiment_table', args=[view.experiment_id])}?{view.query}"
    return f"{reverse('project_runs', args=[view.project_id])}?{view.query}"


def _file(plan: Plan, kind: str) -> HttpResponse:
    header, rows = exported_runs.exported(plan)
    whose = plan.scope.experiment or plan.scope.project
    name = f"{slugify(whose.name)[:60] or 'project'}-run-table.{kind}"
    if kind == "csv":
        return spreadsheet(name, _lines(header, rows))
    answer = HttpResponse(_parquet(header, rows), content_type=PARQUET)
    answer["Content-Disposition"] = content_disposition_header(True, name) or "attachment"
    return answer


def _lines(header: list[str], rows: Iterator[list[Plain]]) -> Iterator[list[object]]:
    yield list(header)
    for row in rows:
        yield [cell.isoformat(timespec="seconds") if isinstance(cell, dt.datetime) else cell for cell in row]


def _parquet(header: list[str], rows: Iterator[list[Plain]]) -> bytes:
    import pyarrow as pa  # large: who never asks for it does not load it
    from pyarrow import parquet

    columns: list[list[Plain]] = [[] for _ in header]
    for row in rows:
        for column, cell in zip(columns, row, strict=True):
            column.append(cell)
    file = pa.BufferOutputStream()
    parquet.write_table(pa.table({name: pa.array(_alike(name, cells)) for name, cells in zip(header, columns, strict=True)}), file)
    return bytes(file.getvalue())


def _alike(name: str, cells: list[Plain]) -> list[Plain]:
    """Of one type, as a column of a file has to be: arguments, which are texts, as numbers where all of them are."""
    if not name.startswith("arg."):
        return cells
    numbers: list[Plain] = [None if cell is None else number_of(str(cell)) for cell in cells]
    return cells if any(number is None and cell is not None for number, cell in zip(numbers, cells, strict=True)) else numbers
