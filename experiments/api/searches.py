"""Searches for hyperparameters: beginning one, how the one of an experiment stands, and ending it."""

from __future__ import annotations

import datetime as dt
from typing import Literal

from django.http import HttpRequest
from django.utils import timezone
from ninja import Router, Schema
from ninja.responses import Status

from experiments import access
from experiments.api.auth import person
from experiments.api.checkpoints import CheckpointPolicy
from experiments.api.experiments import ALL, Id, version_of
from experiments.api.problems import Refused
from experiments.api.requests import idempotency_key
from experiments.api.schemas import Body, page_of
from experiments.files.checkpoint_policy import Policy
from experiments.models import Experiment, SearchTrial
from experiments.models import Search as Row
from experiments.searches.studio_spec import USUAL_AT_ONCE, USUAL_TRIALS
from experiments.selectors import searches
from experiments.selectors.searches import SearchFacts
from experiments.services import searches as verbs

router = Router(tags=["experiments"])
NONE = "This experiment is no search for hyperparameters."


class NewSearch(Body):
    """Runs of one version, `version` or the newest of `definition`, in an experiment of their own.

    `parameters`: by the name of an argument a list of values, or a text: "0.0001..0.1 log", "1..4", "0..0.5 step 0.1" or "16, 32, 64".
    `metric`: a curve as its chart names it, "test loss"; a trial's result is the best value of it. `trials`: how many runs there are to be,
    `at_once`: how many of them at a time. `early_stop`: runs are ended whose metric is worse than half of the others had at the same
    epoch."""

    name: str
    description: str = ""
    definition: Id | None = None
    version: Id | None = None
    command: str = ""
    parameters: dict[str, str | list[str | int | float]]
    metric: str
    goal: Literal["minimize", "maximize"] = "minimize"
    method: Literal["tpe", "random"] = "tpe"
    trials: int = USUAL_TRIALS
    at_once: int = USUAL_AT_ONCE
    early_stop: bool = False
    data: Id | None = None
    source_folder: str = ""
    environment: dict[str, str] = {}
    checkpoints: CheckpointPolicy = ALL


class Trial(Schema):
    """`ended`: its run has ended and was looked at; `result`: of the search's metric, null where it came to none or runs; `ended_early`: it
    fell behind."""

    run: int
    values: dict[str, float | int | str]
    ended: bool
    result: float | None
    ended_early: bool


class Search(Schema):
    """`most`: trials that there will be, if nothing ends it before; `best`: null while no trial has come to a result."""

    experiment: int
    name: str
    url: str
    algorithm: str
    parameters: dict[str, str]
    metric: str
    objective: Literal["minimize", "maximize"]
    state: Row.State
    reason: str
    created_at: dt.datetime
    ended_at: dt.datetime | None
    ended: int
    most: int
    best: Trial | None
    trials: list[Trial]


def _trial(trial: SearchTrial) -> Trial:
    return Trial(run=trial.run_id, values=trial.values, ended=trial.settled, result=trial.result, ended_early=trial.ended_early)


def _search(request: HttpRequest, found: SearchFacts) -> Search:
    search = found.search
    return Search(
        experiment=search.experiment_id,
        name=search.experiment.name,
        url=page_of(request, "experiment", search.experiment_id),
        algorithm=found.wanted.algorithm,
        parameters=found.parameters,
        metric=found.wanted.metric,
        objective="maximize" if found.wanted.maximize else "minimize",
        state=Row.State(search.state),
        reason=search.reason,
        created_at=search.created_at,
        ended_at=search.ended_at,
        ended=found.ended,
        most=found.most,
        best=_trial(found.best) if found.best else None,
        trials=[_trial(each) for each in found.trials],
    )


def _of(experiment: Experiment) -> SearchFacts:
    found = searches.of_experiment(experiment)
    if found is None:
        raise Refused(404, NONE)
    return found


@router.post("/projects/{int:project}/searches", response={201: Search})
def make_search(request: HttpRequest, project: int, body: NewSearch) -> Status[Search]:
    """A search for the best values of arguments is begun, with its first trial."""
    user = person(request)
    found = access.project(user, project, need="write")
    made = verbs.create_search(
        found,
        by=user,
        spec=body.model_dump(include={"parameters", "metric", "goal", "method", "trials", "at_once", "early_stop"}),
        version=version_of(user, definition=body.definition, version=body.version),
        command=body.command,
        name=body.name,
        description=body.description,
        source_folder=body.source_folder,
        data_asset=access.data_asset(user, body.data) if body.data is not None else None,
        environment=body.environment,
        keeps=Policy(**body.checkpoints.model_dump()),
        idempotency_key=idempotency_key(request),
        now=timezone.now(),
    )
    return Status(201, _search(request, searches.facts(made)))


@router.get("/experiments/{int:experiment}/search", response=Search, operation_id="search_of_experiment")
def search_of_experiment(request: HttpRequest, experiment: int) -> Search:
    """How its search for hyperparameters stands, where it is one."""
    return _search(request, _of(access.experiment(person(request), experiment)))


@router.post("/experiments/{int:experiment}/search/stop", response=Search, operation_id="stop_search")
def stop_search(request: HttpRequest, experiment: int) -> Search:
    """Nothing more is tried, and trials that run are stopped. Harmless on one that is over."""
    user = person(request)
    found = _of(access.experiment(user, experiment, need="write"))
    verbs.stop_search(found.search, by=user, now=timezone.now())
    found.search.refresh_from_db()
    return _search(request, searches.facts(found.search))
