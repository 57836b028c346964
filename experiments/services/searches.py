"""Verbs on searches for hyperparameters: open one with its first trial, begin a trial, settle one, close it. What comes next is decided in
experiments.searches."""

from __future__ import annotations

import datetime as dt
import json
import uuid
from collections.abc import Mapping

from django.db import transaction

from experiments.errors import DomainError
from experiments.live import notify
from experiments.models import Search, SearchTrial, TrainingRun, User
from experiments.services import checks
from experiments.services.reruns import run_with_changes
from experiments.services.runs import stop_run
from training_runtime.variables import CONFIG_JSON

NAMESPACE = uuid.UUID("3c1d4a52-7d0e-4f7e-9a56-0f5c7b1f9b52")
REASON_LIMIT = 500
Values = Mapping[str, float | int | str]


def config(values: Values) -> dict[str, str]:
    """The variable by which a run finds the values in its config.json."""
    return {CONFIG_JSON: json.dumps(dict(values))}


def open_search(run: TrainingRun, *, spec: Mapping[str, object], seed: int, number: int, values: Values, now: dt.datetime) -> Search:
    """A search in the run's experiment, of which the run is the first trial, made with `config(values)`."""
    search = Search.objects.create(experiment=run.experiment, spec=dict(spec), seed=seed, created_at=now)
    SearchTrial.objects.create(search=search, run=run, place=0, number=number, values=dict(values))
    checks.audit(run.submitted_by, "starts search %s in experiment %s", search.pk, run.experiment_id)
    return search


def begin_trial(search: Search, like: TrainingRun, *, by: User, place: int, number: int, values: Values, now: dt.datetime) -> SearchTrial:
    """The next trial: a run as `like`, with the values. Sent twice for a place, it begins one. Raises DomainError, also where the search
    has been ended meanwhile."""
    said = " ".join(f"{name}={value}" for name, value in values.items())
    with transaction.atomic():
        if Search.objects.select_for_update().get(pk=search.pk).ended_at is not None:  # who ends it waits, and then stops this trial, too
            raise DomainError("The search is over.")
        (run,) = run_with_changes(
            like,
            by=by,
            environment={**like.environment, **config(values)},
            why=f"trial {place + 1} of a search: {said}"[:REASON_LIMIT],
            idempotency_key=uuid.uuid5(NAMESPACE, f"{search.pk}/{place}"),
            now=now,
        )
        return SearchTrial.objects.create(search=search, run=run, place=place, number=number, values=dict(values))


def settle_trial(trial: SearchTrial, *, result: float | None) -> None:
    """Its run has ended, and come to this."""
    SearchTrial.objects.filter(pk=trial.pk).update(settled=True, result=result)
    trial.settled, trial.result = True, result


def close_search(search: Search, *, state: str, reason: str, now: dt.datetime) -> None:
    Search.objects.filter(pk=search.pk, ended_at=None).update(ended_at=now, state=state, reason=reason[:REASON_LIMIT])
    notify.changed(f"experiment-{search.experiment_id}", "runs")


def stop_search(search: Search, *, by: User, now: dt.datetime) -> None:
    """No trial is begun any more, and those that run are stopped. Harmless on one that has ended."""
    close_search(search, state=Search.State.STOPPED, reason=f"Stopped by {by.username}.", now=now)
    stop_trials(search, by=by, why="its search was stopped", now=now)


def stop_trials(search: Search, *, by: User, why: str, now: dt.datetime) -> None:
    for trial in search.trials.select_related("run"):
        if trial.run.is_live():
            stop_run(trial.run, by=by, reason=why, now=now)
