"""Searches for hyperparameters: how the one of an experiment stands, and ending it. WMLA's interface begins them (experiments.wmla)."""

from __future__ import annotations

import datetime as dt
from typing import Literal

from django.http import HttpRequest
from django.utils import timezone
from ninja import Router, Schema

from experiments import access
from experiments.api.auth import person
from experiments.api.problems import Refused
from experiments.models import Experiment, SearchTrial
from experiments.models import Search as Row
from experiments.selectors import searches
from experiments.selectors.searches import SearchFacts
from experiments.services import searches as verbs

router = Router(tags=["experiments"])
NONE = "This experiment is no search for hyperparameters."


class Trial(Schema):
    """`ended`: its run has ended and was looked at; `result`: of the search's metric, null where it came to none or runs."""

    run: int
    values: dict[str, float | int | str]
    ended: bool
    result: float | None


class Search(Schema):
    """`most`: trials that there will be, if nothing ends it before; `best`: null while no trial has come to a result."""

    experiment: int
    algorithm: str
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
    return Trial(run=trial.run_id, values=trial.values, ended=trial.settled, result=trial.result)


def _search(found: SearchFacts) -> Search:
    search = found.search
    return Search(
        experiment=search.experiment_id,
        algorithm=found.wanted.algorithm,
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


@router.get("/experiments/{int:experiment}/search", response=Search, operation_id="search_of_experiment")
def search_of_experiment(request: HttpRequest, experiment: int) -> Search:
    """How its search for hyperparameters stands, where it is one."""
    return _search(_of(access.experiment(person(request), experiment)))


@router.post("/experiments/{int:experiment}/search/stop", response=Search, operation_id="stop_search")
def stop_search(request: HttpRequest, experiment: int) -> Search:
    """Nothing more is tried, and trials that run are stopped. Harmless on one that is over."""
    user = person(request)
    found = _of(access.experiment(user, experiment, need="write"))
    verbs.stop_search(found.search, by=user, now=timezone.now())
    found.search.refresh_from_db()
    return _search(searches.facts(found.search))
