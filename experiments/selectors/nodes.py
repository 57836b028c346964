"""The machines as the cluster page lists them, and what changes of members cost lately."""

from __future__ import annotations

import datetime as dt
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from experiments.cluster import isolation, machine_pools, version_standing
from experiments.cluster.snapshot import is_silent
from experiments.cluster.version_standing import VersionStanding
from experiments.models import GenerationRecord, Node
from experiments.models.definitions import TORCHRUN
from experiments.selectors.timeline import Lane
from training_runtime.scheduling.isolation import Standing

MOST_NODES = 200


@dataclass(frozen=True)
class NodeRow:
    """A node as the cluster page lists it. `state`: "ready", "full" (nothing can be written there), "draining" or "silent"; `devices`: how
    many of each kind, as "4 × H200"; `out`: how many slots look ill. `door`: how it stands to running people's code; `version`: and to the
    version that the studio speaks."""

    node: Node
    state: str
    slots: int
    held: int
    away: int
    out: int
    devices: list[str]
    door: Standing
    version: VersionStanding


def kinds_differ() -> bool:
    """Whether there are machines between which a run that has trained does not move by itself."""
    there = Node.objects.filter(removed_at=None).exclude(torch_version="")
    return len({machine_pools.kind(node) for node in there[:MOST_NODES]}) > 1


def rows(lanes: Iterable[Lane], *, now: dt.datetime) -> list[NodeRow]:
    """The nodes with what their lanes say of them, by name."""
    of: dict[int, list[Lane]] = defaultdict(list)
    for lane in lanes:
        of[lane.slot.node_id].append(lane)
    doors = isolation.doors()
    return [
        NodeRow(
            node=node,
            state="silent" if is_silent(node, now) else "full" if node.storage_problem else "draining" if node.draining else "ready",
            slots=len(of[node.pk]),
            held=sum(lane.is_held() for lane in of[node.pk]),
            away=sum(lane.slot.draining and not lane.is_held() for lane in of[node.pk]),
            out=sum(bool(lane.slot.out_reason) for lane in of[node.pk]),
            devices=_devices(node, of[node.pk]),
            door=doors.of(node),
            version=version_standing.of(node),
        )
        for node in Node.objects.filter(removed_at=None).order_by("name")[:MOST_NODES]
    ]


def _devices(node: Node, lanes: Sequence[Lane]) -> list[str]:
    """ "4 × NVIDIA H200" for each kind of GPU, and how many slots share them; for a node without one, its CPU slots and cores."""
    if node.gpus:
        shared = [f"shared by {len(lanes)} slots"] if len(lanes) > len(node.gpus) else []
        return [f"{count} × {name}" for name, count in Counter(map(str, node.gpus)).items()] + shared
    slots, cores = ("slot" if len(lanes) == 1 else "slots"), ("core" if node.cpu_count == 1 else "cores")
    return [f"{len(lanes)} CPU {slots} on {node.cpu_count} {cores}"] if lanes else []


def median_pause_ms(*, changes: int = 50) -> float | None:
    """What the latest changes of members took, of all runs whose workers go on; None before there was one."""
    going_on = GenerationRecord.objects.filter(workers_before__gt=0).exclude(run__version__distributed__in=TORCHRUN)
    found = going_on.order_by("-id").values_list("pause_ms", flat=True)[:changes]
    pauses = list(found)
    return median(pauses) if pauses else None
