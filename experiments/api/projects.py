"""Projects, who belongs to them, and the variables of their runs."""

from __future__ import annotations

import datetime as dt

from django.db import transaction
from django.db.models import Q
from django.http import HttpRequest
from ninja import Router, Schema
from ninja.responses import Status

from experiments import access, services
from experiments.api.auth import all_of, person
from experiments.api.paging import Page, PageParameters, newest, whole
from experiments.api.requests import idempotency_key, unchanged
from experiments.api.schemas import Body, page_of
from experiments.models import EnvironmentVariable, Membership, TrainingDefinition
from experiments.models import Project as Row

router = Router(tags=["projects"])


class Project(Schema):
    """`role`: of who asks: admin, editor or viewer. `archived_at`: since when it is only read; null: it is not archived."""

    id: int
    name: str
    description: str
    role: str
    created_by: str
    created_at: dt.datetime
    archived_at: dt.datetime | None
    url: str


class NewProject(Body):
    name: str
    description: str = ""


class ProjectChange(Body):
    """What is left out stays as it is."""

    name: str | None = None
    description: str | None = None
    archived: bool | None = None


class Member(Schema):
    username: str
    role: str
    added_at: dt.datetime


class NewMember(Body):
    """`role`: admin, editor or viewer."""

    username: str
    role: str


class RoleChange(Body):
    role: str


class Variable(Schema):
    """`value`: null of a secret one, which is never shown."""

    name: str
    value: str | None
    secret: bool


class VariableValue(Body):
    value: str
    secret: bool = False


def project_response(request: HttpRequest, row: Row) -> Project:
    return Project(
        id=row.pk,
        name=row.name,
        description=row.description,
        role=row.my_role,
        created_by=row.created_by.username,
        created_at=row.created_at,
        archived_at=row.archived_at,
        url=page_of(request, "project", row.pk),
    )


@router.get("/projects", response=Page[Project])
def projects(request: HttpRequest, page: PageParameters, q: str = "", archived: bool = False) -> Page[Project]:
    """Those that the caller is a member of. `q`: part of a name or a description. `archived`: those in the archive instead."""
    found = access.projects_for(person(request)).filter(archived_at__isnull=not archived).select_related("created_by")
    if q := q.replace("\0", "").strip():
        found = found.filter(Q(name__icontains=q) | Q(description__icontains=q))
    return newest(found, page, lambda row: project_response(request, row))


@router.post("/projects", response={201: Project})
def make_project(request: HttpRequest, body: NewProject) -> Status[Project]:
    user = all_of(request)
    made = services.create_project(by=user, name=body.name, description=body.description, idempotency_key=idempotency_key(request))
    return Status(201, project_response(request, access.project(user, made.pk)))


@router.get("/projects/{int:project}", response=Project)
def project(request: HttpRequest, project: int) -> Project:
    return project_response(request, access.project(person(request), project))


@router.patch("/projects/{int:project}", response=Project)
def change_project(request: HttpRequest, project: int, body: ProjectChange) -> Project:
    """Its name and description, and `archived`, with which it is only read: together or not at all. With If-Match only where it is what
    it was."""
    user = person(request)
    found = access.project(user, project, need="admin")
    unchanged(request, project_response(request, found))
    name, text = (found.name if body.name is None else body.name), (found.description if body.description is None else body.description)
    with transaction.atomic():
        services.update_project(found, by=user, name=name, description=text)
        if body.archived is not None and body.archived != (found.archived_at is not None):
            (services.archive_project if body.archived else services.take_back_project)(found, by=user)
    return project_response(request, access.project(user, project))


@router.delete("/projects/{int:project}", response={204: None})
def delete_project(request: HttpRequest, project: int) -> Status[None]:
    """With all that is in it. Refused while a run of it has not ended."""
    user = person(request)
    services.delete_project(access.project(user, project, need="admin"), by=user)
    return Status(204, None)


def _member(row: Membership) -> Member:
    return Member(username=row.user.username, role=row.role, added_at=row.added_at)


@router.get("/projects/{int:project}/members", response=Page[Member])
def members(request: HttpRequest, project: int) -> Page[Member]:
    found = access.project(person(request), project)
    return whole([_member(row) for row in found.memberships.select_related("user").order_by("user__username")])


@router.post("/projects/{int:project}/members", response={201: Member})
def add_member(request: HttpRequest, project: int, body: NewMember) -> Status[Member]:
    user = person(request)
    found = access.project(user, project, need="admin")
    return Status(201, _member(services.add_member(found, by=user, username=body.username, role=body.role)))


@router.patch("/projects/{int:project}/members/{str:username}", response=Member)
def change_member(request: HttpRequest, project: int, username: str, body: RoleChange) -> Member:
    user = person(request)
    found = access.project(user, project, need="admin")
    return _member(services.set_role(found, by=user, username=username, role=body.role))


@router.delete("/projects/{int:project}/members/{str:username}", response={204: None})
def remove_member(request: HttpRequest, project: int, username: str) -> Status[None]:
    user = person(request)
    services.remove_member(access.project(user, project, need="admin"), by=user, username=username)
    return Status(204, None)


def _variable(row: EnvironmentVariable) -> Variable:
    return Variable(name=row.name, value=None if row.secret else row.value, secret=row.secret)


def _variables(of: Row | TrainingDefinition) -> Page[Variable]:
    return whole([_variable(row) for row in of.variables.order_by("name")])


@router.get("/projects/{int:project}/variables", response=Page[Variable], tags=["variables"])
def variables_of_project(request: HttpRequest, project: int) -> Page[Variable]:
    """What all runs of the project find in their environment."""
    return _variables(access.project(person(request), project))


@router.put("/projects/{int:project}/variables/{str:name}", response=Variable, tags=["variables"])
def set_variable_of_project(request: HttpRequest, project: int, name: str, body: VariableValue) -> Variable:
    user = person(request)
    found = access.project(user, project, need="admin")
    return _variable(services.set_variable(found, by=user, name=name, value=body.value, secret=body.secret))


@router.delete("/projects/{int:project}/variables/{str:name}", response={204: None}, tags=["variables"])
def delete_variable_of_project(request: HttpRequest, project: int, name: str) -> Status[None]:
    user = person(request)
    services.delete_variable(access.project(user, project, need="admin"), by=user, name=name)
    return Status(204, None)


@router.get("/definitions/{int:definition}/variables", response=Page[Variable], tags=["variables"])
def variables_of_definition(request: HttpRequest, definition: int) -> Page[Variable]:
    """What runs of the definition find in their environment beside those of the project."""
    return _variables(access.definition(person(request), definition))


@router.put("/definitions/{int:definition}/variables/{str:name}", response=Variable, tags=["variables"])
def set_variable_of_definition(request: HttpRequest, definition: int, name: str, body: VariableValue) -> Variable:
    user = person(request)
    found = access.definition(user, definition, need="write")
    return _variable(services.set_variable(found, by=user, name=name, value=body.value, secret=body.secret))


@router.delete("/definitions/{int:definition}/variables/{str:name}", response={204: None}, tags=["variables"])
def delete_variable_of_definition(request: HttpRequest, definition: int, name: str) -> Status[None]:
    user = person(request)
    services.delete_variable(access.definition(user, definition, need="write"), by=user, name=name)
    return Status(204, None)
