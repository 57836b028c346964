"""Verbs on searches for hyperparameters: make one with its first trial, begin a trial, settle one, close it. What comes next is decided in
experiments.searches."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
import secrets
import uuid
from collections.abc import Iterable, Mapping
from typing import Any

from django.db import transaction

from experiments.definitions.arguments import with_value
from experiments.errors import DomainError
from experiments.live import notify
from experiments.models import DefinitionVersion, Experiment, Project, Search, SearchTrial, TrainingRun, User
from experiments.notifications import rules
from experiments.searches import choosing, results, specs, studio_spec
from experiments.searches.choosing import Choice
from experiments.searches.falling_behind import Course
from experiments.searches.wishes import Wishes, WrongWishes
from experiments.services import checks
from experiments.services.experiments import create_experiment, run_experiment
from experiments.services.reruns import run_with_changes
from experiments.services.runs import stop_run
from training_runtime.variables import CONFIG_JSON

NAMESPACE = uuid.UUID("3c1d4a52-7d0e-4f7e-9a56-0f5c7b1f9b52")
REASON_LIMIT = 500
SEEDS = 2**62
Values = Mapping[str, float | int | str]


def check_spec(spec: Mapping[str, Any]) -> Wishes:
    """Of the studio's own. Fields: parameters, metric, goal, method, trials, at_once."""
    try:
        return studio_spec.parse(spec)
    except WrongWishes as wrong:
        raise DomainError(wrong.fields) from None


def create_search(
    project: Project,
    *,
    by: User,
    spec: Mapping[str, Any],
    version: DefinitionVersion,
    command: str = "",
    idempotency_key: uuid.UUID | None = None,
    now: dt.datetime,
    **said: Any,
) -> Search:
    """A search (see `studio_spec`) with an experiment of its own, and its first trial. `command`: of the version, "" for its own; `said`:
    what else `create_experiment` takes. Fields: as there, and of `check_spec`."""
    errors: list[DomainError] = []
    wanted = checks.each(errors, lambda: check_spec(spec))
    with transaction.atomic():
        Project.objects.select_for_update().get(pk=project.pk)  # first of all, see create_and_run
        experiment = checks.each(
            errors,
            lambda: create_experiment(project, by=by, versions=[version], commands=[command], idempotency_key=idempotency_key, **said),
        )
        checks.collected(errors)
        assert experiment is not None
        assert wanted is not None
        if (before := Search.objects.filter(experiment=experiment).first()) is not None:
            return before
        seed = secrets.randbelow(SEEDS)
        first = choosing.choose(wanted, [], seed)
        values = first.values or {}
        base = experiment.global_command or command or version.command
        told = checks.text(command_with(base, values), field="parameters", limit=checks.COMMAND_LIMIT)
        trial = (told, f"{experiment.name}: {as_words(values)}")
        (run,) = run_experiment(experiment, by=by, trial=trial, idempotency_key=idempotency_key, now=now)
        return open_search(run, spec=spec, seed=seed, number=first.number, values=values, now=now)


def recall_search(experiment: Experiment, facts: Mapping[str, Any], trials: Iterable[Mapping[str, Any]]) -> None:
    """One that was over elsewhere, with its trials, whose runs are here now: fields of their rows."""
    search = Search.objects.create(experiment=experiment, **facts)
    SearchTrial.objects.bulk_create(SearchTrial(search=search, **each) for each in trials)


def command_with(command: str, values: Values) -> str:
    """The command with the values of a trial as its arguments."""
    for name, value in values.items():
        command = with_value(command, name, str(value))
    return command


def as_words(values: Values) -> str:
    return " ".join(f"{name.lstrip('-')}={value}" for name, value in values.items())


def config(values: Values) -> dict[str, str]:
    """The variable by which a run finds the values in its config.json."""
    return {CONFIG_JSON: json.dumps(dict(values))}


def open_search(run: TrainingRun, *, spec: Mapping[str, object], seed: int, number: int, values: Values, now: dt.datetime) -> Search:
    """A search in the run's experiment, of which the run is the first trial, made with `config(values)`."""
    search = Search.objects.create(experiment=run.experiment, spec=dict(spec), seed=seed, created_at=now)
    SearchTrial.objects.create(search=search, run=run, place=0, number=number, values=dict(values))
    checks.audit(run.submitted_by, "starts search %s in experiment %s", search.pk, run.experiment_id)
    return search


def begin_trial(search: Search, like: TrainingRun, *, by: User, place: int, choice: Choice, now: dt.datetime) -> SearchTrial:
    """The next trial: a run as `like`, with the values that were chosen. Sent twice for a place, it begins one. Raises DomainError, also
    where the search has been ended meanwhile."""
    values = choice.values or {}
    said = as_words(values)
    with transaction.atomic():
        if Search.objects.select_for_update().get(pk=search.pk).ended_at is not None:  # who ends it waits, and then stops this trial, too
            raise DomainError("The search is over.")
        (run,) = run_with_changes(
            like,
            by=by,
            **_changes_for(search, like, values),
            why=f"trial {place + 1} of a search: {said}"[:REASON_LIMIT],
            idempotency_key=uuid.uuid5(NAMESPACE, f"{search.pk}/{place}"),
            now=now,
        )
        return SearchTrial.objects.create(search=search, run=run, place=place, number=choice.number, values=dict(values))


def _changes_for(search: Search, like: TrainingRun, values: Values) -> dict[str, Any]:
    """How a run as `like` is given the values."""
    if specs.parse(search.spec).as_arguments:
        return {"commands": [command_with(like.command, values)], "name": f"{search.experiment.name}: {as_words(values)}"}
    return {"environment": {**like.environment, **config(values)}}


def settle_trial(trial: SearchTrial, *, result: float | None, course: Course | None = None) -> None:
    """Its run has ended, and come to this, in this way."""
    trial.settled, trial.result, trial.course = True, result, dataclasses.asdict(course) if course else {}
    SearchTrial.objects.filter(pk=trial.pk).update(settled=True, result=result, course=trial.course)


def end_early(trial: SearchTrial, *, by: User, why: str, now: dt.datetime) -> None:
    """Its run is stopped, and counts with what it has come to."""
    with transaction.atomic():
        if stop_run(trial.run, by=by, reason=why, now=now).stop_requested_at == now:  # else somebody was faster, and meant something by it
            SearchTrial.objects.filter(pk=trial.pk).update(ended_early=True)
            trial.ended_early = True


def close_search(search: Search, *, state: str, reason: str, now: dt.datetime, actor: User | None = None) -> None:
    """Once, whoever comes first; its person is told."""
    with transaction.atomic():
        ends = {"ended_at": now, "state": state, "reason": reason[:REASON_LIMIT]}
        if not Search.objects.filter(pk=search.pk, ended_at=None).update(**ends):
            return
        search.refresh_from_db()
        wanted, trials = specs.parse(search.spec), list(search.trials.select_related("run__experiment"))
        rules.notify_search(search, best=results.best(trials, wanted), metric=wanted.metric, now=now, actor=actor)
        notify.changed(f"experiment-{search.experiment_id}", "runs")


def stop_search(search: Search, *, by: User, now: dt.datetime) -> None:
    """No trial is begun any more, and those that run are stopped. Harmless on one that has ended."""
    close_search(search, state=Search.State.STOPPED, reason=f"Stopped by {by.username}.", now=now, actor=by)
    stop_trials(search, by=by, why="its search was stopped", now=now)


def stop_trials(search: Search, *, by: User, why: str, now: dt.datetime) -> None:
    for trial in search.trials.select_related("run"):
        if trial.run.is_live():
            stop_run(trial.run, by=by, reason=why, now=now)
