"""Curves of several runs in one answer, as the page that holds runs side by side has them."""

from __future__ import annotations

from typing import Annotated, Literal

from django.http import Http404, HttpRequest
from django.http.response import HttpResponseBase
from ninja import Field, Query, Router, Schema

from experiments import access
from experiments.api.auth import person
from experiments.api.metrics import FORMATS, MOST_SHOWN, Curve, as_table, drawn
from experiments.errors import DomainError
from experiments.models import MetricSeries, TrainingRun
from experiments.selectors import compare, curves, run_pages

router = Router(tags=["metrics"])


class WantedOfRuns(Schema):
    """`run`: numbers with commas between them, 100 at most. `metric`, which may stand there several times: as "train loss"; the first of
    `metrics` where none is named. `max_points` of a curve, for JSON; CSV and Arrow have all. `format`: json, csv or arrow; by Accept where
    it is left out."""

    run: str
    metric: list[str] = Field([], max_length=compare.MOST_METRICS)
    max_points: int = Field(1000, ge=20, le=MOST_SHOWN)
    format: Literal["", "json", "csv", "arrow"] = ""


class CurvesOfRun(Schema):
    """`metrics`: all that the run has; `seq`: what `curves` are complete up to; `started`: Unix seconds of its first call of train()."""

    run: int
    seq: int
    started: float | None
    metrics: list[str]
    curves: list[Curve]


class CurvesOfRuns(Schema):
    """`metrics`: all that any of the runs has."""

    metrics: list[str]
    runs: list[CurvesOfRun]


@router.get("/points", response=CurvesOfRuns, openapi_extra=FORMATS)
def points_of_runs(request: HttpRequest, wanted: Annotated[WantedOfRuns, Query()]) -> CurvesOfRuns | HttpResponseBase:
    """The points of some metrics of several runs, of any experiments and projects. As a table (CSV, Arrow): run, group, name, step, epoch,
    time (Unix seconds), value, workers."""
    runs = _runs(request, wanted.run)
    metrics = compare.metric_names(runs)
    names = wanted.metric or metrics[:1]
    if (table := as_table(request, wanted.format, _series(runs, names), name="metrics", runs=True)) is not None:
        return table
    found, began = curves.of_runs(runs, names=names, max_points=wanted.max_points), run_pages.began(runs)
    return CurvesOfRuns(
        metrics=metrics,
        runs=[
            CurvesOfRun(
                run=run.pk,
                seq=found[run.pk].seq,
                started=began[run.pk].at.timestamp() if run.pk in began else None,
                metrics=found[run.pk].names,
                curves=[drawn(curve) for curve in found[run.pk].curves],
            )
            for run in runs
        ],
    )


def _runs(request: HttpRequest, said: str) -> list[TrainingRun]:
    """All of them, or it is refused."""
    numbers = compare.numbers([said])
    if not 0 < len(numbers) <= compare.MOST_RUNS:
        raise DomainError({"run": [f"Name 1 to {compare.MOST_RUNS} runs by their numbers, with commas between them."]})
    runs, missing = access.runs(person(request), numbers)
    if missing:
        raise Http404(f"There is no such run, or you may not see it: {', '.join(map(str, missing))}.")
    return runs


def _series(runs: list[TrainingRun], names: list[str]) -> list[MetricSeries]:
    """In the order of the runs."""
    place = {run.pk: number for number, run in enumerate(runs)}
    found = [each for each in MetricSeries.objects.filter(run__in=runs) if f"{each.group} {each.name}" in names]
    return sorted(found, key=lambda each: (place[each.run_id], each.group, each.name))
