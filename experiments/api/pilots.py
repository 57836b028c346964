"""Pools of pilots: how many machines are held of an engine that lends them. For administrators of the cluster."""

from __future__ import annotations

import datetime as dt
from typing import Any

from django.conf import settings
from django.http import HttpRequest
from ninja import Router, Schema
from ninja.responses import Status

from experiments import access, services
from experiments.api.auth import person
from experiments.api.paging import Page, whole
from experiments.api.schemas import Body
from experiments.models import Pilot as Row
from experiments.models import PilotPool
from experiments.ops import clock
from experiments.selectors import pilots as selected

router = Router(tags=["nodes"])


class Pilot(Schema):
    """An allocation. `job`: the engine's number or name for it; `reason`: why it was asked for; `words`: how it is, in the engine's own
    words."""

    node_name: str
    job: str
    phase: str
    made_at: dt.datetime
    joined_at: dt.datetime | None
    ends_at: dt.datetime | None
    idle_since: dt.datetime | None
    ended_at: dt.datetime | None
    reason: str
    words: str
    leave_reason: str


class Pool(Schema):
    """`words`: what was last decided, and why. `pilots`: those that are held; `ended`: the newest of those that have ended."""

    name: str
    provider: str
    studio: str
    options: str
    slots: int
    device: str
    least: int
    most: int
    idle_minutes: float
    walltime_minutes: int
    grow: bool
    words: list[str]
    looked_at: dt.datetime | None
    failures: int
    problem: str
    pilots: list[Pilot]
    ended: list[Pilot]


class PolicyChange(Body):
    """What is left out stays as it is. `options`: of sbatch, as in "--partition=gpu --gpus=4", of ray job submit, as in
    "--entrypoint-num-cpus=8", or of a pod of Kubernetes, as in "--cpu=8 --memory=32Gi --gpus=1"; `least`, `most`: pilots; `grow`: they
    are asked for also so that runs grow, not only so that they begin."""

    studio: str | None = None
    options: str | None = None
    slots: int | None = None
    device: str | None = None
    least: int | None = None
    most: int | None = None
    idle_minutes: float | None = None
    walltime_minutes: int | None = None
    grow: bool | None = None

    def changes(self) -> dict[str, Any]:
        return {name: value for name in PolicyChange.model_fields if (value := getattr(self, name)) is not None}


class Change(PolicyChange):
    reason: str = ""


class NewPool(PolicyChange):
    """`studio`: by default the address that this call came to. `provider`: slurm, ray or kubernetes."""

    name: str
    provider: str = PilotPool.Provider.SLURM
    slots: int
    most: int
    reason: str = ""


class Foreseen(Schema):
    """What would be decided now, in sentences."""

    words: list[str]


def _pool_response(row: PilotPool) -> Pool:
    found = selected.of_pool(row)
    same = [name for name in Pool.model_fields if name not in ("pilots", "ended")]
    return Pool(pilots=list(map(_pilot, found.held)), ended=list(map(_pilot, found.ended)), **{name: getattr(row, name) for name in same})


def _pilot(row: Row) -> Pilot:
    return Pilot(**{name: getattr(row, name) for name in Pilot.model_fields})


@router.get("/pilot-pools", response=Page[Pool])
def pilot_pools(request: HttpRequest) -> Page[Pool]:
    access.rules(person(request), need="admin")
    return whole([_pool_response(row) for row in PilotPool.objects.all()])


@router.post("/pilot-pools", response={201: Pool})
def make_pilot_pool(request: HttpRequest, body: NewPool) -> Status[Pool]:
    user = person(request)
    access.rules(user, need="admin")
    here = {"studio": settings.EDT_PUBLIC_URL or request.build_absolute_uri("/")}
    policy = {"provider": body.provider, **here, **body.changes()}
    return Status(201, _pool_response(services.create_pool(by=user, name=body.name, reason=body.reason, **policy)))


@router.get("/pilot-pools/{str:pool}", response=Pool)
def pilot_pool(request: HttpRequest, pool: str) -> Pool:
    return _pool_response(selected.pool(person(request), pool))


@router.patch("/pilot-pools/{str:pool}", response=Pool)
def change_pilot_pool(request: HttpRequest, pool: str, body: Change) -> Pool:
    """Pilots that are held already stay as they were asked for. With `most` 0 all are emptied and given back."""
    user = person(request)
    return _pool_response(services.change_pool(selected.pool(user, pool), by=user, reason=body.reason, **body.changes()))


@router.delete("/pilot-pools/{str:pool}", response={204: None})
def delete_pilot_pool(request: HttpRequest, pool: str, reason: str = "") -> Status[None]:
    """One that holds no pilot."""
    user = person(request)
    services.delete_pool(selected.pool(user, pool), by=user, reason=reason)
    return Status(204, None)


@router.post("/pilot-pools/{str:pool}/preview", response=Foreseen)
def preview_pilot_pool(request: HttpRequest, pool: str, body: PolicyChange) -> Foreseen:
    """What would be decided now with this policy. Changes nothing and asks the engine nothing."""
    user = person(request)
    would = services.changed_pool(selected.pool(user, pool), **body.changes())
    return Foreseen(words=list(selected.foreseen(would, now=clock.now())))
