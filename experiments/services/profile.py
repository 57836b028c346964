"""Verbs on what people set for themselves: how the pages look, what single keys do, and the end of their logins."""

from __future__ import annotations

from experiments.accounts import passwords, sessions
from experiments.models import User
from experiments.services import checks


def choose_shortcuts(person: User, *, on: bool) -> None:
    """Whether single keys do something."""
    person.shortcuts = on
    person.save(update_fields=["shortcuts"])


def log_out_everywhere(person: User) -> None:
    """In all browsers; whoever wants to stay logged in here logs in anew with `person`, as it is after this."""
    passwords.end_logins(person)
    checks.audit(person, "logs out everywhere")


def log_out_browser(person: User, name: str) -> None:
    """One of those of `sessions.browsers`, by its name there."""
    sessions.end(person, name)
    checks.audit(person, "logs out a browser elsewhere")


def choose_theme(person: User, *, theme: str) -> None:
    """One of `User.Theme`, as a form has checked."""
    person.theme = theme
    person.save(update_fields=["theme"])
