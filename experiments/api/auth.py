"""Who asks: whose token was sent, or whose page it is (a browser's session, with the token that its forms carry for whatever changes)."""

from __future__ import annotations

from typing import Any, cast

from asgiref.sync import sync_to_async
from django.http import HttpRequest
from django.utils import timezone
from ninja.security import HttpBasicAuth, HttpBearer, SessionAuth

from experiments.accounts import api_tokens
from experiments.api.problems import Refused
from experiments.boxed import turns
from experiments.models import Scope, User
from experiments.wmla import callers

OVER = "The token is unknown, has ended or was ended: make another one."
READ_ONLY = "This token may only read: use one of scope write."
ONE_PROJECT = "This token knows one project alone: use one that does not."
NOT_ADMIN = "Only a token of scope admin may do that, or you yourself in the browser."
SAFE = ("GET", "HEAD", "OPTIONS")


def person(request: HttpRequest) -> User:
    """Who asks, with their permit where it is by a token."""
    return cast(User, request.auth)  # type: ignore[attr-defined]  # ninja sets it


def all_of(request: HttpRequest) -> User:
    """Who asks, where it is for themselves or for more than one project."""
    user = person(request)
    if user.permit is not None and user.permit.project is not None:
        raise Refused(403, ONE_PROJECT)
    return user


def themselves(request: HttpRequest) -> User:
    """Who asks, where only a token that may everything will do."""
    user = all_of(request)
    if user.permit is not None and user.permit.scope != Scope.ADMIN:
        raise Refused(403, NOT_ADMIN)
    return user


class Bearer(HttpBearer):
    """`Authorization: Bearer edt_...` `ends_itself`: for the one change that a token which may only read may make."""

    def __init__(self, *, ends_itself: bool = False) -> None:
        super().__init__()
        self._ends_itself = ends_itself

    def authenticate(self, request: HttpRequest, token: str) -> User | None:
        user = api_tokens.owner(token.strip(), now=timezone.now())
        if user is None or user.permit is None:
            raise Refused(401, OVER)
        if user.permit.scope == Scope.READ and request.method not in SAFE and not self._ends_itself:
            raise Refused(403, READ_ONLY)
        request.user = user
        turns.asks.set(user.pk)
        return user


class Session(SessionAuth):
    """The session of a browser, for pages of this studio."""

    def __call__(self, request: HttpRequest) -> Any:
        if "Authorization" in request.headers or not request.user.is_authenticated:
            return None
        return super().__call__(request)

    def authenticate(self, request: HttpRequest, key: str | None) -> User | None:  # noqa: ARG002  (ninja names it)
        return request.user if request.user.is_authenticated and request.user.is_active else None


class Password(HttpBasicAuth):
    """Name and password, to get a token by: checked no faster than at the log-in page."""

    def authenticate(self, request: HttpRequest, username: str, password: str) -> User | None:
        address = request.META.get("REMOTE_ADDR", "")
        try:
            return callers.by_password(username, password, address=address, now=timezone.now())
        except callers.Refused as refused:
            raise Refused(refused.status, str(refused)) from None


ANYBODY = [Bearer(), Session()]
ANY_TOKEN = [Bearer(ends_itself=True)]
OWNER = [Bearer(), Password(), Session()]


async def of_stream(request: HttpRequest) -> User | None:
    """The same for a call that is answered by an event loop."""

    def ask() -> User | None:
        for each in ANYBODY:
            if (user := each(request)) is not None:
                return cast(User, user)
        return None

    return await sync_to_async(ask)()
