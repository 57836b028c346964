"""Experiments: groups of training definitions that are run together; running one makes a run of each."""

from __future__ import annotations

import datetime as dt
from typing import Annotated

from django.db.models import Prefetch
from django.http import HttpRequest
from django.utils import timezone
from ninja import Field, Router, Schema
from ninja.responses import Status

from experiments import access, services
from experiments.api.auth import person
from experiments.api.checkpoints import CheckpointPolicy
from experiments.api.paging import Page, PageParameters, newest, whole
from experiments.api.problems import Refused
from experiments.api.requests import idempotency_key
from experiments.api.runs import Run, run_responses
from experiments.api.runs import run_response as run_shown
from experiments.api.schemas import Body, page_of
from experiments.errors import DomainError
from experiments.files.checkpoint_policy import Policy, policy_of
from experiments.models import DataAsset, DefinitionVersion, ExperimentDefinition, TrainingRun, User
from experiments.models import Experiment as Row
from experiments.selectors import compare
from experiments.services import grid
from experiments.views.curves import finite

router = Router(tags=["experiments"])
PARTS = ExperimentDefinition.objects.select_related("version__definition").order_by("position")
ALL = CheckpointPolicy.model_validate({})
Id = Annotated[int, Field(ge=1, le=2**62)]
ONE_OF_THEM = "Name a definition, whose newest version is run, or a version: one of them."


class Part(Schema):
    """A version that it runs. `command`: "" where it is the version's own."""

    version: int
    definition: int
    name: str
    number: int
    command: str


class Experiment(Schema):
    """`source_folder`: below `data`, or below the data that everybody shares; `command`, where it is set, replaces its versions' own."""

    id: int
    project: int
    name: str
    description: str
    versions: list[Part]
    data: int | None
    source_folder: str
    command: str
    environment: dict[str, str]
    checkpoints: CheckpointPolicy
    created_by: str
    created_at: dt.datetime
    url: str


class NewPart(Body):
    """`grid`: values of its arguments by name, as in {"lr": ["0.1", "0.3"]}; a part is made for each combination, 100 at most. A version
    may be named several times."""

    version: Id
    command: str = ""
    grid: dict[str, list[str]] = {}


class NewExperiment(Body):
    """`run`: whether it is run at once."""

    name: str
    description: str = ""
    versions: list[NewPart] = Field(max_length=200)
    data: Id | None = None
    source_folder: str = ""
    command: str = ""
    environment: dict[str, str] = {}
    checkpoints: CheckpointPolicy = ALL
    run: bool = False


class NewRun(Body):
    """A run of one version in an experiment of its own: of `version`, or of the newest of `definition`."""

    definition: Id | None = None
    version: Id | None = None
    name: str = ""
    description: str = ""
    command: str = ""
    data: Id | None = None
    source_folder: str = ""
    environment: dict[str, str] = {}


class Fact(Schema):
    """One fact of each run, in their order; null: not there. `kind`: text, argument, metric, duration (seconds) or number."""

    name: str
    kind: str
    values: list[float | str | None]
    differs: bool


class Comparison(Schema):
    """`missing`: of the runs that were named those that there are not, or that are in projects which the caller may not open."""

    runs: list[Run]
    facts: list[Fact]
    missing: list[int] = []


def experiment_response(request: HttpRequest, row: Row) -> Experiment:
    known: list[ExperimentDefinition] | None = getattr(row, "all_parts", None)
    parts = known if known is not None else PARTS.filter(experiment=row)
    return Experiment(
        id=row.pk,
        project=row.project_id,
        name=row.name,
        description=row.description,
        versions=[
            Part(
                version=part.version_id,
                definition=part.version.definition_id,
                name=part.version.definition.name,
                number=part.version.number,
                command=part.command,
            )
            for part in parts
        ],
        data=row.data_asset_id,
        source_folder=row.source_folder,
        command=row.global_command,
        environment=row.environment,
        checkpoints=CheckpointPolicy(**vars(policy_of(row.checkpoints))),
        created_by=row.created_by.username,
        created_at=row.created_at,
        url=page_of(request, "experiment", row.pk),
    )


@router.get("/projects/{int:project}/experiments", response=Page[Experiment])
def experiments(request: HttpRequest, project: int, page: PageParameters) -> Page[Experiment]:
    found = access.project(person(request), project).experiments.select_related("created_by")
    found = found.prefetch_related(Prefetch("parts", PARTS, to_attr="all_parts"))  # of all in one question
    return newest(found, page, lambda row: experiment_response(request, row))


@router.post("/projects/{int:project}/experiments", response={201: Experiment})
def make_experiment(request: HttpRequest, project: int, body: NewExperiment) -> Status[Experiment]:
    user = person(request)
    found = access.project(user, project, need="write")
    parts = [(access.version(user, part.version), part) for part in body.versions]
    told = [(version, grid.combined(part.command or version.command, part.grid)) for version, part in parts]
    make = services.create_and_run if body.run else services.create_experiment
    made = make(
        found,
        by=user,
        name=body.name,
        description=body.description,
        source_folder=body.source_folder,
        data_asset=_data(user, body.data),
        global_command=body.command,
        versions=[version for version, commands in told for _ in commands],
        commands=[command for _, commands in told for command in commands],
        environment=body.environment,
        keeps=Policy(**body.checkpoints.model_dump()),
        idempotency_key=idempotency_key(request),
    )
    return Status(201, experiment_response(request, made))


def version_of(user: User, *, definition: int | None, version: int | None) -> DefinitionVersion:
    """What is named, or the newest of the definition. Raises Refused where not one of them is."""
    if (definition is None) == (version is None):
        raise Refused(400, ONE_OF_THEM, errors={"version": [ONE_OF_THEM]})
    return access.version(user, version) if version else access.definition(user, definition or 0).newest()


def _data(user: User, number: int | None) -> DataAsset | None:
    return access.data_asset(user, number) if number is not None else None


@router.get("/experiments/{int:experiment}", response=Experiment)
def experiment(request: HttpRequest, experiment: int) -> Experiment:
    return experiment_response(request, access.experiment(person(request), experiment))


@router.delete("/experiments/{int:experiment}", response={204: None})
def delete_experiment(request: HttpRequest, experiment: int) -> Status[None]:
    """With its runs and their files. Refused while one of them has not ended."""
    user = person(request)
    services.delete_experiment(access.experiment(user, experiment, need="write"), by=user)
    return Status(204, None)


@router.post("/experiments/{int:experiment}/duplicate", response={201: Experiment})
def duplicate_experiment(request: HttpRequest, experiment: int) -> Status[Experiment]:
    """The same again under another name, without running it."""
    user = person(request)
    found = access.experiment(user, experiment, need="write")
    return Status(
        201, experiment_response(request, services.duplicate_experiment(found, by=user, idempotency_key=idempotency_key(request)))
    )


@router.post("/experiments/{int:experiment}/runs", response={201: Page[Run]})
def run_experiment(request: HttpRequest, experiment: int) -> Status[Page[Run]]:
    """A run of each of its versions."""
    user = person(request)
    found = access.experiment(user, experiment, need="write")
    made = services.run_experiment(found, by=user, idempotency_key=idempotency_key(request))
    return Status(201, whole([run_shown(request, access.run(user, run.pk)) for run in made]))


@router.post("/projects/{int:project}/runs", response={201: Run})
def run_version(request: HttpRequest, project: int, body: NewRun) -> Status[Run]:
    """One version is run, in an experiment of its own."""
    user = person(request)
    found = access.project(user, project, need="write")
    version = version_of(user, definition=body.definition, version=body.version)
    said = timezone.localtime().strftime("%Y-%m-%d %H:%M")
    made = services.create_and_run(
        found,
        by=user,
        name=body.name or f"{version.definition.name} {said}"[:120],
        description=body.description,
        source_folder=body.source_folder,
        data_asset=_data(user, body.data),
        global_command="",
        versions=[version],
        commands=[body.command],
        environment=body.environment,
        idempotency_key=idempotency_key(request),
    )
    (run,) = made.runs.all()[:1]
    return Status(201, run_shown(request, access.run(user, run.pk)))


@router.get("/experiments/{int:experiment}/compare", response=Comparison)
def compare_of_experiment(request: HttpRequest, experiment: int, run: str = "") -> Comparison:
    """Its runs side by side. `run`: their numbers with commas between them; the newest that have begun where none are named."""
    user = person(request)
    found = access.experiment(user, experiment)
    if not run:
        return _compared(request, compare.chosen(compare.candidates(found)), [])
    runs, _ = access.runs(user, compare.numbers([run])[: compare.MOST_RUNS])
    chosen = [each for each in runs if each.experiment_id == found.pk]
    if not chosen:
        raise DomainError({"run": ["None of these is a run of the experiment."]})
    return _compared(request, chosen, [])


@router.get("/compare", response=Comparison)
def compare_runs(request: HttpRequest, run: str) -> Comparison:
    """Runs of any experiments and projects side by side. `run`: their numbers with commas between them, 100 at most."""
    numbers = compare.numbers([run])
    if not 0 < len(numbers) <= compare.MOST_RUNS:
        raise DomainError({"run": [f"Name 1 to {compare.MOST_RUNS} runs by their numbers, with commas between them."]})
    return _compared(request, *access.runs(person(request), numbers))


def _compared(request: HttpRequest, runs: list[TrainingRun], missing: list[int]) -> Comparison:
    rows = compare.table(runs, now=timezone.now())
    facts = [Fact(name=row.name, kind=row.kind, values=[_value(each) for each in row.values], differs=row.differs) for row in rows]
    return Comparison(runs=run_responses(request, runs), facts=facts, missing=missing)


def _value(value: object) -> float | str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, dt.timedelta):
        return value.total_seconds()
    return finite(float(value)) if isinstance(value, (int, float)) else str(value)
