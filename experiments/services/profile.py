"""Verbs on what people set for themselves: how the pages look and what single keys do."""

from __future__ import annotations

from experiments.models import User


def choose_shortcuts(person: User, *, on: bool) -> None:
    """Whether single keys do something."""
    person.shortcuts = on
    person.save(update_fields=["shortcuts"])


def choose_theme(person: User, *, theme: str) -> None:
    """One of `User.Theme`, as a form has checked."""
    person.theme = theme
    person.save(update_fields=["theme"])
