"""Access tokens: in the shape of a JSON Web Token, which clients take apart, and signed by Django's signer.

The signature is salted with what changes with the password, so a new password ends all tokens, as it ends all sessions. A token that was
logged off is remembered until it would have ended anyway. One that was given for an API token may what that may, and ends with it.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
import secrets
from dataclasses import dataclass

from django.core import signing

from experiments.accounts import api_tokens
from experiments.models import EndedToken, User
from experiments.services.tokens import remember_ended

LIFE = dt.timedelta(hours=12)
LONGEST = 4096  # characters of a token that is looked at


@dataclass(frozen=True)
class Claims:
    """What is read of a token: whose it is, which one, when it ends (Unix seconds), and which API token it was given for."""

    person: int
    key: str
    ends: float
    api_token: int | None = None


def issue(user: User, *, now: dt.datetime) -> str:
    begin = int(now.timestamp())
    claims: dict[str, object] = {
        "username": user.username,
        "role": "Admin" if user.is_staff else "User",
        "permissions": ["access_catalog", "can_provision"],
        "groups": [10000],
        "sub": user.username,
        "iss": "EDT Studio",
        "aud": "DSX",
        "uid": str(user.pk),
        "authenticator": "default",
        "iat": begin,
        "exp": begin + int(LIFE.total_seconds()),
        "jti": secrets.token_hex(16),
    }
    if user.permit is not None:
        claims["api_token"] = user.permit.token
    return _signer(user).sign(f"{_encoded({'alg': 'HS256', 'typ': 'JWT'})}.{_encoded(claims)}")


def owner(token: str, *, now: dt.datetime) -> User | None:
    """Whose token it is; None for one that is forged, over, logged off, or from before the person's last password."""
    found = _read(token)
    user = _person(found, now) if found else None
    if found is None or user is None or found.ends <= now.timestamp():
        return None
    try:
        _signer(user).unsign(token)
    except signing.BadSignature:
        return None
    return None if EndedToken.objects.filter(key=found.key).exists() else user


def _person(said: Claims, now: dt.datetime) -> User | None:
    if said.api_token is None:
        return User.objects.filter(pk=said.person, is_active=True).first()
    user = api_tokens.owners([said.api_token], now=now).get(said.api_token)
    return user if user is not None and user.pk == said.person else None


def end(token: str, *, now: dt.datetime) -> None:
    """Log it off. What is no valid token is left alone: anybody may send anything."""
    found = _read(token)
    if found is not None and owner(token, now=now) is not None:
        remember_ended(found.key, until=dt.datetime.fromtimestamp(found.ends, dt.UTC), now=now)


def _signer(user: User) -> signing.Signer:
    return signing.Signer(salt=f"experiments.wmla.tokens:{user.get_session_auth_hash()}", sep=".")


def _read(token: str) -> Claims | None:
    """What the token says of itself, which is not believed before its signature is checked."""
    parts = token.split(".")
    if len(token) > LONGEST or len(parts) != 3:
        return None
    try:
        said = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        given_for = None if said.get("api_token") is None else int(str(said["api_token"])[:18])
        return Claims(int(str(said["uid"])[:18]), str(said["jti"])[:64], float(said["exp"]), given_for)
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None


def _encoded(what: dict[str, object]) -> str:
    return base64.urlsafe_b64encode(json.dumps(what, separators=(",", ":")).encode()).decode().rstrip("=")
