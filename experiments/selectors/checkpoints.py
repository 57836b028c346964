"""Reads of a run's checkpoints: the best one by its policy's metric or by the usual ones, and what a policy has removed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from django.db.models import Count

from experiments.files import checkpoint_policy, retention
from experiments.files.checkpoint_policy import Policy
from experiments.models import DroppedCheckpoint, RunEvent, TrainingRun

USUAL = (("test", "accuracy", True), ("test", "loss", False), ("train", "loss", False))  # where no policy names one


@dataclass(frozen=True)
class Best:
    """`paths` are below the run's folder."""

    step: int
    epoch: int
    metric: str
    greatest: bool
    value: float
    paths: tuple[str, ...]


def best(run: TrainingRun) -> Best | None:
    """None where no checkpoint of an epoch is there, or none with a value."""
    policy = _metric(run)
    found = checkpoint_policy.ranked(retention.saved(run, policy), greatest=policy.greatest) if policy is not None else []
    if policy is None or not found or found[0].value is None:
        return None
    one = found[0]
    return Best(one.step, one.epoch, policy.metric, policy.greatest, found[0].value, one.paths)


def events(run: TrainingRun, found: Iterable[RunEvent], *, limit: int) -> list[RunEvent | DroppedCheckpoint]:
    """Events of the journal and what a policy has removed, the newest first."""
    dropped = list(DroppedCheckpoint.objects.filter(run=run).order_by("-at", "-step")[:limit])
    both: list[RunEvent | DroppedCheckpoint] = [*found, *dropped]
    return (sorted(both, key=lambda each: each.at, reverse=True) if dropped else both)[:limit]


def event_kinds(run: TrainingRun) -> dict[str, int]:
    """How many events of each kind there are, what a policy has removed among them."""
    counted = run.events.order_by("kind").values_list("kind").annotate(count=Count("pk"))
    found: dict[str, int] = dict(counted)
    removed = DroppedCheckpoint.objects.filter(run=run).count()
    return found | ({"removed": removed} if removed else {})


def events_of(run: TrainingRun, kind: str, *, limit: int) -> list[RunEvent | DroppedCheckpoint]:
    """Of one kind, the newest first; "" for all but checkpoints, which are many."""
    found = run.events.filter(kind=kind) if kind else run.events.exclude(kind="checkpoint")
    if kind == "removed" or not kind:
        return events(run, found.order_by("-seq")[:limit], limit=limit)
    return list(found.order_by("-seq")[:limit])


def _metric(run: TrainingRun) -> Policy | None:
    policy = checkpoint_policy.policy_of(run.checkpoints)
    if policy.metric:
        return policy
    known = set(run.series.values_list("group", "name"))
    usual = next(((group, name, greatest) for group, name, greatest in USUAL if (group, name) in known), None)
    return Policy(last=1, best=1, metric=f"{usual[0]} {usual[1]}", greatest=usual[2]) if usual else None
