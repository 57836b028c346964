"""What the studio has, as MLflow's client knows things: a project is an experiment, a run is a run."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable

from django.db.models import F

from experiments.definitions.arguments import arguments
from experiments.models import LoggedFacts, Metric, MetricSeries, Project, RunState, TrainingRun
from training_runtime.tracking import answers
from training_runtime.tracking.answers import Point, Run

ROOT = "mlflow-artifacts:/runs"
STATES = {
    RunState.QUEUED: "SCHEDULED",
    RunState.STARTING: "SCHEDULED",
    RunState.COMPLETED: "FINISHED",
    RunState.FAILED: "FAILED",
    RunState.STOPPED: "KILLED",
}
MOST_POINTS = 25_000  # of a history, the last ones


def experiment(project: Project) -> dict[str, object]:
    return answers.experiment(str(project.pk), project.name, artifacts=ROOT)


def runs(found: Iterable[TrainingRun]) -> list[Run]:
    """In their order, each with what its script has logged and what it was told on its command line."""
    some = list(found)
    facts = {each.run_id: each for each in LoggedFacts.objects.filter(run__in=some)}
    metrics = _last_points(some)
    return [_run(run, facts.get(run.pk), metrics[run.pk]) for run in some]


def history(run: TrainingRun, key: str) -> list[Point]:
    """The metric's points; none where the run has no such metric."""
    series = [one for one in MetricSeries.objects.filter(run=run) if key_of(one) == key]
    points = Metric.objects.filter(series__in=series[:1]).order_by("-step")[:MOST_POINTS]
    return [_point(one) for one in reversed(points)]


def key_of(series: MetricSeries) -> str:
    """A test's figure may be called like one of the training: `loss` and `test_loss`."""
    name: str = series.name
    return f"test_{name}" if series.group == "test" and answers.group_of(name) == "train" else name


def _last_points(some: list[TrainingRun]) -> dict[int, dict[str, Point]]:
    last = Metric.objects.filter(series__run__in=some, step=F("series__last_step")).select_related("series").order_by("series__name")
    found: dict[int, dict[str, Point]] = defaultdict(dict)
    for one in last:
        found[one.series.run_id][key_of(one.series)] = _point(one)
    return found


def _point(one: Metric) -> Point:
    return Point(math.nan if one.value is None else one.value, int(1000 * one.t), one.step)


def _run(run: TrainingRun, facts: LoggedFacts | None, metrics: dict[str, Point]) -> Run:
    own = {"edt.state": run.state, "edt.experiment": run.experiment.name, "edt.definition": str(run.version), "edt.command": run.command}
    began = run.started_at or run.submitted_at
    return Run(
        str(run.pk),
        run.name,
        str(run.experiment.project_id),
        run.submitted_by.username,
        f"{ROOT}/{run.pk}",
        status=STATES.get(RunState(run.state), "RUNNING"),
        began_ms=int(1000 * began.timestamp()),
        ended_ms=int(1000 * run.ended_at.timestamp()) if run.ended_at else None,
        parameters=arguments(run.command) | (facts.parameters if facts else {}),
        tags=own | (facts.tags if facts else {}),
        metrics=metrics,
    )
