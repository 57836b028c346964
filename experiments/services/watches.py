"""Verbs on thresholds of metrics: a person asks to be told, once a run, when a curve crosses a value. Telling is up to `notifications`.

Set on a run, it is for that run; set on an experiment, for every run that is made of it from then on. Both are the person's own.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from experiments.errors import DomainError
from experiments.live import notify
from experiments.models import Experiment, ExperimentWatch, MetricWatch, TrainingRun, User
from experiments.services import checks

MOST_WATCHES = 20  # of a person, of a run or an experiment
NAME_LIMIT = 200
ROWS_AT_ONCE = 500


@dataclass(frozen=True)
class Crossing:
    """`metric` is a curve as pages name it, "train loss"; it rises above the threshold, or falls below it."""

    metric: str
    above: bool
    threshold: float


def watch_metric(run: TrainingRun, *, by: User, metric: str, above: bool, threshold: float) -> MetricWatch:
    """Asked again, the same watch waits anew. Fields: metric, threshold."""
    wanted = _facts(Crossing(metric, above, threshold))
    if not run.is_live():
        checks.refuse("metric", "This run has ended: no value of it will come.")
    mine = MetricWatch.objects.filter(person=by, run=run)
    if not mine.filter(**wanted).exists() and mine.count() >= MOST_WATCHES:
        checks.refuse("metric", f"You have {MOST_WATCHES} thresholds for this run already: remove one first.")
    anew = {"told_at": None, "told_step": None, "told_value": None}
    watch, _ = MetricWatch.objects.update_or_create(person=by, run=run, **wanted, defaults=anew)
    _tell(by.pk)
    return watch


def watch_experiment(experiment: Experiment, *, by: User, metric: str, above: bool, threshold: float) -> ExperimentWatch:
    """For the runs that are made from now on. Asked again, nothing changes. Fields: metric, threshold."""
    wanted = _facts(Crossing(metric, above, threshold))
    mine = ExperimentWatch.objects.filter(person=by, experiment=experiment)
    if not mine.filter(**wanted).exists() and mine.count() >= MOST_WATCHES:
        checks.refuse("metric", f"You have {MOST_WATCHES} thresholds for this experiment already: remove one first.")
    watch, _ = ExperimentWatch.objects.get_or_create(person=by, experiment=experiment, **wanted)
    _tell(by.pk)
    return watch


def drop_watch(watch: MetricWatch | ExperimentWatch) -> None:
    """One that is dropped from an experiment stays with the runs that have it, and the other way round."""
    watch.delete()
    _tell(watch.person_id)


def crossings(experiment: Experiment, *, of: User) -> list[Crossing]:
    """What the person has set on the experiment."""
    mine = ExperimentWatch.objects.filter(person=of, experiment=experiment)
    return [Crossing(f"{watch.group} {watch.name}", watch.above, watch.threshold) for watch in mine]


def checked(wanted: Iterable[Crossing]) -> list[dict[str, Any]]:
    """The fields of each one's watch, each once. Field: thresholds."""
    clean: list[dict[str, Any]] = []
    for crossing in wanted:
        try:
            facts = _facts(crossing)
        except DomainError as error:
            checks.refuse("thresholds", f"{crossing.metric[:NAME_LIMIT]}: {error}")
        if facts not in clean:
            clean.append(facts)
    if len(clean) > MOST_WATCHES:
        checks.refuse("thresholds", f"{len(clean)} thresholds are too many: set at most {MOST_WATCHES}.")
    return clean


def inherit(runs: Sequence[TrainingRun], *, experiment: Experiment) -> None:
    """Give new runs what is set on their experiment, by whoever is still in its project."""
    kept = list(ExperimentWatch.objects.filter(experiment=experiment, person__memberships__project=experiment.project_id))
    each = [
        MetricWatch(
            run=run,
            person_id=watch.person_id,
            group=watch.group,
            name=watch.name,
            above=watch.above,
            threshold=watch.threshold,
            inherited=True,
        )
        for run in runs
        for watch in kept
    ]
    MetricWatch.objects.bulk_create(each, batch_size=ROWS_AT_ONCE)


def _facts(wanted: Crossing) -> dict[str, Any]:
    """Fields: metric, threshold."""
    group, _, name = checks.name(wanted.metric, field="metric", limit=NAME_LIMIT + 6).partition(" ")
    if group not in ("train", "test") or not name:
        checks.refuse("metric", 'Name a curve as its chart does, "train loss" or "test accuracy".')
    if not math.isfinite(wanted.threshold):
        checks.refuse("threshold", "This is not a number that a metric can cross.")
    return {"group": group, "name": name, "above": wanted.above, "threshold": wanted.threshold}


def _tell(person: int) -> None:
    notify.changed(f"user-{person}", "watches")
