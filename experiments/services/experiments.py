"""Verbs on experiments: make one, run it, delete it."""

from __future__ import annotations

import datetime as dt
import functools
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from django.db import IntegrityError, transaction
from django.utils import timezone

from experiments.definitions import variables
from experiments.definitions.arguments import differing
from experiments.errors import DomainError
from experiments.files import bundles
from experiments.files.checkpoint_policy import Policy, policy_of
from experiments.live import notify
from experiments.models import (
    DataAsset,
    DefinitionVersion,
    Experiment,
    ExperimentDefinition,
    ExperimentWatch,
    JournalCursor,
    Project,
    TrainingRun,
    User,
)
from experiments.models.runs import LIVE, RUN_NAME_LIMIT
from experiments.runs import run_values, states
from experiments.services import checkpoints, checks, deletion, watches

MAX_DEFINITIONS = 200


def create_experiment(
    project: Project,
    *,
    by: User,
    name: str,
    description: str = "",
    source_folder: str = "",
    data_asset: DataAsset | None = None,
    global_command: str = "",
    versions: Iterable[DefinitionVersion],
    commands: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    keeps: Policy | None = None,
    thresholds: Iterable[watches.Crossing] = (),
    idempotency_key: uuid.UUID | None = None,
) -> Experiment:
    """An experiment that runs these versions, in this order; the same version any number of times, with other commands.

    `commands`, in the order of the versions, replace their own ("": that is not replaced; none: all keep theirs); `global_command`, where
    given, replaces them all. `source_folder` is below `data_asset`
    where one is given, else below the shared data root. `environment`: variables for its runs. `thresholds`: what its maker wants to be
    told of in each of its runs. `keeps`: which checkpoints its runs keep. Fields: name, description, data_asset, source_folder,
    global_command, versions, environment, keep_last, keep_best, keep_metric, thresholds.
    """
    mine = Experiment.objects.filter(created_by=by, project=project)
    if (before := checks.same_request(mine, idempotency_key)) is not None:
        return before
    chosen = list(versions)
    sent = {"name": name, "description": description, "source_folder": source_folder, "global_command": global_command}
    said: dict[str, Any] = {**sent, "commands": commands, "environment": environment, "data_asset": data_asset}
    facts, wanted = _checked_experiment(project, chosen, said, keeps or Policy(), thresholds)
    made = {"project": project, "created_by": by, "idempotency_key": idempotency_key, **facts}
    parts = list(zip(chosen, _own_commands(chosen, commands), strict=True))
    try:
        return _make_experiment(made, parts, wanted)
    except IntegrityError:  # the same form at the same moment: the other was faster
        if (before := checks.same_request(mine, idempotency_key)) is None:
            raise
        return before


def _checked_experiment(
    project: Project, versions: list[DefinitionVersion], said: dict[str, Any], keeps: Policy, thresholds: Iterable[watches.Crossing]
) -> tuple[dict[str, Any], Iterable[Mapping[str, Any]]]:
    """The fields of an experiment, and of its thresholds. DomainError with all that is wrong with them."""
    errors: list[DomainError] = []
    wanted = checks.each(errors, lambda: watches.checked(thresholds))
    kept = checks.each(errors, lambda: checkpoints.checked(keeps)) or {}
    facts = checks.each(errors, lambda: check_experiment(project, versions=versions, **said))
    checks.collected(errors)
    return {"checkpoints": kept, **(facts or {})}, wanted or ()


def _make_experiment(
    facts: Mapping[str, Any], parts: Sequence[tuple[DefinitionVersion, str]], thresholds: Iterable[Mapping[str, Any]]
) -> Experiment:
    with transaction.atomic():
        experiment = Experiment.objects.create(**facts)
        ExperimentDefinition.objects.bulk_create(
            [
                ExperimentDefinition(experiment=experiment, version=version, position=place, command=command)
                for place, (version, command) in enumerate(parts)
            ]
        )
        ExperimentWatch.objects.bulk_create(
            [ExperimentWatch(experiment=experiment, person=experiment.created_by, **each) for each in thresholds]
        )
        notify.changed(f"project-{experiment.project_id}", "experiments")
    return experiment


def create_and_run(project: Project, *, by: User, idempotency_key: uuid.UUID | None = None, **said: Any) -> Experiment:
    """`create_experiment` and its first runs: both or nothing. Fields as there."""
    with transaction.atomic():
        # First of all, as whoever deletes it does: the rows of its experiments would else lock it in part, and two would wait in a circle.
        checks.hold_project(project.pk)
        experiment = create_experiment(project, by=by, idempotency_key=idempotency_key, **said)
        run_experiment(experiment, by=by, idempotency_key=idempotency_key)  # sent twice, it finds the runs of the first time
    return experiment


def check_experiment(
    project: Project,
    *,
    name: str,
    description: str,
    source_folder: str,
    data_asset: DataAsset | None,
    global_command: str,
    versions: Sequence[DefinitionVersion],
    commands: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> dict[str, object]:
    """The clean facts of such an experiment. Raises all that is wrong with it as one (fields as of `create_experiment`)."""
    errors: list[DomainError] = []
    facts: dict[str, object] = {
        "name": checks.each(errors, lambda: checks.name(name)),
        "description": checks.each(errors, lambda: checks.text(description)),
        "data_asset": data_asset,
        "environment": checks.each(errors, lambda: checks.variables(environment or {})),
    }
    if data_asset is not None and data_asset.project_id != project.pk:
        errors.append(DomainError({"data_asset": [f"{data_asset.name} belongs to another project: upload it to this one first."]}))
    else:
        facts["source_folder"] = checks.each(errors, lambda: checks.data_folder(source_folder, asset=data_asset))
    command = checks.each(errors, lambda: checks.text(global_command, field="global_command", limit=checks.COMMAND_LIMIT))
    checks.each(errors, lambda: _check_versions(project, versions, _own_commands(versions, commands), command or ""))
    checks.collected(errors)
    return {**facts, "global_command": command}


def check_command(project: Project, version: DefinitionVersion, command: str, *, global_command: str = "") -> None:
    """What `check_experiment` would refuse of one of its versions and its command. Fields: versions, global_command."""
    _check_version(project, version, command, global_command)


def _own_commands(versions: Sequence[DefinitionVersion], commands: Sequence[str]) -> list[str]:
    """What was given for each of the versions, where that is not its own command anyway."""
    given = [command.strip() for command in commands] or [""] * len(versions)
    return ["" if said == version.command else said for version, said in zip(versions, given, strict=True)]


def duplicate_experiment(experiment: Experiment, *, by: User, idempotency_key: uuid.UUID | None = None) -> Experiment:
    """The same again under another name, without running it. Of the thresholds, those of who duplicates it."""
    parts = list(experiment.parts.select_related("version__definition", "version__bundle"))
    return create_experiment(
        experiment.project,
        by=by,
        name=f"{experiment.name[: checks.NAME_LIMIT - 7]} (copy)",
        description=experiment.description,
        source_folder=experiment.source_folder,
        data_asset=experiment.data_asset,
        global_command=experiment.global_command,
        versions=[part.version for part in parts],
        commands=[part.command for part in parts],
        environment=experiment.environment,
        keeps=policy_of(experiment.checkpoints),
        thresholds=watches.crossings(experiment, of=by),
        idempotency_key=idempotency_key,
    )


def run_experiment(
    experiment: Experiment,
    *,
    by: User,
    trial: tuple[str, str] | None = None,
    idempotency_key: uuid.UUID | None = None,
    now: dt.datetime | None = None,
) -> list[TrainingRun]:
    """One queued run for each part of the experiment, in its order. Raises DomainError where it cannot run any more.

    `trial`: the command and the name of the run, of an experiment that is a search."""
    now = now or timezone.now()
    folder = checks.data_folder(experiment.source_folder, asset=experiment.data_asset)  # it may have gone since
    try:
        with transaction.atomic():
            if (before := _sent_before(experiment, by, idempotency_key)) is not None:
                return before
            checks.hold_project(experiment.project_id)
            parts = list(experiment.parts.select_related("version__definition", "version__bundle"))
            if not parts:
                raise DomainError(f"{experiment.name} has no training definitions to run: its runs were logged from outside.")
            checks.room(experiment.project, by=by)
            for part in parts:
                checks.network(part.version, project=experiment.project_id)
            told = [trial] if trial else zip([_command(experiment, part) for part in parts], _run_names(experiment, parts), strict=True)
            runs = [
                _queue(experiment, part, command=command, name=name, by=by, folder=folder, idempotency_key=idempotency_key, now=now)
                for part, (command, name) in zip(parts, told, strict=True)
            ]
            watches.inherit(runs, experiment=experiment)
            notify.nudge_schedule()
    except IntegrityError:
        if (before := _sent_before(experiment, by, idempotency_key)) is None:
            raise
        return before
    return runs


def delete_experiment(experiment: Experiment, *, by: User, now: dt.datetime | None = None) -> None:
    """With its runs and their files. Refused while one is live."""
    runs = TrainingRun.objects.filter(experiment=experiment)
    with transaction.atomic():
        Project.objects.select_for_update().get(pk=experiment.project_id)  # no run of it is started meanwhile
        if runs.filter(state__in=LIVE).exists():
            raise DomainError("A run of this experiment has not ended: stop it, then delete the experiment.")
        number, project = experiment.pk, experiment.project_id
        count = deletion.of_runs(runs, by=by, now=now or timezone.now())
        checks.audit(by, "deletes experiment %s (%s) with %d runs", experiment.pk, experiment.name, count)
        experiment.delete()
        notify.changed(f"experiment-{number}", "runs")
        notify.changed(f"project-{project}", "experiments", "runs")
        notify.changed("cluster", "jobs", "feed", "lanes")


def _run_names(experiment: Experiment, parts: Sequence[ExperimentDefinition]) -> list[str]:
    """After the experiment; of several by what tells them apart: the definition, and of a definition that is there several times the
    arguments that differ."""
    same: dict[int, list[ExperimentDefinition]] = {}
    for part in parts:
        same.setdefault(part.version.definition_id, []).append(part)
    said: dict[int, str] = {}
    for those in same.values():
        for part, told in zip(those, differing([_command(experiment, part) for part in those]), strict=True):
            differ = " ".join(f"{name}={value}" for name, value in told.items())
            words = [part.version.definition.name] if len(same) > 1 or (len(parts) > 1 and not differ) else []
            said[part.pk] = ", ".join([*words, *([differ] if differ else [])])
    return [(f"{experiment.name}: {said[part.pk]}" if said[part.pk] else experiment.name)[:RUN_NAME_LIMIT] for part in parts]


def _command(experiment: Experiment, part: ExperimentDefinition) -> str:
    return experiment.global_command or part.command or part.version.command


def _check_versions(project: Project, versions: Sequence[DefinitionVersion], own: Sequence[str], global_command: str) -> None:
    """Each is of the project, and has a command that names one of its scripts. Says of each what is wrong with it."""
    if not versions:
        checks.refuse("versions", "Choose at least one training definition.")
    if len(versions) > MAX_DEFINITIONS:
        checks.refuse("versions", f"{len(versions)} runs are too many: an experiment makes at most {MAX_DEFINITIONS} at a time.")
    errors: list[DomainError] = []
    for version, command in dict.fromkeys(zip(versions, own, strict=True)):  # what is there twice is said once
        checks.each(errors, functools.partial(_check_version, project, version, command, global_command))
    checks.collected(errors)


def _check_version(project: Project, version: DefinitionVersion, own: str, global_command: str) -> None:
    named = version.definition.name
    if version.definition.project_id != project.pk:
        checks.refuse("versions", f"{named} belongs to another project: add it to this one first.")
    checks.network(version, project=project.pk)
    command = global_command or checks.text(own, field="versions", limit=checks.COMMAND_LIMIT) or version.command
    if not command:
        checks.refuse("versions", f"{named} has no command of its own: give it one, as in main.py --epochs 5.")
    try:
        bundles.check_type(command, version.distributed, begins=bundles.entry(version.bundle, command)[0])
    except bundles.BundleRefused as refusal:
        checks.refuse("global_command" if global_command else "versions", f"{named}: {refusal}")


def _queue(
    experiment: Experiment,
    part: ExperimentDefinition,
    *,
    command: str,
    name: str,
    by: User,
    folder: str,
    idempotency_key: uuid.UUID | None,
    now: dt.datetime,
) -> TrainingRun:
    version = part.version
    run = TrainingRun.objects.create(
        experiment=experiment,
        version=version,
        name=name[:RUN_NAME_LIMIT],
        submitted_by=by,
        submitted_at=now,
        command=command,
        data_folder=folder,
        environment=variables.plain(version.definition, experiment.environment),
        min_slots=version.least_slots,
        max_slots=version.max_slots,
        checkpoints=experiment.checkpoints,
        idempotency_key=idempotency_key,
        position=part.position,
    )
    JournalCursor.objects.create(run=run)
    run_values.begin([run])
    states.begin(run, reason=f"Submitted by {by.username}.", now=now, actor=by)
    return run


def _sent_before(experiment: Experiment, by: User, idempotency_key: uuid.UUID | None) -> list[TrainingRun] | None:
    """The runs that the same form started before, or None."""
    if idempotency_key is None:
        return None
    found = TrainingRun.objects.filter(experiment=experiment, submitted_by=by, idempotency_key=idempotency_key).select_related("experiment")
    return list(found.order_by("position")) or None
