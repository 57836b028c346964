"""Verbs on people's accounts, of administrators of the cluster: make one, close it and open it again, who administers, and who takes over
what only somebody else could change. Each leaves a row in the history of the cluster.

A password is made here, returned once and never kept. An account is never deleted: its name stands at what its person did.
"""

from __future__ import annotations

import datetime as dt

from django.db import transaction

from experiments.accounts import custody, passwords
from experiments.live import notify
from experiments.models import Project, Role, TrainingRun, User
from experiments.models.runs import LIVE
from experiments.services import checks, projects
from experiments.services.cluster import note
from experiments.services.notifications import switch_off_webhooks
from experiments.services.runs import stop_run
from experiments.services.tokens import end_tokens


def make_person(
    *, by: User, username: str, administers: bool = False, reason: str = "", now: dt.datetime | None = None
) -> tuple[User, str]:
    """The account, and its password. Field: username; names that differ in capitals alone are taken for the same."""
    name = checks.name(username, field="username", limit=150)
    with transaction.atomic():
        _still(by)
        if (before := User.objects.filter(username__iexact=name).first()) is not None:
            state = "" if before.is_active else ", which is closed: open it again on its page"
            checks.refuse("username", f"There is an account {before.username} already{state}.")
        password = passwords.give_password(name, staff=administers)
        note(by, [f"made the account {name}{', an administrator' if administers else ''}"], reason=reason, now=now)
    return User.objects.get(username=name), password


def give_new_password(person: User, *, by: User, reason: str = "", now: dt.datetime | None = None) -> str:
    """The new one; with the old one nobody is logged in any more. Tokens stay. Refused while the account is closed."""
    with transaction.atomic():
        _still(by)
        if not _locked(person).is_active:
            checks.refuse("username", f"The account of {person.username} is closed: open it again.")
        password = passwords.give_password(person.username, create=False)
        note(by, [f"gave {person.username} a new password"], reason=reason, now=now)
    return password


def log_out(person: User, *, by: User, reason: str = "", now: dt.datetime | None = None) -> None:
    """In all browsers. For somebody whose machine was lost or stolen; API tokens are ended by themselves."""
    with transaction.atomic():
        _still(by)
        passwords.end_logins(person)
        note(by, [f"logged {person.username} out everywhere"], reason=reason, now=now)


def set_administrator(person: User, *, by: User, administers: bool, reason: str = "", now: dt.datetime | None = None) -> User:
    """Whether the person administers the cluster. One administrator stays."""
    with transaction.atomic():
        others = {each.pk for each in _still(by)} - {person.pk}
        found = _locked(person)
        if found.is_staff == administers:
            return found
        if administers and not found.is_active:
            checks.refuse("username", f"The account of {person.username} is closed: open it again first.")
        if not administers and not others:
            checks.refuse("username", f"{person.username} is the only administrator: make somebody else one first.")
        found.is_staff = administers
        found.save(update_fields=["is_staff"])
        note(by, [f"made {person.username} {'an administrator' if administers else 'no administrator any more'}"], reason=reason, now=now)
        notify.access_changed(person.pk)
    return found


def close_account(person: User, *, by: User, stop_runs: bool = False, reason: str = "", now: dt.datetime | None = None) -> User:
    """Nobody acts as this person any more: logins, tokens and webhooks end, and triggers and searches of theirs begin nothing. Runs that
    are live go on unless `stop_runs`. What they own stays with its projects."""
    with transaction.atomic():
        _still(by)
        if person.pk == by.pk:
            checks.refuse("username", "This is your own account: another administrator can close it.")
        found = _locked(person)
        if not found.is_active:
            return found
        found.is_active = found.is_staff = False
        found.set_unusable_password()
        found.save(update_fields=["is_active", "is_staff", "password"])
        end_tokens(found, by=by)
        switch_off_webhooks(found, because=f"the account of {found.username}, who made it, is closed.")
        note(by, [f"closed the account of {found.username}"], reason=reason, now=now)
        notify.access_changed(found.pk)
        if stop_runs:
            for run in TrainingRun.objects.filter(submitted_by=found, state__in=LIVE):
                stop_run(run, by=by)
    return found


def open_account(person: User, *, by: User, reason: str = "", now: dt.datetime | None = None) -> str:
    """A new password for an account that was closed. It has its projects as they are by now, no tokens, and administers nothing."""
    with transaction.atomic():
        _still(by)
        if _locked(person).is_active:
            checks.refuse("username", f"The account of {person.username} is open.")
        password = passwords.give_password(person.username, create=False)
        note(by, [f"opened the account of {person.username} again"], reason=reason, now=now)
    return password


def hand_over(person: User, *, by: User, username: str, reason: str = "", now: dt.datetime | None = None) -> list[Project]:
    """Make somebody an admin of the projects that no other open account administers than this person's. Field: username."""
    with transaction.atomic():
        _still(by)
        found = list(custody.only_admin_of(person))
        if not found:
            checks.refuse("username", f"Each project of {person.username} has another admin, too.")
        if username.strip() == person.username:
            checks.refuse("username", "Name somebody else.")
        for project in found:
            projects.add_member(project, by=by, username=username, role=Role.ADMIN)
        count = f"{len(found)} project{'s' * (len(found) != 1)}"
        note(by, [f"made {username.strip()} admin of {count} that only {person.username} administered"], reason=reason, now=now)
    return found


def administrators() -> list[User]:
    """Of the cluster, whose accounts are open; locked, in the one order in which they are locked anywhere."""
    return list(User.objects.select_for_update().filter(is_staff=True, is_active=True).order_by("pk"))


def _locked(person: User) -> User:
    return User.objects.select_for_update().get(pk=person.pk)


def _still(by: User) -> list[User]:
    """All who administer the cluster, locked; `by` must be one by now: of two who close each other's account one is left."""
    found = administrators()
    if by.pk not in {each.pk for each in found}:
        checks.refuse("username", "You are no administrator of the cluster any more.")
    return found
