"""Comments on runs: whoever may see a run reads them, editors write; authors change theirs, and admins of the project delete any."""

from __future__ import annotations

import datetime as dt

from django.http import HttpRequest
from ninja import Router, Schema
from ninja.responses import Status

from experiments import access
from experiments.api.auth import person
from experiments.api.paging import Page, whole
from experiments.api.requests import idempotency_key
from experiments.api.schemas import Body
from experiments.models import RunComment
from experiments.selectors.comments import author_of, there
from experiments.services import comments as verbs

router = Router(tags=["runs"])


class CommentText(Body):
    """Markdown. `@bob` tells Bob, where he may see the run."""

    text: str


class Comment(Schema):
    """`author`: a username, "deleted user", or of a run that was imported "alice (imported)": whoever is called so where it comes from."""

    id: int
    run: int
    author: str
    text: str
    at: dt.datetime
    edited_at: dt.datetime | None


def _comment_response(row: RunComment) -> Comment:
    return Comment(id=row.pk, run=row.run_id, author=author_of(row), text=row.text, at=row.at, edited_at=row.edited_at)


@router.get("/runs/{int:run}/comments", response=Page[Comment])
def comments(request: HttpRequest, run: int) -> Page[Comment]:
    """The oldest first."""
    return whole([_comment_response(row) for row in there(access.run(person(request), run))])


@router.post("/runs/{int:run}/comments", response={201: Comment})
def add_comment(request: HttpRequest, run: int, body: CommentText) -> Status[Comment]:
    user = person(request)
    found = access.run(user, run, need="write")
    return Status(201, _comment_response(verbs.add_comment(found, by=user, text=body.text, idempotency_key=idempotency_key(request))))


@router.patch("/comments/{int:comment}", response=Comment)
def change_comment(request: HttpRequest, comment: int, body: CommentText) -> Comment:
    """One's own."""
    user = person(request)
    return _comment_response(verbs.change_comment(access.comment(user, comment, need="write"), by=user, text=body.text))


@router.delete("/comments/{int:comment}", response={204: None})
def delete_comment(request: HttpRequest, comment: int) -> Status[None]:
    """One's own, or any as an admin of the project."""
    user = person(request)
    found = access.comment(user, comment, need="write")
    verbs.delete_comment(found, by=user, any_ones=access.may(found.run.experiment.project, "admin"))
    return Status(204, None)
