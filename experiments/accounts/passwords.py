"""People's accounts: made by an administrator, with a generated password that is shown once and never stored in the clear. And whose
session is whose."""

from __future__ import annotations

import secrets
from collections.abc import Iterable

from django.contrib.auth import HASH_SESSION_KEY, SESSION_KEY
from django.db.models import F
from django.utils import timezone
from django.utils.crypto import constant_time_compare

from experiments.accounts import api_tokens, logins
from experiments.django_validation import as_domain_error
from experiments.errors import DomainError
from experiments.live import notify
from experiments.models import BrowserSession, User


def give_password(username: str, *, staff: bool = False, create: bool = True) -> str:
    """A new random password for `username`, whose account is made where there is none. Returns it: the only time anyone sees it.

    An existing account keeps its rights; `staff` only adds them. Raises DomainError for a name that cannot be one, or is unknown
    where `create` is False.
    """
    password = secrets.token_urlsafe(12)
    user = User.objects.filter(username=username).first()
    if user is None and not create:
        raise DomainError({"username": f"There is no account named {username}."})
    user = user or User(username=username)
    user.is_staff = user.is_staff or staff
    user.is_active = True
    user.set_password(password)
    with as_domain_error():
        user.full_clean()
    user.save()
    logins.forget(username)
    notify.access_changed(user.pk)
    notify.changed("cluster", "nodes")  # with a second person some machines refuse what is new (see `isolation`)
    notify.nudge_schedule()
    return password


def end_logins(person: User) -> None:
    """In all browsers, and the tokens that IBM's routes have given; API tokens stay. `person` is good for a new login after it."""
    User.objects.filter(pk=person.pk).update(logins_ended=F("logins_ended") + 1)
    person.refresh_from_db(fields=["logins_ended"])
    notify.access_changed(person.pk)


Login = str | int  # the key of a session, or the number of an API token


def logged_in(by: Iterable[Login]) -> dict[Login, User]:
    """Who is logged in with which of the sessions and API tokens. The others are left out."""
    asked = set(by)
    tokens = [each for each in asked if isinstance(each, int)]
    found = _by_session({each for each in asked if isinstance(each, str)})
    for number, user in (api_tokens.owners(tokens, now=timezone.now()) if tokens else {}).items():
        found[number] = user
    return found


def _by_session(session_keys: set[str]) -> dict[Login, User]:
    """As Django's own check of a request has it: the session must not have ended, the account must be open, and the password still be the
    one that was logged in with."""
    sessions = BrowserSession.objects.filter(session_key__in=session_keys, expire_date__gt=timezone.now())
    said = {session.session_key: session.get_decoded() for session in sessions}
    numbers = {key: str(values.get(SESSION_KEY, "")) for key, values in said.items()}
    people = User.objects.filter(is_active=True).in_bulk([int(number) for number in set(numbers.values()) if number.isdigit()])
    found = {key: people.get(int(number)) for key, number in numbers.items() if number.isdigit()}
    return {
        key: user
        for key, user in found.items()
        if user is not None and constant_time_compare(said[key].get(HASH_SESSION_KEY, ""), user.get_session_auth_hash())
    }
