"""Imports ahead what a process of a run has imported, as it would have found it there."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterable

from training_runtime.imported import SetBefore


class CannotImport(Exception):
    """Code of a package has raised something, whatever that was."""


def import_all(names: Iterable[str], variables: Iterable[SetBefore]) -> None:
    """In this order. Each finds the variables that were set before it; what the script has set of them it has to set itself, so that is
    taken back, and what packages have set stays. Raises CannotImport."""
    due: dict[str, list[SetBefore]] = {}
    for each in variables:
        due.setdefault(each.before, []).append(each)
    were: dict[str, str | None] = {}
    for name in names:
        try:
            for each in due.get(name, ()):
                if os.environ.get(each.name) != each.value:
                    were.setdefault(each.name, os.environ.get(each.name))
                    set_variable(each.name, each.value)
            if name not in sys.modules:
                _import(name)
        except BaseException as error:
            raise CannotImport(f"{name} cannot be imported: {type(error).__name__}: {str(error)[:300]}") from None
    for variable, value in were.items():
        set_variable(variable, value)


def set_variable(name: str, value: str | None) -> None:
    """None: it is not there."""
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value


def _import(name: str) -> None:
    """Or nothing where it is a name that another module gets as well, as Transformers gives some: a run that wants it has it so again."""
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
