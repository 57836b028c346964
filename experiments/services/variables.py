"""Verbs on the environment variables of projects and training definitions. Of a secret nobody is told the value again."""

from __future__ import annotations

import datetime as dt
from typing import Any

from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from experiments.definitions import variables
from experiments.live import notify
from experiments.models import EnvironmentVariable, Project, TrainingDefinition, User
from experiments.services import checks
from training_runtime.variables import refusal_to_hide, refusal_to_keep

VALUE_LIMIT = 16_000


def set_variable(
    of: Project | TrainingDefinition, *, by: User, name: str, value: str, secret: bool, now: dt.datetime | None = None
) -> EnvironmentVariable:
    """A new one, or a new value for that of this name. Fields: name, value. Runs that start from now on get it."""
    name, value = name.strip(), _clean(value)
    if len(value) > VALUE_LIMIT:
        checks.refuse("value", f"The value has {len(value)} characters: at most {VALUE_LIMIT} are taken.")
    if refusal := refusal_to_keep(name, value, secret=secret):
        checks.refuse("name", refusal)
    if secret and (refusal := refusal_to_hide(value)):
        checks.refuse("value", refusal)
    owner = _owner(of)
    with transaction.atomic():
        _lock(of)
        _check_room(EnvironmentVariable.objects.filter(**owner).exclude(name=name), more=len(name) + len(value))
        facts = {"secret": secret, "value": variables.encrypt(value) if secret else value, "set_by": by, "set_at": now or timezone.now()}
        variable, _ = EnvironmentVariable.objects.update_or_create(defaults=facts, name=name, **owner)
        _tell(of, by, f"sets the {'secret' if secret else 'variable'} {name}")
    return variable


def delete_variable(of: Project | TrainingDefinition, *, by: User, name: str) -> None:
    """Harmless where there is none of this name."""
    with transaction.atomic():
        _lock(of)
        if EnvironmentVariable.objects.filter(**_owner(of), name=name).delete()[0]:
            _tell(of, by, f"deletes the variable {name}")


def copy(source: TrainingDefinition, to: TrainingDefinition) -> None:
    """The plain ones, to a copy that was just made."""
    for variable in source.variables.filter(secret=False):
        EnvironmentVariable.objects.create(
            definition=to, name=variable.name, value=variable.value, set_by=variable.set_by, set_at=variable.set_at
        )


def _clean(value: str) -> str:
    """As it was typed: browsers write the ends of lines in their own way. One line has no white space around it, which comes by pasting."""
    lines = value.replace("\r\n", "\n").replace("\r", "\n")
    return lines if "\n" in lines.strip() else lines.strip()


def _check_room(others: QuerySet[EnvironmentVariable], *, more: int) -> None:
    """Of a secret what is stored counts, which is a third longer."""
    found = list(others.values_list("name", "value"))
    if len(found) >= checks.MOST_VARIABLES:
        checks.refuse("name", f"There are {len(found)} variables already, and more are not possible: delete some.")
    if more + sum(len(name) + len(value) for name, value in found) > checks.MOST_VARIABLES_CHARACTERS:
        checks.refuse("value", f"Together they would be too long: at most {checks.MOST_VARIABLES_CHARACTERS} characters in all are taken.")


def _owner(of: Project | TrainingDefinition) -> dict[str, Any]:
    return {"project" if isinstance(of, Project) else "definition": of}


def _lock(of: Project | TrainingDefinition) -> None:
    """One after the other, so that together they stay within their limits."""
    type(of)._default_manager.select_for_update().get(pk=of.pk)


def _tell(of: Project | TrainingDefinition, by: User, what: str) -> None:
    checks.audit(by, f"{what} of {'project' if isinstance(of, Project) else 'training definition'} %s", of.pk)
    notify.changed(f"project-{of.pk if isinstance(of, Project) else of.project_id}", "variables")
