"""Errors as application/problem+json (RFC 9457): `detail` is the sentence that a form would show, `errors` its fields."""

from __future__ import annotations

import http
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from django.core.exceptions import BadRequest, PermissionDenied, SuspiciousOperation
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse, UnreadablePostError
from django.http.multipartparser import MultiPartParserError
from ninja import NinjaAPI, Schema
from ninja.errors import AuthenticationError, HttpError, Throttled
from ninja.errors import ValidationError as Malformed

from experiments.errors import DomainError
from experiments.files.bundles import BundleRefused
from experiments.files.datastore import WrongOffset
from experiments.ops import full_disk

MEDIA_TYPE = "application/problem+json"
MOST_ERRORS = 50
BROKEN = (BadRequest, SuspiciousOperation, MultiPartParserError, UnreadablePostError)
UNREADABLE = "The request cannot be read: send all of it, as the description of this call has it."
log = logging.getLogger(__name__)


class Problem(Schema):
    """What went wrong. `detail`: a sentence that says what to do; `errors`: sentences by field."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    errors: dict[str, list[str]] = {}


class Refused(Exception):
    """Not answered. The message says what to do."""

    def __init__(self, status: int, says: str, *, errors: Mapping[str, Sequence[str]] | None = None, more: Mapping[str, Any] | None = None):
        super().__init__(says)
        self.status, self.errors, self.more = status, errors or {}, more or {}


def problem(status: int, says: str, *, errors: Mapping[str, Sequence[str]] | None = None, **more: object) -> HttpResponse:
    body = {
        "type": "about:blank",
        "title": http.HTTPStatus(status).phrase,
        "status": status,
        "detail": says,
        "errors": {name: list(sentences) for name, sentences in (errors or {}).items()},
        **more,
    }
    response = JsonResponse(body, status=status, content_type=MEDIA_TYPE)
    response["Cache-Control"] = "no-store"
    if status == 401:
        response["WWW-Authenticate"] = "Bearer"
    return response


def of_fields(error: DomainError) -> HttpResponse:
    """What a service refuses, as its form would show it."""
    return problem(full_disk.status_of(error), str(error), errors=error.fields)


def handle(api: NinjaAPI) -> None:
    """Answer the exceptions of this API's calls."""

    def on(kind: type[Exception], answer: Any) -> None:
        api.add_exception_handler(kind, lambda _, error: answer(error))

    on(Refused, lambda error: problem(error.status, str(error), errors=error.errors, **error.more))
    on(Http404, lambda error: problem(404, str(error) or "There is no such thing."))
    on(PermissionDenied, lambda error: problem(403, str(error) or "Your role in this project does not include that."))
    on(DomainError, of_fields)
    on(BundleRefused, lambda error: problem(400, str(error)))
    on(Malformed, _malformed)
    on(AuthenticationError, lambda _: problem(401, LOG_IN))
    on(Throttled, lambda error: _later(error.wait))
    on(HttpError, lambda error: problem(error.status_code, UNREADABLE if error.status_code == 400 else str(error)))
    on(WrongOffset, lambda error: problem(409, "The file ends elsewhere: go on from `received`.", received=error.size_bytes))
    for kind in BROKEN:
        on(kind, lambda _: problem(400, UNREADABLE))
    api.add_exception_handler(Exception, _broken)


LOG_IN = "Send a token of yours: Authorization: Bearer edt_... (your profile makes one, or POST /api/v1/tokens)."
TOO_MANY = "Too many requests by this token: wait {} s."


def _later(wait: int | None) -> HttpResponse:
    seconds = max(1, int(wait or 1))
    response = problem(429, TOO_MANY.format(seconds))
    response["Retry-After"] = str(seconds)
    return response


def _malformed(error: Malformed) -> HttpResponse:
    """What has not the form that the description says, by its place in the request."""
    fields: dict[str, list[str]] = {}
    for each in error.errors[:MOST_ERRORS]:
        place = [str(part) for part in each.get("loc", ())]
        name = ".".join(place[2:] if place[:1] == ["body"] and len(place) > 2 else place[1:]) or ".".join(place) or "request"
        fields.setdefault(name[:200], []).append(str(each.get("msg", "is not possible"))[:500])
    said = "; ".join(f"{name}: {sentences[0]}" for name, sentences in fields.items())
    return problem(422, f"The request has not the form that is described. {said}"[:2000], errors=fields)


def _broken(request: HttpRequest, error: Any) -> HttpResponse:
    if no_room := full_disk.says(error):
        log.warning("No room for a request to %s", request.path, exc_info=error)
        return problem(full_disk.STATUS, no_room)
    log.error("%s %s broke down", request.method, request.path, exc_info=error)
    return problem(500, "Something broke. The error is in the studio's log; running jobs are not affected.")
