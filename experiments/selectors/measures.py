"""How the cluster stands at this moment, in numbers, for whoever watches over it. No names of people, projects or runs."""

from __future__ import annotations

import datetime as dt
import shutil
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from django.conf import settings
from django.db.models import Count, Min

from experiments.cluster.snapshot import is_silent
from experiments.models import Delivery, Grant, Node, RunState, Slot, TrainingRun
from experiments.ops import beat
from experiments.selectors import latest_utilization

SlotKey = tuple[str, str, str]  # node, device, state


@dataclass(frozen=True)
class NodeMeasures:
    """`up`: its host was heard of lately; `full`: nothing can be written there."""

    name: str
    up: bool
    draining: bool
    full: bool


@dataclass(frozen=True)
class Measures:
    """slots: how many by node, device (cpu, gpu) and state: held, free, draining or out_of_service (held first, then the worse).
    busy: by node and device the average share, 0 to 1, of the held slots of which it is known.
    runs: how many there are, by state. queued_s, delivery_s: seconds for which the oldest run has been queued that nobody has paused, and
    for which the oldest message has been due; 0 where there is none. disk_free, disk_size: bytes of the disk of EDT_HOME.
    clock: whether somebody sends what is due: plans, ends of leases."""

    nodes: list[NodeMeasures]
    slots: Mapping[SlotKey, int]
    busy: Mapping[tuple[str, str], float]
    runs: Mapping[str, int]
    queued_s: float
    deliveries: int
    delivery_s: float
    disk_free: int
    disk_size: int
    clock: bool


def measures(*, now: dt.datetime) -> Measures:
    slots = list(Slot.objects.filter(node__removed_at=None, retired=False).select_related("node"))
    held = {grant.slot_id: grant for grant in Grant.objects.filter(released_at=None)}
    due = Delivery.objects.filter(done_at=None, next_at__lte=now).aggregate(count=Count("pk"), oldest=Min("next_at"))
    queued = TrainingRun.objects.filter(state=RunState.QUEUED, paused=False).aggregate(oldest=Min("submitted_at"))
    disk = shutil.disk_usage(settings.EDT_HOME)
    return Measures(
        nodes=[_of_node(node, now) for node in Node.objects.filter(removed_at=None).order_by("name")],
        slots=Counter((slot.node.name, slot.device, _state(slot, held)) for slot in slots),
        busy=_busy(slots, held, now),
        runs=dict.fromkeys(RunState.values, 0) | dict(TrainingRun.objects.order_by().values_list("state").annotate(Count("pk"))),
        queued_s=_seconds_since(queued["oldest"], now),
        deliveries=due["count"],
        delivery_s=_seconds_since(due["oldest"], now),
        disk_free=disk.free,
        disk_size=disk.total,
        clock=beat.is_held(beat.CLOCK, now=now),
    )


def _of_node(node: Node, now: dt.datetime) -> NodeMeasures:
    return NodeMeasures(node.name, not is_silent(node, now), node.draining, bool(node.storage_problem))


def _state(slot: Slot, held: Mapping[int, Grant]) -> str:
    if slot.pk in held:
        return "held"
    if slot.out_reason:
        return "out_of_service"
    return "draining" if slot.draining or slot.node.draining else "free"


def _busy(slots: list[Slot], held: Mapping[int, Grant], now: dt.datetime) -> dict[tuple[str, str], float]:
    known = latest_utilization.of_grants(held, now=now)
    shares: dict[tuple[str, str], list[float]] = defaultdict(list)
    for slot in slots:
        if slot.pk in known and (share := known[slot.pk].share) is not None:
            shares[slot.node.name, slot.device].append(share)
    return {where: sum(some) / len(some) for where, some in shares.items()}


def _seconds_since(at: dt.datetime | None, now: dt.datetime) -> float:
    return max(0.0, (now - at).total_seconds()) if at is not None else 0.0
