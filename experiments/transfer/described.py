"""What the database says of a project, in the words of its archive. Reads, and writes nothing."""

from __future__ import annotations

import datetime as dt
import json

from experiments.files.checkpoint_policy import policy_of
from experiments.models import (
    DataAsset,
    DefinitionVersion,
    Environment,
    JournalCursor,
    LoggedFacts,
    Project,
    RegisteredModel,
    RunComment,
    TrainingDefinition,
    TrainingRun,
)
from experiments.models import Experiment as ExperimentRow
from experiments.models import ModelVersion as ModelVersionRow
from experiments.models import Search as SearchRow
from experiments.transfer.experiment_format import Search, Trial, View
from experiments.transfer.format import (
    Change,
    Comment,
    Data,
    Definition,
    Experiment,
    File,
    Model,
    ModelVersion,
    Part,
    Run,
    Variable,
    Version,
)


def definitions(project: Project) -> tuple[Definition, ...]:
    found = project.definitions.select_related("created_by").order_by("pk")
    return tuple(_definition(each) for each in found)


def experiments(project: Project) -> tuple[Experiment, ...]:
    found = project.experiments.select_related("created_by").prefetch_related("parts__version").order_by("pk")
    return tuple(_experiment(each) for each in found)


def views(project: Project) -> tuple[View, ...]:
    """The project's; what a person has saved for themselves stays theirs."""
    found = project.saved_views.filter(person=None).select_related("saved_by").order_by("pk")
    return tuple(View(each.name, each.query, each.experiment_id, each.saved_by.username, each.saved_at.isoformat()) for each in found)


def searches(project: Project, *, now: dt.datetime) -> tuple[Search, ...]:
    """One that is not over ends here, as far as the archive is concerned; so do its trials that have ended."""
    found = SearchRow.objects.filter(experiment__project=project).prefetch_related("trials").order_by("pk")
    return tuple(_search(each, now) for each in found)


def _search(row: SearchRow, now: dt.datetime) -> Search:
    over = row.ended_at is not None
    return Search(
        experiment=row.experiment_id,
        spec=json.dumps(row.spec),
        at=row.created_at.isoformat(),
        ended_at=(row.ended_at or now).isoformat(),
        state=row.state if over else "stopped",  # type: ignore[arg-type]  # it is over
        reason=row.reason if over else "It went on when the project was exported.",
        trials=tuple(
            Trial(each.run_id, each.place, each.number, json.dumps(each.values), each.result, each.ended_early) for each in row.trials.all()
        ),
    )


def variables(of: Project | TrainingDefinition) -> tuple[tuple[Variable, ...], tuple[str, ...]]:
    """Those that everybody may see, and the names of the secrets."""
    found = list(of.variables.order_by("name"))
    return tuple(Variable(each.name, each.value) for each in found if not each.secret), tuple(each.name for each in found if each.secret)


def data(asset: DataAsset, files: tuple[File, ...]) -> Data:
    return Data(
        number=asset.pk,
        name=asset.name,
        description=asset.description,
        by=asset.created_by.username,
        at=asset.created_at.isoformat(),
        files=files,
        series=asset.series_id,
        version=asset.version,
        last_version=asset.series.last_version,
        note=asset.note,
    )


def model(row: RegisteredModel, versions: tuple[ModelVersion, ...]) -> Model:
    return Model(
        number=row.pk,
        name=row.name,
        note=row.note,
        tags=row.tags,
        last_number=row.last_number,
        by=row.created_by.username,
        at=row.created_at.isoformat(),
        aliases=dict(row.aliases.values_list("name", "version__number")),
        versions=versions,
    )


def model_version(row: ModelVersionRow, files: tuple[File, ...]) -> ModelVersion:
    return ModelVersion(
        number=row.number,
        run=row.run,
        path=row.path,
        code=row.code.sha256 if row.code is not None else "",
        lineage=json.dumps(row.lineage),
        left_out=tuple(row.left_out),
        note=row.note,
        tags=row.tags,
        by=row.created_by.username,
        at=row.created_at.isoformat(),
        files=files,
        made=tuple(file.path for file in row.files.all() if file.made),
    )


def code_of_models(project: Project) -> list[str]:
    """Hashes of the code of all versions of models."""
    found = ModelVersionRow.objects.filter(model__project=project, code__isnull=False).order_by("code")
    return list(found.values_list("code__sha256", flat=True).distinct())


def run(row: TrainingRun, files: tuple[File, ...], *, missing: tuple[str, ...]) -> Run:
    facts = getattr(row, "logged_facts", None) or LoggedFacts(run=row)
    comments = row.comments.filter(deleted_at=None).select_related("author")
    history = row.transitions.select_related("actor").order_by("at", "id")
    return Run(
        number=row.pk,
        lines_of=_called(row),
        name=row.name,
        experiment=row.experiment_id,
        definition=row.version.definition_id,
        version=row.version.number,
        outside=row.outside,
        by=row.submitted_by.username,
        submitted_at=row.submitted_at.isoformat(),
        started_at=row.started_at.isoformat() if row.started_at else None,
        ended_at=(row.ended_at or row.submitted_at).isoformat(),
        state=row.state,  # type: ignore[arg-type]  # it has ended
        state_reason=row.state_reason,
        command=row.command,
        data_folder=row.data_folder,
        environment=row.environment,
        position=row.position,
        continues=row.continues,
        tags=tuple(row.tags),
        note=row.note,
        priority=row.priority,
        min_slots=row.min_slots,
        max_slots=row.max_slots,
        stop_reason=row.stop_reason,
        attempt=row.attempt,
        exit_code=row.exit_code,
        error_message=row.error_message,
        error_traceback=row.error_traceback,
        parameters=facts.parameters,
        tagged=facts.tags,
        history=tuple(
            Change(each.at.isoformat(), each.old, each.new, each.reason, each.actor.username if each.actor else "") for each in history
        ),
        files=files,
        missing=missing,
        reproduces=row.reproduces,
        checkpoints=policy_of(row.checkpoints),
        comments=tuple(_comment(each) for each in comments),
    )


def _comment(row: RunComment) -> Comment:
    edited_at = row.edited_at.isoformat() if row.edited_at else None
    return Comment(row.author.username if row.author else row.imported_author, row.at.isoformat(), edited_at, row.text)


def _called(row: TrainingRun) -> int:
    """By the lines of its journal."""
    cursor: JournalCursor | None = getattr(row, "cursor", None)
    return row.pk if cursor is None or cursor.lines_of is None else cursor.lines_of


def _definition(row: TrainingDefinition) -> Definition:
    plain, secrets = variables(row)
    found = row.versions.select_related("bundle", "created_by", "named__environment").order_by("number")
    versions = tuple(_version(each) for each in found)
    return Definition(row.pk, row.name, row.description, row.created_by.username, row.created_at.isoformat(), versions, plain, secrets)


def _version(row: DefinitionVersion) -> Version:
    resolved = Environment.objects.filter(requirements_key=row.requirements_key).exclude(lock="") if row.requirements_key else ()
    return Version(
        number=row.number,
        code=row.bundle.sha256,
        file_name=row.file_name,
        framework=row.framework,
        command=row.command,
        device=row.device,
        distributed=row.distributed,
        max_slots=row.max_slots,
        packages=row.packages,  # type: ignore[arg-type]  # the choices of the field
        network=row.network,
        by=row.created_by.username,
        at=row.created_at.isoformat(),
        requirements=row.requirements,
        locks={each.base_words or each.base_key: each.lock for each in resolved},
        named=str(row.named) if row.named is not None else "",
        git_address=row.git_address,
        git_ref=row.git_ref,
        git_folder=row.git_folder,
        git_commit=row.git_commit,
    )


def _experiment(row: ExperimentRow) -> Experiment:
    parts = sorted(row.parts.all(), key=lambda part: part.position)
    return Experiment(
        number=row.pk,
        name=row.name,
        description=row.description,
        by=row.created_by.username,
        at=row.created_at.isoformat(),
        data=row.data_asset_id,
        source_folder=row.source_folder,
        global_command=row.global_command,
        environment=row.environment,
        checkpoints=policy_of(row.checkpoints),
        parts=tuple(Part(each.version.definition_id, each.version.number, each.command) for each in parts),
    )
