"""The caller, and the tokens by which scripts act for them."""

from __future__ import annotations

import datetime as dt
from typing import Literal

from django.http import HttpRequest
from django.utils import timezone
from ninja import Field, Router, Schema
from ninja.responses import Status

from experiments import access, services
from experiments.api.auth import ANY_TOKEN, OWNER, all_of, person, themselves
from experiments.api.paging import Page, PageParameters, newest
from experiments.api.problems import Refused
from experiments.api.schemas import Body
from experiments.models import ApiToken, TrainingRun
from experiments.services.tokens import MOST_DAYS

router = Router(tags=["tokens"])
USUAL_DAYS = 90


class Token(Schema):
    """`scope`: read, write, or admin (all that its person may); `project`: it knows no other; `run`: it ends with that; `hint`: how it
    begins."""

    id: int
    name: str
    hint: str
    scope: str
    project: int | None
    run: int | None
    created_at: dt.datetime
    expires_at: dt.datetime | None
    last_used_at: dt.datetime | None


class Me(Schema):
    """`administrator`: of the cluster, as far as the token allows; `token`: by which is asked."""

    username: str
    administrator: bool
    token: Token | None


class NewToken(Body):
    """`expires_in_days`: null: never. `run`: a token for this run's project that ends with the run."""

    name: str
    scope: Literal["read", "write", "admin"] = "write"
    project: int | None = None
    run: int | None = None
    expires_in_days: int | None = Field(USUAL_DAYS, ge=1, le=MOST_DAYS)


class MadeToken(Token):
    """`token`: nobody can look it up again."""

    token: str


def _token_response(row: ApiToken) -> Token:
    return Token(id=row.pk, project=row.project_id, run=row.run_id, **{name: getattr(row, name) for name in SAME})


SAME = ("name", "hint", "scope", "created_at", "expires_at", "last_used_at")


@router.get("/me", response=Me)
def me(request: HttpRequest) -> Me:
    user = person(request)
    token = ApiToken.objects.filter(pk=user.permit.token).first() if user.permit is not None else None
    return Me(username=user.username, administrator=user.administers, token=_token_response(token) if token is not None else None)


@router.get("/tokens", response=Page[Token])
def tokens(request: HttpRequest, page: PageParameters) -> Page[Token]:
    return newest(ApiToken.objects.filter(person=themselves(request)), page, _token_response)


@router.post("/tokens", response={201: MadeToken}, auth=OWNER)
def make_token(request: HttpRequest, body: NewToken) -> Status[MadeToken]:
    """By name and password, by a token of scope admin, or in the browser; a token for a run also by one that may write."""
    user = all_of(request) if body.run is not None else themselves(request)
    run: TrainingRun | None = access.run(user, body.run, need="write") if body.run is not None else None
    if run is not None and user.permit is not None and body.scope == "admin":
        raise Refused(403, "A token of a run may read or write, and no more.")
    project = access.project(user, body.project) if body.project is not None else None
    row, secret = services.create_token(
        by=user, name=body.name, scope=body.scope, project=project, run=run, days=body.expires_in_days, now=timezone.now()
    )
    return Status(201, MadeToken(token=secret, **_token_response(row).model_dump()))


@router.delete("/tokens/current", response={204: None}, auth=ANY_TOKEN)
def end_this_token(request: HttpRequest) -> Status[None]:
    """The token that this is sent with."""
    user = person(request)
    if user.permit is None:
        raise Refused(400, "This was not sent with a token.")
    services.end_token(access.api_token(user, user.permit.token), by=user)
    return Status(204, None)


@router.delete("/tokens/{int:token}", response={204: None})
def end_token(request: HttpRequest, token: int) -> Status[None]:
    """It is good for nothing from now on; streams that were opened with it close."""
    user = themselves(request)
    services.end_token(access.api_token(user, token), by=user)
    return Status(204, None)
