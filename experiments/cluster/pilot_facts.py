"""Collects from the database the facts on which the number of pilots is decided, and returns the decision, for `pilots` and for previews.
Writes nothing."""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections import Counter
from collections.abc import Collection
from typing import cast

from experiments.cluster import snapshot
from experiments.cluster.kubernetes.provider import Kubernetes
from experiments.cluster.providers import Provider
from experiments.cluster.ray import Ray
from experiments.cluster.slurm import Slurm
from experiments.models import ClusterRules, EnvironmentBuild, Grant, PilotPool
from experiments.models import Pilot as Row
from training_runtime.protocol import Device
from training_runtime.scheduling import capacity
from training_runtime.scheduling.capacity import Decision, Need, Phase, Policy, Shape, Trouble

PROVIDERS: dict[str, Provider] = {
    PilotPool.Provider.SLURM: Slurm(),
    PilotPool.Provider.RAY: Ray(),
    PilotPool.Provider.KUBERNETES: Kubernetes(),
}
COMING = (Row.Phase.ASKED, Row.Phase.WAITING, Row.Phase.STARTING)
LIVE = (*COMING, Row.Phase.HERE, Row.Phase.LEAVING, Row.Phase.ENDING)
LONGEST_NOTICE_S = 300


def notice_s(pool: PilotPool) -> int:
    """So long before its end an allocation takes nothing new: enough for runs to move, and never most of it."""
    return min(LONGEST_NOTICE_S, pool.walltime_minutes * 60 // 4)


def need(pool: PilotPool, *, now: dt.datetime) -> Need:
    """How many more would help, by the planner; those that are on their way to other pools are taken to be there."""
    seen = snapshot.take_snapshot(ClusterRules.current(), now=now, lock=False)
    nowhere = all(slot.draining for slot in seen.slot_facts)  # then environments have been built nowhere, and pilots build them
    runs = [dataclasses.replace(facts, paused=seen.runs[facts.id].paused) if nowhere else facts for facts in seen.run_facts]
    slots = list(seen.slot_facts)
    for row in Row.objects.filter(phase__in=COMING).exclude(pool=pool.pk).select_related("pool"):
        slots, runs = capacity.with_machines(slots, runs, _shape(row.pool), [f"\x7f{row.node_name}"])
    return capacity.needed(slots, runs, now=now.timestamp(), rules=seen.rules, shape=_shape(pool), most=pool.most, grow=pool.grow)


def decided(pool: PilotPool, rows: Collection[Row], needed: Need, *, now: dt.datetime) -> Decision:
    """The decision on the pool's pilots, as things are now."""
    policy = Policy(pool.least, pool.most, pool.idle_minutes * 60, notice_s(pool), pool.get_provider_display())
    granted = used(rows)
    building = set(
        EnvironmentBuild.objects.filter(node__name__in=[row.node_name for row in rows], state=EnvironmentBuild.State.BUILDING).values_list(
            "node__name", flat=True
        )
    )
    pilots = [_pilot(row, granted[row.node_name], building=row.node_name in building, now=now) for row in rows]
    failed_at = pool.failed_at.timestamp() if pool.failed_at is not None else 0.0
    trouble = Trouble(pool.failures, failed_at, pool.problem)
    return capacity.decide(policy, pilots, need=needed, trouble=trouble, now=now.timestamp())


def used(rows: Collection[Row]) -> Counter[str]:
    """Machine name -> number of its slots that runs hold."""
    held = Grant.objects.filter(released_at__isnull=True, slot__node__name__in=[row.node_name for row in rows])
    return Counter(held.values_list("slot__node__name", flat=True))


def _shape(pool: PilotPool) -> Shape:
    return Shape(pool.slots, cast(Device, pool.device), pool.kind)


def _pilot(row: Row, granted: int, *, building: bool, now: dt.datetime) -> capacity.Pilot:
    return capacity.Pilot(
        name=row.node_name,
        phase=cast(Phase, "waiting" if row.phase == Row.Phase.ASKED else row.phase),
        granted=granted,
        building=building,
        idle_since=row.idle_since.timestamp() if row.idle_since is not None else None,
        left_s=(row.ends_at - now).total_seconds() if row.ends_at is not None else None,
        since=row.made_at.timestamp(),
    )
