"""A run's checkpoints: which of its epochs' model files are there, which is the best, and which are kept."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from ninja import Field, Router, Schema

from experiments import access, services
from experiments.api.auth import person
from experiments.api.schemas import Body
from experiments.files import checkpoint_policy, retention
from experiments.files.checkpoint_policy import Policy
from experiments.models import DroppedCheckpoint, TrainingRun
from experiments.selectors import checkpoints

router = Router(tags=["runs"])


class CheckpointPolicy(Body):
    """`last`: how many of the newest are kept, 0 keeps all of them; `best`: how many of the best by `metric`, a curve as "test loss", by
    its greatest values or else its least ones."""

    last: int = Field(0, ge=0, le=checkpoint_policy.MOST)
    best: int = Field(0, ge=0, le=checkpoint_policy.MOST)
    metric: str = Field("", max_length=206)
    greatest: bool = False


class Checkpoint(Schema):
    """`removed`: why a policy has removed it; null: it has not. `complete`: all of its files are there as they were written."""

    step: int
    epoch: int
    paths: list[str]
    size_bytes: int
    complete: bool
    removed: str | None


class BestCheckpoint(Schema):
    step: int
    epoch: int
    metric: str
    greatest: bool
    value: float
    paths: list[str]


class Checkpoints(Schema):
    policy: CheckpointPolicy
    best: BestCheckpoint | None
    items: list[Checkpoint]


def _checkpoints_response(run: TrainingRun) -> Checkpoints:
    policy, best = checkpoint_policy.policy_of(run.checkpoints), checkpoints.best(run)
    there = [Checkpoint(removed=None, complete=each.complete, **_facts(each)) for each in retention.saved(run, Policy())]
    gone = [Checkpoint(removed=each.reason, complete=False, **_facts(each)) for each in DroppedCheckpoint.objects.filter(run=run)]
    return Checkpoints(
        policy=CheckpointPolicy(**vars(policy)),
        best=BestCheckpoint(**{**vars(best), "paths": list(best.paths)}) if best else None,
        items=sorted([*there, *gone], key=lambda each: each.step),
    )


def _facts(one: checkpoint_policy.Saved | DroppedCheckpoint) -> dict[str, Any]:
    return {"step": one.step, "epoch": one.epoch, "paths": list(one.paths), "size_bytes": one.size_bytes}


@router.get("/runs/{int:run}/checkpoints", response=Checkpoints)
def run_checkpoints(request: HttpRequest, run: int) -> Checkpoints:
    """What the engine has written after epochs, by step; also what the run's policy has removed."""
    return _checkpoints_response(access.run(person(request), run))


@router.put("/runs/{int:run}/checkpoints", response=Checkpoints)
def set_checkpoints(request: HttpRequest, run: int, body: CheckpointPolicy) -> Checkpoints:
    """Which of them a live run keeps, from now on and of those that are there."""
    user = person(request)
    services.set_checkpoints(access.run(user, run, need="write"), by=user, policy=Policy(**body.model_dump()))
    return _checkpoints_response(access.run(user, run))
