"""Who calls: by a token (`X-Auth-Token` or `Authorization: Bearer`) or by name and password (`Authorization: Basic`), in whose place an API
token may stand: people of single sign-on have no password. Never by a cookie.

Passwords are tried no faster than at the log-in page (`logins`). A client of the first generation sends the password with every call, and
checking one costs a third of a second on purpose: one that was right is remembered for a while, in this process, as a keyed hash.
"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import hmac
import threading
from collections import OrderedDict

from django.conf import settings
from django.contrib.auth import authenticate
from django.utils.crypto import constant_time_compare

from experiments.accounts import api_tokens, logins
from experiments.accounts.addresses import network_of
from experiments.boxed import turns
from experiments.models import Scope, User
from experiments.wmla import tokens

REMEMBERED = dt.timedelta(minutes=5)
MOST_REMEMBERED = 1000
LONGEST_NAME = 150
LOG_ON = "Log on first: send name and password (Basic), or the accessToken of /auth/v1/logon as X-Auth-Token or as Bearer."
OVER = "The token is not valid, or no longer: log on again."
NARROW = "This token may only read, or knows one project alone: take one that may write, or /api/v1/."
WRONG = "The username or the password is wrong. Both are case-sensitive."

_right: OrderedDict[bytes, tuple[int, str, dt.datetime]] = OrderedDict()  # person, hash of their session, until when
_lock = threading.Lock()  # requests come in several threads


class Refused(Exception):
    """Not answered. The message says what to do."""

    def __init__(self, status: int, says: str) -> None:
        super().__init__(says)
        self.status = status


def who(*, authorization: str, token: str, address: str, now: dt.datetime) -> User:
    """The person behind the two headers, "" where one was not sent. Raises Refused."""
    user = _who(authorization=authorization, token=token, address=address, now=now)
    turns.asks.set(user.pk)
    return user


def _who(*, authorization: str, token: str, address: str, now: dt.datetime) -> User:
    kind, _, said = authorization.partition(" ")
    said = token.strip() or said.strip()
    if token or kind.lower() == "bearer":
        user = _by_api_token(said, now) if said.startswith(api_tokens.PREFIX) else tokens.owner(said, now=now)
        if user is None:
            raise Refused(401, OVER)
        return user
    if kind.lower() != "basic":
        raise Refused(401, LOG_ON)
    name, password = _basic(said)
    return by_name(name, password, address=address, now=now)


def by_name(name: str, password: str, *, address: str, now: dt.datetime) -> User:
    """By their password, or by an API token of theirs. Raises Refused."""
    if not password.startswith(api_tokens.PREFIX):
        return by_password(name, password, address=address, now=now)
    user = _by_api_token(password, now)
    if user is None or user.username != name:
        raise Refused(401, OVER)
    return user


def _by_api_token(token: str, now: dt.datetime) -> User | None:
    """These addresses know nothing of what a token may: one that may not write, or that is of one project, is no use here."""
    user = api_tokens.owner(token, now=now)
    if user is not None and user.permit is not None and (user.permit.scope == Scope.READ or user.permit.project is not None):
        raise Refused(403, NARROW)
    return user


def by_password(name: str, password: str, *, address: str, now: dt.datetime) -> User:
    if not name or not password or len(name) > LONGEST_NAME or not name.isprintable() or "\0" in password:
        raise Refused(401, WRONG)
    key = hmac.digest(settings.SECRET_KEY.encode(), b"experiments.wmla.callers:" + repr((name, password)).encode(), "sha256")
    if (user := _known(key, now)) is not None:
        return user
    try:
        with logins.checking(logins.Attempt(name, network_of(address)[:64]), now=now, wrong=Refused):
            user = authenticate(username=name, password=password)
            if user is None:
                raise Refused(401, WRONG)
    except logins.HeldUp as held_up:
        raise Refused(429, str(held_up)) from None
    _remember(key, user, now)
    return user


def _basic(said: str) -> tuple[str, str]:
    try:
        raw = base64.b64decode(said, validate=True)
    except (binascii.Error, ValueError):
        raise Refused(401, "The Authorization header is not Basic with name:password in base64.") from None
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        text = raw.decode("latin-1")  # as the Python package requests sends it
    name, _, password = text.partition(":")
    return name, password


def _known(key: bytes, now: dt.datetime) -> User | None:
    with _lock:
        person, session, until = _right.get(key, (0, "", now))
    if until <= now:
        return None
    user = User.objects.filter(pk=person, is_active=True).first()
    return user if user is not None and constant_time_compare(session, user.get_session_auth_hash()) else None


def _remember(key: bytes, user: User, now: dt.datetime) -> None:
    with _lock:
        _right[key] = (user.pk, user.get_session_auth_hash(), now + REMEMBERED)
        _right.move_to_end(key)
        while len(_right) > MOST_REMEMBERED:
            _right.popitem(last=False)
