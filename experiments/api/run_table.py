"""The table of a project's runs, as its page shows it: found by a filter, sorted, with the columns that are asked for; and kept tables."""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import re
from typing import Annotated

from django.http import HttpRequest
from django.utils import timezone
from ninja import Field, Query, Router, Schema
from ninja.responses import Status

from experiments import access, services
from experiments.api.auth import person
from experiments.api.experiments import router as runs
from experiments.api.paging import MOST, NO_CURSOR, USUAL, Page, whole
from experiments.api.problems import Refused
from experiments.api.schemas import Body, page_of
from experiments.models import Project, SavedView
from experiments.runs.run_values import number_of
from experiments.runtable.table_query import MOST_COLUMNS, TableQuery
from experiments.selectors import run_table, saved_views
from experiments.selectors.exported_runs import Plain, plain
from experiments.selectors.run_table import Measured, Plan, Row, Scope
from experiments.views.run_table import address

router = Router(tags=["runs"])
WHOLE = re.compile(r"-?[0-9]{1,15}")


class RowsQuery(Schema):
    """`filter`: as in `lr < 0.1 and accuracy > 0.9`; `sort`: a column, with - before it the other way round; `columns`: state, arg.NAME,
    train.NAME, best(test.NAME), ...; none: the usual ones. `cursor`: `next` of the page before."""

    filter: str = ""
    sort: str = ""
    columns: list[str] = Field([], max_length=MOST_COLUMNS)
    experiment: int | None = Field(None, ge=1, le=2**62)
    limit: int = Field(USUAL, ge=1, le=MOST)
    cursor: str = Field("", max_length=64)


class TableRow(Schema):
    """`values` by column: lengths of time in seconds; null where the run has none, or no finite number. `steps`: of the metrics among them,
    where that value was."""

    id: int
    name: str
    experiment: int
    state: str
    values: dict[str, str | int | float | dt.datetime | None]
    steps: dict[str, int]
    url: str


class View(Schema):
    """`query`: of the table's address; `shared`: with all members of the project, else the caller's own; `url`: opens it."""

    id: int
    name: str
    project: int
    experiment: int | None
    shared: bool
    query: str
    saved_by: str
    saved_at: dt.datetime
    url: str


class NewView(Body):
    """Takes the place of the one that has the name. `experiment`: whose runs it shows; left out, all the project's."""

    name: str
    query: str = ""
    shared: bool = False
    experiment: int | None = None


@runs.get("/projects/{int:project}/runs", response=Page[TableRow])  # the methods of an address stand in one router
def project_runs(request: HttpRequest, project: int, wanted: Annotated[RowsQuery, Query()]) -> Page[TableRow]:
    """Runs without a value come last, whichever way they are sorted; those that are alike newest first. A cursor is a place in that order:
    what begins or ends meanwhile may move others over it."""
    user = person(request)
    found = access.project(user, project)
    plan = _plan(found, wanted, access.experiment(user, wanted.experiment).pk if wanted.experiment is not None else None)
    begin = _parse_cursor(wanted.cursor)
    numbers = list(run_table.numbers(plan)[begin : begin + wanted.limit + 1])
    items = [_row(request, plan, row) for row in run_table.rows(plan, numbers[: wanted.limit])]
    return Page(items=items, next=_cursor(begin + wanted.limit) if len(numbers) > wanted.limit else None)


def _plan(project: Project, wanted: RowsQuery, experiment: int | None) -> Plan:
    of_experiment = project.experiments.filter(pk=experiment).first() if experiment is not None else None
    if experiment is not None and of_experiment is None:
        raise Refused(422, "The experiment is one of another project.")
    sort, columns = wanted.sort.removeprefix("-"), tuple(dict.fromkeys(key for key in wanted.columns if key))
    asked = TableQuery(filter=wanted.filter, sort=sort, descending=wanted.sort.startswith("-"), columns=columns)
    plan = run_table.plan(Scope(project, of_experiment), asked, now=timezone.now())
    if plan.refused is not None:
        raise Refused(422, f"filter: {plan.refused}")
    if plan.unknown:
        raise Refused(
            422, f"No run here has {', '.join(plan.unknown)[:200]}: columns are state, arg.NAME, train.NAME, best(test.NAME), ..."
        )
    return plan


def _row(request: HttpRequest, plan: Plan, row: Row) -> TableRow:
    cells = {column.key: cell for column, cell in zip(plan.columns, row.cells, strict=True)}
    return TableRow(
        id=row.run.pk,
        name=row.run.name,
        experiment=row.run.experiment_id,
        state=row.run.state,
        values={key: _value(plain(cell), is_argument=key.startswith("arg.")) for key, cell in cells.items()},
        steps={key: cell.step for key, cell in cells.items() if isinstance(cell, Measured) and cell.step is not None},
        url=page_of(request, "run", row.run.pk),
    )


def _value(cell: Plain, *, is_argument: bool) -> Plain:
    """An argument, which is kept as it was written, is a number where it is one."""
    if not (is_argument and isinstance(cell, str)):
        return cell
    if WHOLE.fullmatch(cell):
        return int(cell)
    number = number_of(cell)
    return cell if number is None else number


def _cursor(place: int) -> str:
    return base64.urlsafe_b64encode(f"from:{place}".encode()).decode().rstrip("=")


def _parse_cursor(cursor: str) -> int:
    if not cursor:
        return 0
    try:
        kind, _, number = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode().partition(":")
    except (binascii.Error, ValueError):
        raise Refused(422, NO_CURSOR) from None
    if kind != "from" or not (number.isascii() and number.isdigit()) or len(number) > 9:
        raise Refused(422, NO_CURSOR)
    return int(number)


@router.get("/projects/{int:project}/views", response=Page[View])
def views(request: HttpRequest, project: int) -> Page[View]:
    """The project's, then the caller's own."""
    user = person(request)
    return whole([_view(request, view) for view in saved_views.visible(user, access.project(user, project))])


@router.post("/projects/{int:project}/views", response={201: View})
def save_view(request: HttpRequest, project: int, body: NewView) -> Status[View]:
    """Whoever is a member keeps tables for themselves; editors also for the project."""
    user = person(request)
    found = access.project(user, project, need="write" if body.shared else "read")
    experiment = access.experiment(user, body.experiment) if body.experiment is not None else None
    view = services.save_view(
        found, by=user, name=body.name, query=body.query, shared=body.shared, experiment=experiment, now=timezone.now()
    )
    return Status(201, _view(request, view))


@router.delete("/views/{int:view}", response={204: None})
def delete_view(request: HttpRequest, view: int) -> Status[None]:
    user = person(request)
    services.delete_view(access.saved_view(user, view, need="write"), by=user)
    return Status(204, None)


def _view(request: HttpRequest, row: SavedView) -> View:
    return View(
        id=row.pk,
        name=row.name,
        project=row.project_id,
        experiment=row.experiment_id,
        shared=row.person_id is None,
        query=row.query,
        saved_by=row.saved_by.username,
        saved_at=row.saved_at,
        url=request.build_absolute_uri(address(row)),
    )
