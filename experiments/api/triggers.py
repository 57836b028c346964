"""Triggers: what runs an experiment again when code is pushed, new data arrives, or another system calls."""

from __future__ import annotations

import datetime as dt
from typing import Literal

from django.http import HttpRequest
from django.utils import timezone
from ninja import Router, Schema
from ninja.responses import Status

from experiments import access, services
from experiments.api.auth import person
from experiments.api.paging import Page, PageParameters, newest
from experiments.api.schemas import Body
from experiments.models import Trigger as Row
from experiments.models import TriggerDelivery
from experiments.views.triggers import address

router = Router(tags=["triggers"])


class Trigger(Schema):
    """`address`: what signed messages are sent to; `created_by`: in whose name runs are made."""

    id: int
    project: int
    event: str
    experiment: int
    definition: int | None
    branch: str
    data_name: str
    address: str
    created_by: str
    created_at: dt.datetime


class MadeTrigger(Trigger):
    """`secret`: nobody can look it up again."""

    secret: str


class NewTrigger(Body):
    """`event`: push (fetches the code of `definition` again), data (a new data asset called `data_name`), or call."""

    event: Literal["push", "data", "call"]
    experiment: int
    definition: int | None = None
    branch: str = ""
    data_name: str = ""


class Delivery(Schema):
    """`number`: what its sender calls it; `outcome`: empty while it waits; `made`: the experiment that came of it."""

    id: int
    number: str
    at: dt.datetime
    done_at: dt.datetime | None
    outcome: str
    made: int | None


def _trigger_response(request: HttpRequest, row: Row) -> Trigger:
    same = ("event", "branch", "data_name", "created_at")
    return Trigger(
        id=row.pk,
        project=row.project_id,
        experiment=row.experiment_id,
        definition=row.definition_id,
        address=address(request, row),
        created_by=row.created_by.username,
        **{name: getattr(row, name) for name in same},
    )


@router.get("/projects/{int:project}/triggers", response=Page[Trigger])
def triggers(request: HttpRequest, project: int, page: PageParameters) -> Page[Trigger]:
    found = access.project(person(request), project, need="write")
    return newest(found.triggers.select_related("created_by"), page, lambda row: _trigger_response(request, row))


@router.post("/projects/{int:project}/triggers", response={201: MadeTrigger})
def make_trigger(request: HttpRequest, project: int, body: NewTrigger) -> Status[MadeTrigger]:
    user = person(request)
    found = access.project(user, project, need="write")
    row, secret = services.create_trigger(
        found,
        by=user,
        event=body.event,
        experiment=access.experiment(user, body.experiment),
        definition=access.definition(user, body.definition) if body.definition is not None else None,
        branch=body.branch,
        data_name=body.data_name,
        now=timezone.now(),
    )
    return Status(201, MadeTrigger(secret=secret, **_trigger_response(request, row).model_dump()))


@router.get("/triggers/{int:trigger}/deliveries", response=Page[Delivery])
def deliveries(request: HttpRequest, trigger: int, page: PageParameters) -> Page[Delivery]:
    """What came in, and what became of it."""
    return newest(access.trigger(person(request), trigger, need="write").deliveries.all(), page, _delivery)


def _delivery(row: TriggerDelivery) -> Delivery:
    same = ("number", "at", "done_at", "outcome")
    return Delivery(id=row.pk, made=row.made_id, **{name: getattr(row, name) for name in same})


@router.post("/triggers/{int:trigger}/take-over", response=Trigger)
def take_over_trigger(request: HttpRequest, trigger: int) -> Trigger:
    """It acts in the name of who asks from now on. Address and secret stay."""
    user = person(request)
    return _trigger_response(request, services.take_over_trigger(access.trigger(user, trigger, need="write"), by=user))


@router.delete("/triggers/{int:trigger}", response={204: None})
def delete_trigger(request: HttpRequest, trigger: int) -> Status[None]:
    user = person(request)
    services.delete_trigger(access.trigger(user, trigger, need="write"), by=user)
    return Status(204, None)
