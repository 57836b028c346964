"""The arguments and tags of runs as rows, which tables of runs are found, sorted and grouped by, and the columns that an experiment has.
The only writer of both. Called in the transaction that stores what they come from.

An argument is what the run was given as config.json, as a search varies it; else what the script's own parser made of it, where the run
has noted that; else what the command says; else a parameter that the script logs. Names are plain: as argparse calls them, "--batch-size"
is batch_size.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping

from experiments.definitions.arguments import arguments, plain_name, together
from experiments.models import LoggedFacts, RunColumn, RunValue, TrainingRun
from experiments.models.run_values import NAME_LIMIT
from training_runtime.variables import CONFIG_JSON

TEXT_LIMIT = 500
MOST_VALUES = 500  # arguments of a run
AT_ONCE = 500
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
K = RunValue.Kind


def number_of(text: str) -> float | None:
    """The finite number that the text stands for, or None."""
    if not NUMBER.fullmatch(text) or not text.isascii():
        return None
    found = float(text)
    return found if math.isfinite(found) else None


def arguments_of(command: str, parsed: Mapping[str, str], logged: Mapping[str, str]) -> dict[str, str]:
    """Pure: the run's arguments by their plain names."""
    given = arguments(command)
    if parsed:
        given = {name: value for name, value in given.items() if len(name) > 1}  # "-l" is one of the names that its parser has said
    found = {plain_name(each.name): each.value for each in together((), given, parsed)}
    values = {**logged, **found}
    kept = [(name, value[:TEXT_LIMIT].replace("\0", "")) for name, value in values.items() if name and len(name) <= NAME_LIMIT]
    return dict(kept[:MOST_VALUES])


def configured(environment: Mapping[str, str]) -> dict[str, str]:
    """What the run finds in its config.json, where a variable says that; of values that are no text, number or truth nothing."""
    try:
        found = json.loads(environment.get(CONFIG_JSON, "{}"))
    except (ValueError, RecursionError):
        return {}
    values = found.items() if isinstance(found, dict) else ()
    kept = [(name, str(value)) for name, value in values if isinstance(value, str | int | float) and name and len(name) <= NAME_LIMIT]
    return {name: text[:TEXT_LIMIT].replace("\0", "") for name, text in kept[:MOST_VALUES] if "\0" not in name}


def begin(runs: Iterable[TrainingRun]) -> None:
    """The values of runs that have just been made."""
    for run in runs:
        keep_arguments(run, None)
        if run.tags:
            keep_tags(run)


def keep_arguments(run: TrainingRun, facts: LoggedFacts | None) -> None:
    """Replace the stored arguments of the run by what is known now."""
    said = arguments_of(run.command, facts.arguments if facts else {}, facts.parameters if facts else {})
    values = said | configured(run.environment)
    _store_values(run, K.ARGUMENT, values)
    _keep_columns(run.experiment_id, [(RunColumn.Kind.ARGUMENT.value, name, text) for name, text in values.items()])


def keep_tags(run: TrainingRun) -> None:
    _store_values(run, K.TAG, dict.fromkeys(run.tags, ""))


def keep_curves(run: TrainingRun, names: Iterable[tuple[str, str]]) -> None:
    """Add columns for curves, by group and name, that the run did not have before."""
    _keep_columns(run.experiment_id, [(group, name, "") for group, name in names])


def _store_values(run: TrainingRun, kind: str, values: Mapping[str, str]) -> None:
    known = dict(RunValue.objects.filter(run=run, kind=kind).values_list("name", "text"))
    if gone := known.keys() - values.keys():
        RunValue.objects.filter(run=run, kind=kind, name__in=gone).delete()
    changed = [(name, text) for name, text in values.items() if known.get(name) != text]
    RunValue.objects.bulk_create(
        (RunValue(run=run, kind=kind, name=name, text=text, number=number_of(text)) for name, text in changed),
        batch_size=AT_ONCE,
        update_conflicts=True,
        unique_fields=["run", "kind", "name"],
        update_fields=["text", "number"],
    )


def _keep_columns(experiment: int, found: Iterable[tuple[str, str, str]]) -> None:
    """Of (kind, name, value). In one order, new ones first: others may be writing the same ones, and wait here to the end of this
    transaction."""
    wanted = {(kind, name): text for kind, name, text in found}
    if not wanted:
        return
    names = list({name for _, name in wanted})
    there = RunColumn.objects.filter(experiment=experiment, name__in=names)
    known = {(one.kind, one.name): one for one in there}
    RunColumn.objects.bulk_create(
        (
            RunColumn(experiment_id=experiment, kind=kind, name=name, first=wanted[kind, name])
            for kind, name in sorted(wanted.keys() - known)
        ),
        batch_size=AT_ONCE,
        ignore_conflicts=True,
    )
    differ = sorted(one.pk for key, one in known.items() if key in wanted and not one.varies and one.first != wanted[key])
    for number in differ:
        RunColumn.objects.filter(pk=number).update(varies=True)
