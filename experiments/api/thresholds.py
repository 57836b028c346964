"""Thresholds of metrics: whoever may see a run or an experiment may ask to be told when a curve of it crosses one. All are the caller's."""

from __future__ import annotations

import datetime as dt

from django.http import Http404, HttpRequest
from ninja import Router, Schema
from ninja.responses import Status

from experiments import access
from experiments.api.auth import person
from experiments.api.paging import Page, whole
from experiments.api.schemas import Body
from experiments.models import ExperimentWatch, MetricWatch
from experiments.services import watches
from experiments.views.curves import finite

router = Router(tags=["notifications"])
MISSING = "There is no such threshold."


class NewThreshold(Body):
    """`metric`: as its chart calls it, "train loss"; `above`: told when it rises above `threshold`, else when it falls below."""

    metric: str
    above: bool
    threshold: float


class Threshold(Schema):
    """`inherited`: from its experiment; `told_at`: when it was crossed, once a run; of an experiment these are null."""

    id: int
    metric: str
    above: bool
    threshold: float
    inherited: bool = False
    told_at: dt.datetime | None = None
    told_step: int | None = None
    told_value: float | None = None


def _threshold_response(row: MetricWatch | ExperimentWatch) -> Threshold:
    said = Threshold(id=row.pk, metric=f"{row.group} {row.name}", above=row.above, threshold=row.threshold)
    if isinstance(row, MetricWatch):
        told = {"told_at": row.told_at, "told_step": row.told_step, "told_value": finite(row.told_value)}
        return said.model_copy(update={"inherited": row.inherited, **told})
    return said


@router.get("/runs/{int:run}/thresholds", response=Page[Threshold])
def thresholds(request: HttpRequest, run: int) -> Page[Threshold]:
    user = person(request)
    return whole([_threshold_response(row) for row in MetricWatch.objects.filter(person=user, run=access.run(user, run))])


@router.post("/runs/{int:run}/thresholds", response={201: Threshold})
def set_threshold(request: HttpRequest, run: int, body: NewThreshold) -> Status[Threshold]:
    """Set again, it is told of again."""
    user = person(request)
    return Status(201, _threshold_response(watches.watch_metric(access.run(user, run), by=user, **body.model_dump())))


@router.delete("/runs/{int:run}/thresholds/{int:threshold}", response={204: None})
def drop_threshold(request: HttpRequest, run: int, threshold: int) -> Status[None]:
    user = person(request)
    found = access.watch(user, threshold)
    if found.run_id != access.run(user, run).pk:
        raise Http404(MISSING)
    watches.drop_watch(found)
    return Status(204, None)


@router.get("/experiments/{int:experiment}/thresholds", response=Page[Threshold])
def experiment_thresholds(request: HttpRequest, experiment: int) -> Page[Threshold]:
    user = person(request)
    return whole(
        [_threshold_response(row) for row in ExperimentWatch.objects.filter(person=user, experiment=access.experiment(user, experiment))]
    )


@router.post("/experiments/{int:experiment}/thresholds", response={201: Threshold})
def set_experiment_threshold(request: HttpRequest, experiment: int, body: NewThreshold) -> Status[Threshold]:
    """For the runs that are made of it from now on."""
    user = person(request)
    return Status(201, _threshold_response(watches.watch_experiment(access.experiment(user, experiment), by=user, **body.model_dump())))


@router.delete("/experiments/{int:experiment}/thresholds/{int:threshold}", response={204: None})
def drop_experiment_threshold(request: HttpRequest, experiment: int, threshold: int) -> Status[None]:
    """Runs that have it keep it."""
    user = person(request)
    found = access.experiment_watch(user, threshold)
    if found.experiment_id != access.experiment(user, experiment).pk:
        raise Http404(MISSING)
    watches.drop_watch(found)
    return Status(204, None)
