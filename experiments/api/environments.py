"""Environments: those that administrators offer by name, and what requirements came to on the machines."""

from __future__ import annotations

import contextlib
import datetime as dt
from collections.abc import Iterator

from django.http import HttpRequest
from ninja import Router, Schema
from ninja.responses import Status

from experiments import access, services
from experiments.api.auth import person
from experiments.api.paging import Page, whole
from experiments.api.requests import idempotency_key
from experiments.api.schemas import Body
from experiments.errors import DomainError
from experiments.models import Environment as Built
from experiments.models import EnvironmentBuild, NamedEnvironment
from experiments.selectors import environments as built
from experiments.selectors import named_environments as named

router = Router(tags=["environments"])


class Build(Schema):
    """On one machine. `seconds`: that building took; `problem`: why it failed."""

    node: str
    state: str
    detail: str
    problem: str
    size_bytes: int
    seconds: float | None
    ended_at: dt.datetime | None
    used_at: dt.datetime | None


class OfferedEnvironment(Schema):
    """`requirements` of its newest version; `choice`: what a definition's `packages` says to have it; `definitions`: how many do."""

    id: int
    name: str
    description: str
    choice: str
    version: int
    requirements: str
    retired: bool
    definitions: int
    builds: list[Build]


class NewEnvironment(Body):
    """`requirements`: a line for each package, as in requirements.txt."""

    name: str
    description: str = ""
    requirements: str


class EnvironmentChange(Body):
    """What is left out stays as it is. Other requirements make another version; `retired`: nobody new can choose it."""

    name: str | None = None
    description: str | None = None
    requirements: str | None = None
    retired: bool | None = None


class StartedBuilds(Schema):
    """On how many machines it is being built."""

    machines: int


class Environment(Schema):
    """What requirements came to on a base (PyTorch and devices). `lock`: every package with its version and hashes, in the answer for one
    alone; `runs`: how many live runs need it."""

    id: int
    requirements: str
    base: str
    packages: list[tuple[str, str]]
    lock: str | None = None
    offered: str | None
    resolved_at: dt.datetime | None
    runs: int
    definitions: int
    builds: list[Build]


def _build(row: EnvironmentBuild) -> Build:
    same = ("state", "detail", "problem", "size_bytes", "seconds", "ended_at", "used_at")
    return Build(node=row.node.name, **{name: getattr(row, name) for name in same})


def _offered(row: named.Row) -> OfferedEnvironment:
    return OfferedEnvironment(
        id=row.environment.pk,
        name=row.environment.name,
        description=row.environment.description,
        choice=f"named:{row.environment.pk}",
        version=row.version.number,
        requirements=row.version.text,
        retired=row.environment.retired_at is not None,
        definitions=row.definitions,
        builds=[_build(build) for build in row.builds],
    )


def _changed(request: HttpRequest, offered: int) -> NamedEnvironment:
    return access.named_environment(person(request), offered, need="admin")


@contextlib.contextmanager
def _named_as_here() -> Iterator[None]:
    """Of what is wrong with a form's text the API says that it is the requirements."""
    try:
        yield
    except DomainError as error:
        if "text" not in error.fields:
            raise
        others = {name: messages for name, messages in error.fields.items() if name != "text"}
        raise DomainError({**others, "requirements": error.fields["text"]}) from None


@router.get("/offered-environments", response=Page[OfferedEnvironment])
def offered_environments(request: HttpRequest) -> Page[OfferedEnvironment]:
    """By name, the retired ones last."""
    person(request)
    return whole([_offered(row) for row in named.rows()])


@router.post("/offered-environments", response={201: OfferedEnvironment})
def offer_environment(request: HttpRequest, body: NewEnvironment) -> Status[OfferedEnvironment]:
    user = person(request)
    access.environments(user)
    key = idempotency_key(request)
    with _named_as_here():
        made = services.create_named_environment(
            by=user, name=body.name, description=body.description, text=body.requirements, idempotency_key=key
        )
    return Status(201, _offered(named.row(made.environment)))


@router.get("/offered-environments/{int:offered}", response=OfferedEnvironment)
def offered_environment(request: HttpRequest, offered: int) -> OfferedEnvironment:
    return _offered(named.row(access.named_environment(person(request), offered)))


@router.patch("/offered-environments/{int:offered}", response=OfferedEnvironment)
def change_offered_environment(request: HttpRequest, offered: int, body: EnvironmentChange) -> OfferedEnvironment:
    found, user = _changed(request, offered), person(request)
    if (body.name, body.description, body.requirements) != (None, None, None):
        name = found.name if body.name is None else body.name
        about = found.description if body.description is None else body.description
        text = found.newest().text if body.requirements is None else body.requirements
        with _named_as_here():
            services.change_named_environment(found, by=user, name=name, description=about, text=text)
    if body.retired is not None:
        services.retire_named_environment(found, by=user, retired=body.retired)
    return _offered(named.row(_changed(request, offered)))


@router.post("/offered-environments/{int:offered}/renew", response=OfferedEnvironment)
def renew_offered_environment(request: HttpRequest, offered: int) -> OfferedEnvironment:
    """The next version with the same requirements, resolved again: releases that have come since are taken."""
    found = _changed(request, offered)
    services.renew_named_environment(found, by=person(request), idempotency_key=idempotency_key(request))
    return _offered(named.row(found))


@router.post("/offered-environments/{int:offered}/build", response={202: StartedBuilds})
def build_offered_environment(request: HttpRequest, offered: int) -> Status[StartedBuilds]:
    """On every machine, before a run needs it."""
    return Status(202, StartedBuilds(machines=services.build_named_environment(_changed(request, offered), by=person(request))))


@router.delete("/offered-environments/{int:offered}", response={204: None})
def delete_offered_environment(request: HttpRequest, offered: int) -> Status[None]:
    """Refused while a version of a training definition has it."""
    services.delete_named_environment(_changed(request, offered), by=person(request))
    return Status(204, None)


def _environment(row: built.Row, *, lock: bool = False) -> Environment:
    of: Built = row.environment
    return Environment(
        id=of.pk,
        requirements=of.requirements,
        base=of.base_words,
        packages=[(name, version) for name, version in of.packages],
        lock=of.lock if lock else None,
        offered=str(row.named) if row.named is not None else None,
        resolved_at=of.resolved_at,
        runs=row.live,
        definitions=row.definitions,
        builds=[_build(build) for build in row.builds],
    )


@router.get("/environments", response=Page[Environment])
def environments(request: HttpRequest) -> Page[Environment]:
    """All that there are, the newest 200, for administrators."""
    access.environments(person(request))
    return whole([_environment(row) for row in built.rows()])


@router.get("/environments/{int:environment}", response=Environment)
def environment(request: HttpRequest, environment: int) -> Environment:
    """One that a definition of the caller's projects asks for, or that is offered."""
    return _environment(built.row(access.environment(person(request), environment)), lock=True)


@router.delete("/environments/{int:environment}", response={204: None})
def drop_environment(request: HttpRequest, environment: int) -> Status[None]:
    """From the machines. Its lock is kept: a run that needs it has it built again, with the same packages."""
    user = person(request)
    services.drop_environment(access.environment(user, environment, need="admin"), by=user)
    return Status(204, None)
