"""Whose API token it is that was sent: looked up by its hash, and noted as used."""

from __future__ import annotations

import datetime as dt
import hashlib
import secrets

from django.db.models import Q, QuerySet

from experiments.models import ApiToken, Permit, User
from experiments.models.runs import LIVE

PREFIX = "edt_"
HINT_LENGTH = len(PREFIX) + 4
LONGEST = 128  # characters of a token that is looked at
NOTED_EVERY = dt.timedelta(minutes=1)


def new() -> str:
    return PREFIX + secrets.token_urlsafe(32)


def digest(token: str) -> str:
    """A hash without salt or work factor is enough: the token has 256 random bits."""
    return hashlib.sha256(token.encode()).hexdigest()


def owner(token: str, *, now: dt.datetime) -> User | None:
    """Whose token it is, with its permit; None for one that is unknown or over, or whose person is shut out."""
    if not token.startswith(PREFIX) or len(token) > LONGEST:
        return None
    found = _valid(now).filter(digest=digest(token)).first()
    if found is None:
        return None
    if found.last_used_at is None or now - found.last_used_at > NOTED_EVERY:
        ApiToken.objects.filter(pk=found.pk).update(last_used_at=now)
    return _person(found)


def owners(numbers: list[int], *, now: dt.datetime) -> dict[int, User]:
    """By their numbers, of those that are still good: for streams that were opened with one."""
    return {found.pk: _person(found) for found in _valid(now).filter(pk__in=numbers)}


def _valid(now: dt.datetime) -> QuerySet[ApiToken]:
    not_late = Q(expires_at=None) | Q(expires_at__gt=now)
    alive = Q(run=None) | Q(run__state__in=LIVE)
    return ApiToken.objects.filter(not_late, alive, person__is_active=True).select_related("person")


def _person(token: ApiToken) -> User:
    user = token.person
    user.permit = Permit(token.pk, token.scope, token.project_id)
    return user
