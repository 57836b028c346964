"""People's accounts. For administrators of the cluster, by a token of scope `admin`.

A token makes no administrator, gives nobody a new password and hands no project over: one that was lost could take those."""

from __future__ import annotations

import datetime as dt

from django.http import HttpRequest
from ninja import Router, Schema
from ninja.responses import Status

from experiments import access, services
from experiments.api.auth import person
from experiments.api.paging import Page, PageParameters, newest
from experiments.api.schemas import Body
from experiments.models import User
from experiments.selectors import people as selected

router = Router(tags=["people"])


class Person(Schema):
    """`open`: false of somebody whose account is closed. `projects`, `live_runs`, `tokens`: how many. `only_admin_of`: names of projects
    that nobody else administers; only where one person is asked for."""

    id: int
    username: str
    open: bool
    administers: bool
    email: str
    joined_at: dt.datetime
    last_login_at: dt.datetime | None
    projects: int
    live_runs: int
    tokens: int
    only_admin_of: list[str] | None = None


class NewPerson(Body):
    username: str
    reason: str = ""


class MadePerson(Schema):
    """`password`: shown this once."""

    id: int
    username: str
    password: str


class Close(Body):
    """`stop_runs`: those that have not ended; else they go on."""

    stop_runs: bool = False
    reason: str = ""


@router.get("/people", response=Page[Person])
def people(request: HttpRequest, wanted: PageParameters, q: str = "") -> Page[Person]:
    """Newest accounts first. `q`: those with it in their name or address."""
    access.rules(person(request), need="admin")
    return newest(selected.people(q[:150]), wanted, _response)


@router.post("/people", response={201: MadePerson})
def make_person(request: HttpRequest, body: NewPerson) -> Status[MadePerson]:
    """An account, with a password that is shown this once."""
    user = person(request)
    access.rules(user, need="admin")
    made, password = services.make_person(by=user, username=body.username, reason=body.reason)
    return Status(201, MadePerson(id=made.pk, username=made.username, password=password))


@router.get("/people/{int:account}", response=Person)
def person_of_studio(request: HttpRequest, account: int) -> Person:
    return _whole(selected.person(person(request), account))


@router.post("/people/{int:account}/close", response=Person)
def close_person(request: HttpRequest, account: int, body: Close) -> Person:
    """Logins, tokens and webhooks of theirs end; triggers and searches begin nothing more. What they own stays."""
    user = person(request)
    found = selected.person(user, account)
    services.close_account(found, by=user, stop_runs=body.stop_runs, reason=body.reason)
    return _whole(found)


@router.post("/people/{int:account}/log-out", response=Person)
def log_person_out(request: HttpRequest, account: int) -> Person:
    """In all browsers; with them the tokens end that IBM's routes have given. API tokens stay."""
    user = person(request)
    found = selected.person(user, account)
    services.log_out(found, by=user)
    return _whole(found)


def _whole(found: User) -> Person:
    shown = _response(selected.people().get(pk=found.pk))
    shown.only_admin_of = [project.name for project in selected.account(found).alone]
    return shown


def _response(row: User) -> Person:
    counted = {"projects": "project_count", "live_runs": "live_count", "tokens": "token_count"}
    return Person(
        id=row.pk,
        username=row.username,
        open=row.is_active,
        administers=row.is_staff,
        email=row.email,
        joined_at=row.date_joined,
        last_login_at=row.last_login,
        **{name: getattr(row, annotation) for name, annotation in counted.items()},
    )
