"""Run with changes: new runs in the experiment of another one, which may still run, with other arguments, slots or code."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from django.db import IntegrityError, transaction
from django.utils import timezone

from experiments.definitions.arguments import differing
from experiments.errors import DomainError
from experiments.files import bundles
from experiments.live import notify
from experiments.models import DefinitionVersion, JournalCursor, Project, TrainingRun, User
from experiments.models.definitions import MAX_SLOTS_LIMIT
from experiments.models.runs import RUN_NAME_LIMIT
from experiments.runs import run_values, states
from experiments.services import checks, grid, watches

OUTSIDE = "The run was logged from outside: the studio has no code of it to run."


@dataclass(frozen=True)
class Wishes:
    """What the runs are to have, all of it checked."""

    version: DefinitionVersion
    commands: Sequence[str]
    min_slots: int
    max_slots: int
    priority: int
    environment: Mapping[str, str]
    folder: str
    why: str


def run_with_changes(
    source: TrainingRun,
    *,
    by: User,
    commands: Sequence[str] = (),
    version: DefinitionVersion | None = None,
    min_slots: int | None = None,
    max_slots: int | None = None,
    priority: int | None = None,
    environment: Mapping[str, str] | None = None,
    name: str = "",
    why: str = "",
    idempotency_key: uuid.UUID | None = None,
    now: dt.datetime | None = None,
) -> list[TrainingRun]:
    """A queued run of the source's experiment and data for each of the commands, whatever has become of `source`.

    What is not given is as `source` has it; `version` is another one of its definition. `name`: of them, in place of one after what differs
    from the source. `why`: said beside who submitted them. The same request makes them once.
    Fields: command, version, min_slots, max_slots, priority, environment.
    """
    if source.outside:
        raise DomainError(OUTSIDE)
    chosen, environment = version or source.version, source.environment if environment is None else environment
    slots = (min_slots or source.min_slots, max_slots or source.max_slots)
    rank = source.priority if priority is None else priority
    wishes = _wishes(source, chosen, commands, slots, rank, environment, by=by, why=why or f"from run {source.pk} with changes")
    try:
        with transaction.atomic():
            if (before := _sent_before(source, by, idempotency_key)) is not None:
                return before
            Project.objects.select_for_update().get(pk=source.experiment.project_id)  # it is not deleted meanwhile (see delete_project)
            return _queue(source, wishes, name=name, by=by, idempotency_key=idempotency_key, now=now or timezone.now())
    except IntegrityError:
        if (before := _sent_before(source, by, idempotency_key)) is None:
            raise
        return before


def _wishes(
    source: TrainingRun,
    chosen: DefinitionVersion,
    commands: Sequence[str],
    slots: tuple[int, int],
    rank: int,
    environment: Mapping[str, str],
    *,
    by: User,
    why: str,
) -> Wishes:
    """What the new runs are to have, checked. DomainError with all that is wrong with it."""
    errors: list[DomainError] = []
    sizes = checks.each(errors, lambda: _slots(chosen, *slots))
    checks.each(errors, lambda: checks.whole(rank, field="priority", least=1, most=10_000))
    variables = checks.each(errors, lambda: checks.variables(environment))
    told = checks.each(errors, lambda: _commands(source, chosen, commands or [source.command], by=by))
    folder = checks.each(errors, lambda: checks.data_folder(source.data_folder, asset=source.experiment.data_asset, field="command"))
    checks.collected(errors)
    return Wishes(chosen, told or [], *(sizes or (1, 1)), rank, variables or {}, folder or "", why)


def check_rerun(
    source: TrainingRun,
    *,
    by: User,
    version: DefinitionVersion | None,
    commands: Sequence[str],
    min_slots: int | None,
    max_slots: int | None,
    environment: Mapping[str, str],
) -> None:
    """What `run_with_changes` would refuse of these wishes, all at once. Fields as there."""
    errors: list[DomainError] = []
    chosen = version or source.version
    checks.each(errors, lambda: _slots(chosen, min_slots or source.min_slots, max_slots or source.max_slots))
    checks.each(errors, lambda: checks.variables(environment))
    checks.each(errors, lambda: _commands(source, chosen, commands or [source.command], by=by))
    checks.collected(errors)


def _commands(source: TrainingRun, version: DefinitionVersion, commands: Sequence[str], *, by: User) -> list[str]:
    if version.definition_id != source.version.definition_id:
        checks.refuse("version", f"It is a version of another training definition: choose one of {source.version.definition.name}.")
    checks.network(version, project=source.experiment.project_id, field="version")
    checks.room(source.experiment.project, by=by, field="command")
    if len(commands) > grid.MOST_RUNS:
        checks.refuse("command", f"{len(commands)} runs are too many: at most {grid.MOST_RUNS} are made at once.")
    clean = [checks.text(command, field="command", limit=checks.COMMAND_LIMIT) for command in commands]
    for command in clean:
        try:
            bundles.check_type(command, version.distributed, begins=bundles.entry(version.bundle, command)[0])
        except bundles.BundleRefused as refusal:
            checks.refuse("command", str(refusal))
    return clean


def _slots(version: DefinitionVersion, least: int, most: int) -> tuple[int, int]:
    """Of a run that starts with all of its slots the greater number counts."""
    checks.whole(least, field="min_slots", least=1, most=MAX_SLOTS_LIMIT)
    checks.whole(most, field="max_slots", least=1, most=MAX_SLOTS_LIMIT)
    if version.is_fixed:
        checks.on_one_machine(most, device=version.device)
        return most, most
    if least > most:
        checks.refuse("min_slots", f"{least} is more than the maximum of {most}: lower it, or raise the maximum.")
    return least, most


def _queue(
    source: TrainingRun, wishes: Wishes, *, name: str, by: User, idempotency_key: uuid.UUID | None, now: dt.datetime
) -> list[TrainingRun]:
    made = []
    for place, (command, called) in enumerate(zip(wishes.commands, _names(source, wishes.commands), strict=True)):
        run = TrainingRun.objects.create(
            experiment=source.experiment,
            version=wishes.version,
            name=name[:RUN_NAME_LIMIT] or called,
            submitted_by=by,
            submitted_at=now,
            command=command,
            data_folder=wishes.folder,
            environment=dict(wishes.environment),
            min_slots=wishes.min_slots,
            max_slots=wishes.max_slots,
            checkpoints=source.checkpoints,
            any_kind=source.any_kind,
            priority=wishes.priority,
            priority_agreed=wishes.priority if by.administers else 0,
            idempotency_key=idempotency_key,
            position=source.position + place,
        )
        JournalCursor.objects.create(run=run)
        run_values.begin([run])
        states.begin(run, reason=f"Submitted by {by.username}, {wishes.why}.", now=now, actor=by)
        made.append(run)
    watches.inherit(made, experiment=source.experiment)
    notify.nudge_schedule()
    return made


def _names(source: TrainingRun, commands: Sequence[str]) -> list[str]:
    """After the experiment and the arguments that are not those of the source; its name where none is."""
    _, *differ = differing([source.command, *commands])
    said = [" ".join(f"{name}={value}" for name, value in told.items()) for told in differ]
    return [(f"{source.experiment.name}: {words}" if words else source.name)[:RUN_NAME_LIMIT] for words in said]


def _sent_before(source: TrainingRun, by: User, idempotency_key: uuid.UUID | None) -> list[TrainingRun] | None:
    """The runs that the same form started before, or None."""
    if idempotency_key is None:
        return None
    found = TrainingRun.objects.filter(experiment=source.experiment, submitted_by=by, idempotency_key=idempotency_key).select_related(
        "experiment"
    )
    return list(found.order_by("position")) or None
