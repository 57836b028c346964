"""Verbs on thresholds of metrics: a person asks to be told, once, when a curve of a run crosses a value. Telling is up to `notices`."""

from __future__ import annotations

import math
from typing import Any

from experiments import notify
from experiments.models import MetricWatch, TrainingRun, User
from experiments.services import checks

MOST_WATCHES = 20  # of a person, of a run
NAME_LIMIT = 200


def watch_metric(run: TrainingRun, *, by: User, metric: str, above: bool, threshold: float) -> MetricWatch:
    """`metric` is a curve as pages name it, "train loss". Asked again, the same watch waits anew. Fields: metric, threshold."""
    group, _, name = checks.name(metric, field="metric", limit=NAME_LIMIT + 6).partition(" ")
    if group not in ("train", "test") or not name:
        checks.refuse("metric", 'Name a curve as its chart does, "train loss" or "test accuracy".')
    if not math.isfinite(threshold):
        checks.refuse("threshold", "This is not a number that a metric can cross.")
    if not run.is_live():
        checks.refuse("metric", "This run has ended: no value of it will come.")
    wanted: dict[str, Any] = {"group": group, "name": name, "above": above, "threshold": threshold}
    mine = MetricWatch.objects.filter(person=by, run=run)
    if not mine.filter(**wanted).exists() and mine.count() >= MOST_WATCHES:
        checks.refuse("metric", f"You have {MOST_WATCHES} thresholds for this run already: remove one first.")
    anew = {"told_at": None, "told_step": None, "told_value": None}
    watch, _ = MetricWatch.objects.update_or_create(person=by, run=run, **wanted, defaults=anew)
    notify.changed(f"user-{by.pk}", "watches")
    return watch


def drop_watch(watch: MetricWatch) -> None:
    watch.delete()
    notify.changed(f"user-{watch.person_id}", "watches")
