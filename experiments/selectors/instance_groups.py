"""The cluster as WMLA's console shows it: an instance group, which has nodes and runs applications.

There is one, whatever scripts from elsewhere call theirs (see experiments.wmla.described.group_id): slots are shared by the rules of
sharing and not divided among groups.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from experiments.models import RunState, Slot, TrainingRun
from experiments.selectors.nodes import NodeRow
from experiments.selectors.timeline import Lane

NAME = "EDT Studio"


@dataclass(frozen=True)
class InstanceGroup:
    """`ready`: takes applications on all of its nodes; `started`: on some; `stopped`: on none. Slots as (held, all)."""

    name: str
    state: Literal["ready", "started", "stopped"]
    applications: int
    cpu_slots: tuple[int, int]
    gpu_slots: tuple[int, int]
    hosts: int


def group(nodes: Sequence[NodeRow], lanes: Sequence[Lane]) -> InstanceGroup:
    """As it is now."""
    serving = sum(row.state == "ready" for row in nodes)
    held, slots = Counter(lane.slot.device for lane in lanes if lane.is_held()), Counter(lane.slot.device for lane in lanes)
    return InstanceGroup(
        name=NAME,
        state="stopped" if not serving else "started" if serving < len(nodes) else "ready",
        applications=TrainingRun.objects.filter(state=RunState.RUNNING).count(),
        cpu_slots=(held[Slot.Device.CPU], slots[Slot.Device.CPU]),
        gpu_slots=(held[Slot.Device.GPU], slots[Slot.Device.GPU]),
        hosts=len(nodes),
    )
