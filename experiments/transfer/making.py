"""Makes a new project of an archive that has been checked: its code and files first, then its rows. Journals are read afterwards
(`importing`), by the same way as those of runs that train here.

Rows are made in pieces, a transaction each, so that other people's writes come in between. The project is there for nobody until the last
one; an attempt that is killed before leaves what `pieces.unmake` removes.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from django.db import transaction

from experiments.definitions import required_packages
from experiments.files import bundles, modelstore, runfiles
from experiments.models import (
    Bundle,
    DataAsset,
    DataSeries,
    DefinitionVersion,
    EnvironmentVariable,
    Experiment,
    ExperimentDefinition,
    JournalCursor,
    NamedVersion,
    Project,
    ProjectImport,
    RunComment,
    SavedView,
    TrainingDefinition,
    TrainingRun,
)
from experiments.runs import run_values, states
from experiments.services import checks, projects
from experiments.services.searches import recall_search
from experiments.transfer import facts, files, format, model_rows, pieces, reading, search_facts
from experiments.transfer.format import Manifest, TransferRefused, Version

MOST_NOTES, NOTE_LIMIT = 200, 1000
NAMED, STUDIO, OWN = (DefinitionVersion.Packages(each).value for each in ("named", "studio", "own"))


@dataclass(frozen=True)
class _Code:
    """A version's code, and what its runs find installed, here: fields of its row."""

    bundle: Bundle
    fields: dict[str, Any]


@dataclass
class _Making:
    """The rows so far, by what the archive calls them; `notes`: what is not as it was, a sentence each."""

    order: ProjectImport
    top: Path
    found: Manifest
    now: dt.datetime
    notes: list[str] = field(default_factory=list)
    code: dict[tuple[int, int], _Code] = field(default_factory=dict)
    versions: dict[tuple[int, int], DefinitionVersion] = field(default_factory=dict)
    data: dict[int, DataAsset] = field(default_factory=dict)
    experiments: dict[int, Experiment] = field(default_factory=dict)
    bundles: dict[str, Bundle] = field(default_factory=dict)  # of versions of models, by hash


def project(order: ProjectImport, top: Path, found: Manifest, *, now: dt.datetime) -> Project:
    """The project, which its importer administers. `top`: where the archive is unpacked. Raises TransferRefused, OSError; then there may be
    rows (`pieces.unmake`) and files (`files.take_back`)."""
    making = _Making(order, top, found, now)
    _keep_code(making)
    _place_files(making)
    made = _begin(making)
    _definitions(making, made)
    _data(making, made)
    _experiments(making, made)
    numbers = _runs(making)
    with modelstore.files_stay(), _models_placed(making) as models, transaction.atomic():
        _views(making, made)
        _searches(making, numbers)
        for model in models:
            model_rows.make(model, made, by=order.created_by, runs=numbers, code=making.bundles, now=now)
        state, notes = ProjectImport.State.READING, _bounded([*_what_to_set_again(found), *making.notes])
        Project.every.filter(pk=made.pk).update(state=Project.State.HERE)
        ProjectImport.objects.filter(pk=order.pk).update(project=made, state=state, notes=notes)
        checks.audit(order.created_by, "imports project %s (%s) with %d runs", made.pk, made.name, len(found.runs))
    made.state = Project.State.HERE
    order.project, order.state, order.notes = made, state, notes
    return made


def _begin(making: _Making) -> Project:
    order, found = making.order, making.found
    with transaction.atomic():
        name, key = order.name or found.name, pieces.key_of(order)
        made = projects.create_project(by=order.created_by, name=name, description=found.description, idempotency_key=key)
        Project.every.filter(pk=made.pk).update(state=Project.State.ARRIVING)
        made.state = Project.State.ARRIVING
        _variables({"project": made}, found.variables, making)
    return made


@contextlib.contextmanager
def _models_placed(making: _Making) -> Iterator[list[format.Model]]:
    """The models, with their files in the store; taken out of it again where nothing comes of them."""
    placed: list[str] = []
    try:
        models = [reading.model(making.top, listed) for listed in making.found.models]
        for model in models:
            placed += files.place_model(making.top, model)
        yield models
    except BaseException:
        files.take_back_models(placed)
        raise


def _bounded(notes: list[str]) -> list[str]:
    """Most of them are the archive's words."""
    more = len(notes) - MOST_NOTES
    return [note[:NOTE_LIMIT] for note in notes[:MOST_NOTES]] + ([f"And {more:,} more."] if more > 0 else [])


def _what_to_set_again(found: Manifest) -> list[str]:
    of_definitions = ((f"the training definition {each.name}", each.secrets) for each in found.definitions)
    secrets = [(whose, names) for whose, names in (("the project", found.secrets), *of_definitions) if names]
    return [f"Set again the secrets of {whose}: {', '.join(names)}." for whose, names in secrets] + list(found.left_out)


def _keep_code(making: _Making) -> None:
    kept: dict[str, Bundle] = {}
    for definition in making.found.definitions:
        for version in definition.versions:
            who = f"{definition.name[:80]}, version {version.number}"
            try:
                if version.code not in kept:
                    with open(reading.code(making.top, version.code), "rb") as file:
                        needs_script = bundles.needs_script(version.command)
                        kept[version.code] = bundles.store_bundle(file, file_name=f"{version.code}.zip", needs_script=needs_script)
                bundle = kept[version.code]
                if version.command:
                    bundles.entry(bundle, version.command)
            except bundles.BundleRefused as refusal:
                raise TransferRefused(f"The training definition {who} cannot be kept here. {refusal}") from None
            making.code[definition.number, version.number] = _Code(bundle, _packages(making, bundle, version, who))
    for code in dict.fromkeys(code for listed in making.found.models for code in model_rows.codes(reading.model(making.top, listed))):
        try:
            with open(reading.code(making.top, code), "rb") as file:
                making.bundles[code] = kept.get(code) or bundles.store_bundle(file, file_name=f"{code}.zip", needs_script=False)
        except bundles.BundleRefused as refusal:
            raise TransferRefused(f"The code of a model cannot be kept here. {refusal}") from None
    for experiment in making.found.experiments:
        for part in experiment.parts:
            _check_command(making, experiment, part)


def _check_command(making: _Making, experiment: format.Experiment, part: format.Part) -> None:
    """As of an experiment that is made here: its runs are queued without another look."""
    code = making.code[part.definition, part.version]
    try:
        bundles.entry(code.bundle, experiment.global_command or part.command or code.fields["command"])
    except bundles.BundleRefused as refusal:
        raise TransferRefused(f"The experiment {experiment.name[:80]} cannot be run here. {refusal}") from None


def _packages(making: _Making, bundle: Bundle, version: Version, who: str) -> dict[str, Any]:
    """What is required is read from the code again: the archive's word would count for everybody whose code requires the same."""
    command = {"command": version.command.strip()}
    if version.packages == NAMED:
        named = _offered(version)
        if named is not None:
            of_named = {"requirements": named.requirements, "requirements_key": named.requirements_key}
            return {**command, "packages": NAMED, "named": named, **of_named}
        making.notes.append(
            f"{who} ran in the environment {version.named[:100]}, which is not offered here: it gets what its code requires."
        )
    if version.packages == STUDIO:
        return {**command, "packages": STUDIO}
    try:
        text, key = required_packages.of_bundle(bundle, version.command)
    except bundles.BundleRefused as refusal:
        making.notes.append(f"{who} gets the studio's packages alone: {refusal}")
        return {**command, "packages": STUDIO}
    return {**command, "packages": OWN, "requirements": text, "requirements_key": key}


def _offered(version: Version) -> NamedVersion | None:
    """The same environment, where it is offered here too."""
    alike = NamedVersion.objects.filter(requirements=version.requirements, environment__retired_at=None).select_related("environment")
    return next((each for each in alike.order_by("-pk")[:100] if str(each) == version.named), None)


def _place_files(making: _Making) -> None:
    for listed in making.found.data:
        asset = reading.data(making.top, listed)
        files.place_data(making.top, asset.files, key=files.key_of_data(making.order.key, asset.number))
    for listed in making.found.runs:
        run = reading.run(making.top, listed)
        files.place_run(making.top, run.files, folder=files.folder_of_run(making.order.key, run.number))


def _variables(owner: dict[str, Any], found: tuple[format.Variable, ...], making: _Making) -> None:
    by = making.order.created_by
    EnvironmentVariable.objects.bulk_create(
        EnvironmentVariable(**owner, name=each.name, value=each.value, set_by=by, set_at=making.now) for each in found
    )


def _definitions(making: _Making, project: Project) -> None:
    for some in pieces.in_pieces(making.found.definitions):
        with transaction.atomic():
            for each in some:
                _definition(making, project, each)


def _definition(making: _Making, project: Project, each: format.Definition) -> None:
    by = making.order.created_by
    row = TrainingDefinition.objects.create(project=project, created_by=by, **facts.of_definition(each, now=making.now))
    TrainingDefinition.objects.filter(pk=row.pk).update(created_at=facts.at(each.at))
    _variables({"definition": row}, each.variables, making)
    for version in each.versions:
        code = making.code[each.number, version.number]
        said = {**facts.of_version(each, version, now=making.now), **code.fields}
        made = DefinitionVersion.objects.create(definition=row, bundle=code.bundle, created_by=by, **said)
        DefinitionVersion.objects.filter(pk=made.pk).update(created_at=facts.at(version.at))
        making.versions[each.number, version.number] = made


def _data(making: _Making, project: Project) -> None:
    sets: dict[int, DataSeries] = {}
    for some in pieces.in_pieces(making.found.data):
        assets = [reading.data(making.top, listed) for listed in some]
        with transaction.atomic():
            for asset in assets:
                _asset(making, project, asset, sets)


def _asset(making: _Making, project: Project, asset: format.Data, sets: dict[int, DataSeries]) -> None:
    of_set = sets.get(asset.series) if asset.series is not None else None
    series = of_set or DataSeries(project=project)
    series.last_version = max(series.last_version, facts.last_version(asset))
    series.save()
    if asset.series is not None:
        sets[asset.series] = series
    of_project = {"project": project, "series": series, "sha256": _vouched(asset), "created_by": making.order.created_by}
    key, said = files.key_of_data(making.order.key, asset.number), facts.of_data(asset, now=making.now)
    row = DataAsset.objects.create(key=key, **of_project, **said)
    DataAsset.objects.filter(pk=row.pk).update(created_at=facts.at(asset.at))
    making.data[asset.number] = row


def _experiments(making: _Making, project: Project) -> None:
    for some in pieces.in_pieces(making.found.experiments):
        with transaction.atomic():
            for each in some:
                _experiment(making, project, each)


def _experiment(making: _Making, project: Project, each: format.Experiment) -> None:
    by = making.order.created_by
    data = making.data[each.data] if each.data is not None else None
    made = Experiment.objects.create(project=project, data_asset=data, created_by=by, **facts.of_experiment(each, now=making.now))
    Experiment.objects.filter(pk=made.pk).update(created_at=facts.at(each.at))
    making.experiments[each.number] = made
    ExperimentDefinition.objects.bulk_create(
        ExperimentDefinition(experiment=made, version=making.versions[part.definition, part.version], position=place, command=part.command)
        for place, part in enumerate(each.parts)
    )


def _views(making: _Making, project: Project) -> None:
    SavedView.objects.bulk_create(
        SavedView(
            project=project,
            experiment=making.experiments[each.experiment] if each.experiment is not None else None,
            saved_by=making.order.created_by,
            **fields,
        )
        for each, fields in zip(making.found.views, facts.of_views(making.found, now=making.now), strict=True)
    )


def _vouched(asset: format.Data) -> str:
    """As of an upload: of its one file, else of the list of all with their hashes."""
    if len(asset.files) == 1:
        return asset.files[0].sha256
    return hashlib.sha256("".join(f"{file.sha256}  {file.path}\n" for file in asset.files).encode()).hexdigest()


def _runs(making: _Making) -> dict[int, int]:
    """Their numbers here, by those of the archive."""
    numbers: dict[int, int] = {}
    there = facts.known(making.found, now=making.now)
    for listed in pieces.in_pieces(making.found.runs):
        some = [reading.run(making.top, each) for each in listed]
        with transaction.atomic():
            _some_runs(making, some, there, numbers)
        runfiles.remember(max(numbers.values()))
    return numbers


def _some_runs(making: _Making, some: list[format.Run], there: facts.Known, numbers: dict[int, int]) -> None:
    rows = TrainingRun.objects.bulk_create(_row(making, run, there) for run in some)
    numbers |= {run.number: row.pk for run, row in zip(some, rows, strict=True)}
    run_values.begin(rows)
    JournalCursor.objects.bulk_create(JournalCursor(run=row, lines_of=run.lines_of) for run, row in zip(some, rows, strict=True))
    states.recall((row, [*facts.of_history(run, now=making.now), _came(making, run)]) for run, row in zip(some, rows, strict=True))
    for run, row in zip(some, rows, strict=True):
        RunComment.objects.bulk_create(RunComment(run=row, **fields) for fields in facts.of_comments(run, now=making.now))
        others = {name: numbers.get(getattr(run, name), row.pk) for name in ("continues", "reproduces")}
        if older := {name: other for name, other in others.items() if other < row.pk}:
            TrainingRun.objects.filter(pk=row.pk).update(**older)


def _searches(making: _Making, numbers: dict[int, int]) -> None:
    """Without the trials whose runs did not travel."""
    for each in making.found.searches:
        experiment = making.experiments[each.experiment]
        said = search_facts.of_search(each, called=experiment.name, now=making.now)
        trials = [
            {"run_id": numbers[trial.run], **search_facts.of_trial(trial, who=experiment.name)}
            for trial in each.trials
            if trial.run in numbers
        ]
        recall_search(experiment, said, trials)


def _row(making: _Making, run: format.Run, there: facts.Known) -> TrainingRun:
    return TrainingRun(
        experiment=making.experiments[run.experiment],
        version=making.versions[run.definition, run.version],
        folder=files.folder_of_run(making.order.key, run.number),
        submitted_by=making.order.created_by,
        **facts.of_run(run, there),
    )


def _came(making: _Making, run: format.Run) -> states.Past:
    by, whence = making.order.created_by.username, making.found.name
    words = f"Imported by {by} from the project {whence}, where {run.by[:150]} had submitted it as run {run.number}."
    return states.Past(making.now, run.state, run.state, words)
