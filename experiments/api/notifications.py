"""What the caller is told of, and the webhooks that are told as well."""

from __future__ import annotations

import datetime as dt
from typing import Literal

from django.http import HttpRequest
from django.utils import timezone
from ninja import Field, Router, Schema
from ninja.responses import Status

from experiments import access, services
from experiments.api.auth import all_of, themselves
from experiments.api.paging import Page, PageParameters, newest
from experiments.api.schemas import ActionResult, Body
from experiments.models import Notification as Row
from experiments.models import NotificationKind, User
from experiments.models import Webhook as Hook
from experiments.notifications import rules
from experiments.views.notifications import confirm_at

router = Router(tags=["notifications"])


class Notification(Schema):
    id: int
    kind: str
    at: dt.datetime
    text: str
    run: int | None
    project: int | None
    read_at: dt.datetime | None


class Read(Body):
    """`ids`: null: all."""

    ids: list[int] | None = None


Way = Literal["page", "mail"]


class Choice(Schema):
    """What the caller is told of, by kind, and how; `email`: where to."""

    ways: dict[str, list[str]]
    email: str


class ChoiceChange(Body):
    """What is left out stays as it is."""

    ways: dict[NotificationKind, list[Way]] = {}
    email: str | None = Field(None, max_length=254)


class Webhook(Schema):
    """`secret`: by which what is sent to it is signed; in the answer to its making alone."""

    id: int
    project: int | None
    url: str
    kinds: list[str]
    active: bool
    last_outcome: str
    last_at: dt.datetime | None
    created_at: dt.datetime
    secret: str | None = None


class NewWebhook(Body):
    """For the caller's own events, or for all of a project's that they administer."""

    url: str
    kinds: list[str]
    project: int | None = None


@router.get("/notifications", response=Page[Notification])
def notifications(request: HttpRequest, page: PageParameters, unread: bool = False) -> Page[Notification]:
    mine = Row.objects.filter(person=all_of(request))
    return newest(mine.filter(read_at=None) if unread else mine, page, _notification)


def _notification(row: Row) -> Notification:
    same = ("kind", "at", "text", "read_at")
    return Notification(id=row.pk, run=row.run_id, project=row.project_id, **{name: getattr(row, name) for name in same})


@router.post("/notifications/read", response={204: None})
def mark_read(request: HttpRequest, body: Read) -> Status[None]:
    user = all_of(request)
    if body.ids is None:
        services.mark_read(user, now=timezone.now())
    for each in [access.notification(user, pk) for pk in body.ids or []]:
        services.mark_read(user, now=timezone.now(), notification=each)
    return Status(204, None)


def _choice(user: User) -> Choice:
    return Choice(ways={kind: list(rules.ways(user, kind)) for kind in rules.kinds_for(user)}, email=user.email)


@router.get("/me/notifications", response=Choice)
def notification_choice(request: HttpRequest) -> Choice:
    return _choice(all_of(request))


@router.patch("/me/notifications", response=Choice)
def choose_notifications(request: HttpRequest, body: ChoiceChange) -> Choice:
    """An address that is new is sent one e-mail with a link to confirm it, and nothing else before."""
    user, now = themselves(request), timezone.now()
    ways = _choice(user).ways | {kind.value: chosen for kind, chosen in body.ways.items()}
    email = user.email if body.email is None else body.email
    chosen = services.choose_notifications(user, ways=ways, email=email, confirm_at=lambda token: confirm_at(request, token), now=now)
    return _choice(chosen)


def _webhook(row: Hook, *, secret: bool = False) -> Webhook:
    same = ("url", "kinds", "active", "last_outcome", "last_at", "created_at")
    return Webhook(id=row.pk, project=row.project_id, secret=row.secret if secret else None, **{name: getattr(row, name) for name in same})


@router.get("/webhooks", response=Page[Webhook])
def webhooks(request: HttpRequest, page: PageParameters, project: int | None = None) -> Page[Webhook]:
    """The caller's own, or those of a project that they administer."""
    user = all_of(request)
    rows = access.project(user, project, need="admin").webhooks.all() if project is not None else user.webhooks.all()
    return newest(rows, page, _webhook)


@router.post("/webhooks", response={201: Webhook})
def add_webhook(request: HttpRequest, body: NewWebhook) -> Status[Webhook]:
    user = all_of(request)
    project = access.project(user, body.project, need="admin") if body.project is not None else None
    return Status(201, _webhook(services.add_webhook(by=user, url=body.url, kinds=body.kinds, project=project), secret=True))


@router.delete("/webhooks/{int:webhook}", response={204: None})
def delete_webhook(request: HttpRequest, webhook: int) -> Status[None]:
    user = all_of(request)
    services.delete_webhook(access.webhook(user, webhook), by=user)
    return Status(204, None)


@router.post("/webhooks/{int:webhook}/test", response={202: ActionResult})
def try_webhook(request: HttpRequest, webhook: int) -> Status[ActionResult]:
    """Send it a word."""
    user = all_of(request)
    services.try_webhook(access.webhook(user, webhook), by=user, now=timezone.now())
    return Status(202, ActionResult(detail="A test is on its way: `last_outcome` says in a moment how it went."))
