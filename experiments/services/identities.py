"""Verbs on people's identities at the OpenID provider: log in by one, link one to one's account, and take it away again.

Nobody gets an account that was there before by what the provider calls them: names and addresses are not proof. Its owner links it, having
given its password.
"""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Callable
from typing import TypeVar

from django.db import IntegrityError, transaction

from experiments.accounts import passwords
from experiments.accounts.identities import Claims, account_name
from experiments.django_validation import as_domain_error
from experiments.errors import DomainError
from experiments.live import notify
from experiments.models import Identity, User
from experiments.services import checks, people
from experiments.services.cluster import note

T = TypeVar("T")
log = logging.getLogger(__name__)


def log_in_by(claims: Claims, *, allowed: bool, provider: str, now: dt.datetime, administers: bool | None = None) -> User:
    """Whose log-in it is; a new account where the provider has said who it is for the first time. `allowed`: whether the rules let them
    in; without that only who has linked an account gets to it. `administers`: what their groups say of that; None: nothing. Raises
    DomainError with a sentence for who tries."""

    def do() -> User:
        person = _log_in_by(claims, allowed=allowed, provider=provider, now=now)
        if administers is not None and person.is_staff != administers:
            _let_administer(person, administers=administers, provider=provider, now=now)
        return person

    return _settled(do)


def _let_administer(person: User, *, administers: bool, provider: str, now: dt.datetime) -> None:
    """Or not any more. One administrator stays."""
    staff = people.administrators()
    if not administers and {each.pk for each in staff} <= {person.pk}:
        log.warning("%s is in no group of EDT_OIDC_ADMINS and stays an administrator: there is no other.", person.username)
        return
    person.is_staff = administers
    person.save(update_fields=["is_staff"])
    what = "made an administrator" if administers else "made no administrator any more"
    note(person, [f"was {what} by their groups at {provider}"], reason="", now=now)
    notify.access_changed(person.pk)


def _log_in_by(claims: Claims, *, allowed: bool, provider: str, now: dt.datetime) -> User:
    found = Identity.objects.select_related("person").filter(issuer=claims.issuer, subject=claims.subject).first()
    if found is None:
        return _new_account(claims, allowed=allowed, provider=provider, now=now)
    if not found.person.is_active:
        raise DomainError("This account is closed.")
    if found.made_account and not allowed:
        raise DomainError(f"{_as(claims, provider)}, but the rules of this studio let you in no more: ask an administrator.")
    Identity.objects.filter(pk=found.pk).update(name=claims.username, last_used_at=now)
    return found.person


def _new_account(claims: Claims, *, allowed: bool, provider: str, now: dt.datetime) -> User:
    if not allowed:
        raise DomainError(
            f"{_as(claims, provider)}, and you have no account here by that: ask an administrator. If you have one with a password, log in "
            "with that and link it on your profile."
        )
    name = account_name(claims)
    if not name:
        raise DomainError(f"{provider} says no name of you that an account can have: ask an administrator to set EDT_OIDC_USERNAME_CLAIM.")
    if (before := User.objects.filter(username__iexact=name).first()) is not None:
        if Identity.objects.filter(issuer=claims.issuer, subject=claims.subject).exists():
            raise _Overtaken  # they were not there a moment ago
        raise DomainError(
            f"There is an account {before.username} here already. If it is yours, log in with its password and link it to {provider} on "
            "your profile; else ask an administrator."
        )
    user = User(username=name, email=claims.email, confirmed_email=claims.email)
    user.set_unusable_password()
    with as_domain_error():
        user.full_clean(validate_unique=False)  # the database sees to it, also where two come at once
    user.save()
    Identity.objects.create(
        person=user, issuer=claims.issuer, subject=claims.subject, name=claims.username, made_account=True, linked_at=now, last_used_at=now
    )
    note(user, [f"logged in with {provider} for the first time, which made the account"], reason="", now=now)
    notify.access_changed(user.pk)
    return user


def link_identity(person: User, claims: Claims, *, provider: str, now: dt.datetime) -> Identity:
    """From now on the person logs in by it, too. Refused where it is somebody's already, or they have another one of that provider."""
    return _settled(lambda: _link(person, claims, provider=provider, now=now))


def _link(person: User, claims: Claims, *, provider: str, now: dt.datetime) -> Identity:
    taken = Identity.objects.select_related("person").filter(issuer=claims.issuer, subject=claims.subject).first()
    if taken is not None and taken.person_id != person.pk:
        raise DomainError(f"{_as(claims, provider)}, which is linked to the account {taken.person.username} already.")
    if taken is not None:
        return taken
    if Identity.objects.filter(person=person, issuer=claims.issuer).exists():
        raise DomainError(f"Your account is linked to {provider} as somebody else already: unlink that first.")
    checks.audit(person, "links the account to %s as %s", claims.issuer, claims.subject)
    return Identity.objects.create(person=person, issuer=claims.issuer, subject=claims.subject, name=claims.username, linked_at=now)


def unlink_identity(person: User, issuer: str, *, by: User, provider: str, now: dt.datetime | None = None) -> None:
    """The person's account is not got at by the provider any more. Who has no password would be shut out: that is for an administrator, who
    can give one."""
    with transaction.atomic():
        user = User.objects.select_for_update().get(pk=person.pk)
        if by.pk == user.pk and not user.has_usable_password():
            raise DomainError(f"You have no password, so {provider} is the only way to your account: an administrator can give you one.")
        gone, _ = Identity.objects.filter(person=user, issuer=issuer).delete()
        if not gone:
            raise DomainError(f"The account of {user.username} is not linked to that.")
        if by.pk != user.pk:
            passwords.end_logins(user)  # whoever it was is in there
            note(by, [f"unlinked the account of {user.username} from {issuer}"], reason="", now=now)
    checks.audit(by, "unlinks the account of %s from %s", person.username, issuer)


class _Overtaken(Exception):
    """Somebody has just done the same."""


def _settled(do: Callable[[], T]) -> T:
    """In a transaction; where somebody was quicker with the same, once more, seeing what they have done."""
    try:
        with transaction.atomic():
            return do()
    except (IntegrityError, _Overtaken):
        with transaction.atomic():
            return do()


def _as(claims: Claims, provider: str) -> str:
    return f"{provider} knows you as {claims.username or claims.subject}"
