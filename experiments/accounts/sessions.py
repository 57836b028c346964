"""Where people are logged in with a browser: Django's sessions in the database, which also say whose they are and when they were used.

The settings name this module as SESSION_ENGINE. What a session is called in public is a hash of its key: with the key itself whoever reads
it is logged in.
"""

from __future__ import annotations

import contextlib
import datetime as dt
from dataclasses import dataclass
from typing import Any

from django.contrib.auth import HASH_SESSION_KEY, SESSION_KEY
from django.contrib.sessions.backends import db
from django.db import DatabaseError
from django.http import HttpRequest
from django.utils import timezone
from django.utils.crypto import constant_time_compare, salted_hmac

from experiments.errors import DomainError
from experiments.live import notify
from experiments.models import BrowserSession, User

SEEN_AGAIN = dt.timedelta(minutes=10)  # a write for each request would be too much
UNKNOWN = "Unknown browser"
LOGIN = "login"  # what a session keeps of its log-in
LONGEST_AGENT, LONGEST_WORDS, LONGEST_ADDRESS = 500, 80, 64
MOST = 100


class SessionStore(db.SessionStore):
    """`seen_at`: of the stored session, where it was looked at."""

    seen_at: dt.datetime | None = None

    @classmethod
    def get_model_class(cls) -> type[BrowserSession]:
        return BrowserSession

    def create_model_instance(self, data: dict[str, Any]) -> BrowserSession:
        row: BrowserSession = super().create_model_instance(data)  # type: ignore[assignment]  # of get_model_class
        return _described(row, data)

    async def acreate_model_instance(self, data: dict[str, Any]) -> BrowserSession:
        row: BrowserSession = await super().acreate_model_instance(data)  # type: ignore[assignment]  # of get_model_class
        return _described(row, data)

    def load(self) -> dict[str, Any]:
        row = self._get_session_from_db()  # type: ignore[attr-defined]  # which the stubs do not know
        if row is None:
            return {}
        self.seen_at = row.seen_at
        found: dict[str, Any] = self.decode(row.session_data)
        return found


def _described(row: BrowserSession, data: dict[str, Any]) -> BrowserSession:
    person = str(data.get(SESSION_KEY, ""))
    row.person_id = int(person) if person.isdigit() else None
    row.seen_at = timezone.now()
    return row


@dataclass(frozen=True)
class LoggedInBrowser:
    """name: what it is called in public. words: as "Firefox on Linux". began_at: None where that was before it was written down. is_this:
    of the request."""

    name: str
    words: str
    address: str
    began_at: dt.datetime | None
    seen_at: dt.datetime
    is_this: bool


def browser_words(agent: str) -> str:
    """As "Firefox on Linux", of what a browser says of itself."""
    from ua_parser import parse  # its tables take a tenth of a second

    found = parse(agent[:LONGEST_AGENT])
    browser = found.user_agent.family if found.user_agent else agent[:40] or UNKNOWN
    return (f"{browser} on {found.os.family}" if found.os else browser)[:LONGEST_WORDS]


def begin(request: HttpRequest, *, now: dt.datetime) -> None:
    """Write down that somebody has logged in, with what and from where."""
    words, address = browser_words(request.headers.get("User-Agent", "")), str(request.META.get("REMOTE_ADDR", ""))
    request.session[LOGIN] = {"at": now.timestamp(), "words": words, "address": address[:LONGEST_ADDRESS]}


def note_seen(session: Any, *, now: dt.datetime) -> None:
    """Somebody uses it. Where that cannot be written (a full disk, say) the page comes all the same."""
    seen_at = getattr(session, "seen_at", None)
    if seen_at is not None and abs(now - seen_at) > SEEN_AGAIN:
        with contextlib.suppress(DatabaseError):
            BrowserSession.objects.filter(pk=session.session_key).update(seen_at=now)
            session.seen_at = now


def browsers(person: User, *, this: str = "", now: dt.datetime) -> list[LoggedInBrowser]:
    """Those in which somebody is logged in, the last used first; `this`: the key of the session that asks."""
    found = []
    for row in BrowserSession.objects.filter(person=person, expire_date__gt=now)[:MOST]:
        data = row.get_decoded()
        if constant_time_compare(data.get(HASH_SESSION_KEY, ""), person.get_session_auth_hash()):
            said = data.get(LOGIN, {})
            began = dt.datetime.fromtimestamp(said["at"], dt.UTC) if "at" in said else None
            name, is_this = public_name(row.session_key), row.session_key == this
            found.append(LoggedInBrowser(name, said.get("words", UNKNOWN), said.get("address", ""), began, row.seen_at, is_this))
    return found


def end(person: User, name: str) -> None:
    """Log one of their browsers out. Raises DomainError where there is none of that name, or it has ended."""
    for key in BrowserSession.objects.filter(person=person).values_list("session_key", flat=True):
        if constant_time_compare(public_name(key), name):
            BrowserSession.objects.filter(pk=key).delete()
            notify.access_changed(person.pk)
            return
    raise DomainError("That browser is logged out already.")


def public_name(session_key: str) -> str:
    return salted_hmac("experiments.accounts.sessions", session_key, algorithm="sha256").hexdigest()[:32]
