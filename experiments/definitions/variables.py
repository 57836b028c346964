"""Environment variables of projects and training definitions, as their runs get them; secrets are encrypted as long as they are stored.

The definition's win over the project's, and what an experiment or a submission gives over both. A run keeps the plain ones that it was made
with, as all that its results depend on; the values of secrets are looked up each time that it starts, so that one that was renewed holds
from then on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from django.conf import settings
from django.db.models import Q

from experiments.accounts import sealed
from experiments.models import EnvironmentVariable, TrainingDefinition, TrainingRun

_PURPOSE = "values of secret environment variables"
Owner = tuple[str, int]  # "project" or "definition", and its number


class Unreadable(Exception):
    """A secret was encrypted with another key. The message says what to do."""


def encrypt(value: str) -> str:
    return sealed.seal(value, purpose=_PURPOSE)


def decrypt(variable: EnvironmentVariable) -> str:
    """Raises Unreadable."""
    try:
        return sealed.unseal(variable.value, purpose=_PURPOSE)
    except sealed.Unreadable:
        raise Unreadable(
            f"The secret {variable.name} was saved with another key than {settings.EDT_HOME}/secrets/secret_key on node "
            f"{settings.EDT_NODE}: put the studio's key there, or save the secret anew, and run it again."
        ) from None


def plain(definition: TrainingDefinition, given: Mapping[str, str]) -> dict[str, str]:
    """Those that a run which is made now keeps; `given`: by its experiment."""
    found = EnvironmentVariable.objects.filter(Q(project=definition.project_id) | Q(definition=definition.pk))
    by_name = {variable.name: variable for variable in sorted(found, key=lambda variable: variable.definition_id is not None)}
    return {name: variable.value for name, variable in by_name.items() if not variable.secret} | dict(given)


class Secrets:
    """Those of some runs, read at once. `of` raises Unreadable."""

    def __init__(self, runs: Iterable[TrainingRun]) -> None:
        runs = list(runs)
        owned = Q(project__in={run.experiment.project_id for run in runs}) | Q(definition__in={run.version.definition_id for run in runs})
        self._of: dict[Owner, list[EnvironmentVariable]] = {}
        for each in EnvironmentVariable.objects.filter(owned, secret=True) if runs else ():
            owner = ("definition", each.definition_id) if each.definition_id else ("project", each.project_id or 0)
            self._of.setdefault(owner, []).append(each)
        self._values: dict[int, str] = {}

    def variables(self, run: TrainingRun) -> dict[str, EnvironmentVariable]:
        """By name. What the run keeps under the same name was given to it nearer by."""
        owners = (("project", run.experiment.project_id), ("definition", run.version.definition_id))
        return {each.name: each for owner in owners for each in self._of.get(owner, ()) if each.name not in run.environment}

    def of(self, run: TrainingRun) -> dict[str, str]:
        return {name: self._value(each) for name, each in self.variables(run).items()}

    def readable_of(self, run: TrainingRun) -> dict[str, str]:
        """Without those that cannot be read."""
        found = {}
        for name, each in self.variables(run).items():
            try:
                found[name] = self._value(each)
            except Unreadable:
                continue
        return found

    def _value(self, variable: EnvironmentVariable) -> str:
        if variable.pk not in self._values:
            self._values[variable.pk] = decrypt(variable)
        return self._values[variable.pk]
