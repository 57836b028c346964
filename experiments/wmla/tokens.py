"""Access tokens: in the shape of a JSON Web Token, which clients take apart, and signed by Django's signer.

The signature is salted with what changes with the password, so a new password ends all tokens, as it ends all sessions. A token that was
logged off is remembered until it would have ended anyway.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
import secrets
from dataclasses import dataclass

from django.core import signing

from experiments.models import EndedToken, User
from experiments.services.tokens import remember_ended

LIFE = dt.timedelta(hours=12)
LONGEST = 4096  # characters of a token that is looked at


@dataclass(frozen=True)
class Claims:
    """What is read of a token: whose it is, which one, and when it ends (Unix seconds)."""

    person: int
    key: str
    ends: float


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
    return _signer(user).sign(f"{_encoded({'alg': 'HS256', 'typ': 'JWT'})}.{_encoded(claims)}")


def owner(token: str, *, now: dt.datetime) -> User | None:
    """Whose token it is; None for one that is forged, over, logged off, or from before the person's last password."""
    found = _read(token)
    user = User.objects.filter(pk=found.person, is_active=True).first() if found else None
    if found is None or user is None or found.ends <= now.timestamp():
        return None
    try:
        _signer(user).unsign(token)
    except signing.BadSignature:
        return None
    return None if EndedToken.objects.filter(key=found.key).exists() else user


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
        return Claims(person=int(str(said["uid"])[:18]), key=str(said["jti"])[:64], ends=float(said["exp"]))
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None


def _encoded(what: dict[str, object]) -> str:
    return base64.urlsafe_b64encode(json.dumps(what, separators=(",", ":")).encode()).decode().rstrip("=")
