"""Passwords that are tried: how many a name, an address and a browser may, and how many are checked at the same time.

Three counts over the last WINDOW_S. A browser in which the person has logged in before is known by a signed cookie: it has tries of its
own, so that nobody who guesses at a name from elsewhere keeps its owner out. What is refused is not counted: every refusal ends by itself.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import secrets
import threading
from collections.abc import Iterator
from dataclasses import dataclass

from django.core import signing

from experiments.errors import DomainError
from experiments.models import LoginFailure

WINDOW_S = 15 * 60.0
MOST_TRIES = 10  # of a name from one address, or from one known browser
MOST_OF_NAME = 50  # from all addresses, in browsers that are not known
MOST_OF_ADDRESS = 100  # of all names: people behind one address forget their passwords too
COOKIE, COOKIE_S = "browser", 365 * 24 * 3600
TURN_S = 10.0
# A check costs a third of a second of a processor, on purpose. Pages and sockets need the rest of them.
_turns = threading.BoundedSemaphore(max(1, (os.cpu_count() or 1) // 2))


@dataclass(frozen=True)
class Attempt:
    """Who says to be whom, from where. `browser` is empty where it is not known to be theirs."""

    username: str
    address: str
    browser: str = ""


@dataclass(frozen=True)
class Failures:
    """Wrong passwords of the last WINDOW_S: of the same attempt, of its name, of its address."""

    same: int
    of_name: int
    of_address: int


def refusal(failures: Failures, *, known: bool) -> str:
    """Why no password is looked at now; empty where one is."""
    if failures.same >= MOST_TRIES:
        return "Too many wrong passwords: wait a quarter of an hour, or have an administrator give you a new one."
    if not known and failures.of_address >= MOST_OF_ADDRESS:
        return "Too many wrong passwords came from your network: wait a quarter of an hour."
    if not known and failures.of_name >= MOST_OF_NAME:
        return (
            "Somebody tries passwords for this name, so it can be used only in a browser in which you have logged in before. "
            "Wait a quarter of an hour, or have an administrator give you a new password."
        )
    return ""


class HeldUp(DomainError):
    """No password is looked at now."""


@contextlib.contextmanager
def checking(attempt: Attempt, *, now: dt.datetime, wrong: type[Exception]) -> Iterator[None]:
    """Around the check of a password, which raises `wrong` where it is wrong. Raises HeldUp where none is looked at."""
    _refuse_or_pass(attempt, now)  # who is refused does not wait for a turn
    if not _turns.acquire(timeout=TURN_S):
        raise HeldUp("Many people log in at this moment: try again.")
    try:
        _refuse_or_pass(attempt, now)  # again, for tries that were sent at once: each sees those whose turn came before
        try:
            yield
        except wrong:
            LoginFailure.objects.filter(at__lt=now - dt.timedelta(seconds=WINDOW_S)).delete()
            LoginFailure.objects.create(**_row(attempt), at=now)
            raise
        LoginFailure.objects.filter(**_same_attempt(attempt)).delete()
    finally:
        _turns.release()


def forget(username: str) -> None:
    """Somebody has a new password: what was tried before says nothing any more."""
    LoginFailure.objects.filter(username=username).delete()


def known_browser(cookie: str, username: str) -> str:
    """The browser's name where it has logged in as `username` before; else empty."""
    try:
        said = signing.loads(cookie, salt=COOKIE, max_age=COOKIE_S)
    except signing.BadSignature:
        return ""
    return str(said["browser"]) if said.get("username") == username else ""


def cookie_for(username: str) -> str:
    return signing.dumps({"username": username, "browser": secrets.token_hex(16)}, salt=COOKIE)


def _refuse_or_pass(attempt: Attempt, now: dt.datetime) -> None:
    recent = LoginFailure.objects.filter(at__gt=now - dt.timedelta(seconds=WINDOW_S))
    failures = Failures(
        same=recent.filter(**_same_attempt(attempt)).count(),
        of_name=recent.filter(username=attempt.username, browser="").count(),
        of_address=recent.filter(address=attempt.address, browser="").count(),
    )
    if said := refusal(failures, known=bool(attempt.browser)):
        raise HeldUp(said)


def _row(attempt: Attempt) -> dict[str, str]:
    return {"username": attempt.username, "address": attempt.address, "browser": attempt.browser}


def _same_attempt(attempt: Attempt) -> dict[str, str]:
    """A known browser is the same wherever it is carried."""
    return {"username": attempt.username, "browser": attempt.browser} if attempt.browser else _row(attempt)
