"""What each run asks for, and what there is to give: room in each class of slots, and quotas. Standard library only.

Every run takes slots of one class, because its results are exact on one kind of device. A run that would take any is bound here: to the
class it is on, else to the one with most slots for each run that insists on it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from training_runtime.protocol import Device
from training_runtime.scheduling.facts import Rules, RunFacts, SlotFacts
from training_runtime.scheduling.sizes import bounds, next_size

Block = Literal["paused", "no_device", "too_large", "person_quota", "project_quota", "room"]


@dataclass(slots=True)
class Demand:
    """A run while slots are shared out: the sizes it can have, its class of slots, and what it has been given so far.

    `first`: the class that a run which takes any tries first while it holds nothing. `held`: how many slots of its class it holds and may
    keep. `occupied`: those, and the ones that its processes have yet to leave. `keeps`: between equals it goes before newcomers.
    `larger`: the next useful size after `size`.
    """

    run: RunFacts
    least: int
    most: int
    first: Device | None
    device: Device | None
    held: int
    occupied: int
    weight: float
    keeps: bool = False
    size: int = 0
    larger: int | None = None


class Limits:
    """What may still be taken: room per class of slots, and quotas of persons and projects (counted only where there are any)."""

    def __init__(self, capacity: Mapping[Device, int], rules: Rules) -> None:
        self.capacity = capacity
        self.room = dict(capacity)
        self.person_quota, self.project_quota = rules.person_quota, rules.project_quota
        self.any_quota = bool(rules.person_quota or rules.project_quota)
        self.persons: Counter[str] = Counter()
        self.projects: Counter[str] = Counter()

    def over_quota(self, run: RunFacts, step: int) -> Block | None:
        """Which quota `step` more slots for the run would break."""
        if run.person in self.person_quota and self.persons[run.person] + step > self.person_quota[run.person]:
            return "person_quota"
        if run.project in self.project_quota and self.projects[run.project] + step > self.project_quota[run.project]:
            return "project_quota"
        return None

    def take(self, demand: Demand, step: int) -> bool:
        """Give `step` more slots to the run if they fit."""
        device, run = demand.device, demand.run
        assert device is not None, "a run is bound to a class of slots before it gets any"
        left = self.room[device] - step
        if left < 0:
            return False
        if self.any_quota:
            if self.over_quota(run, step) is not None:
                return False
            self.persons[run.person] += step
            self.projects[run.project] += step
        self.room[device] = left
        demand.size = size = demand.size + step
        demand.larger = next_size(size, engines=run.engines, most=demand.most) if size < demand.most else None
        return True


def capacity_of(slots: Iterable[SlotFacts]) -> dict[Device, int]:
    """How many slots of each class may be used: those that are not being drained."""
    capacity: dict[Device, int] = {}
    for (device, draining), count in Counter((slot.device, slot.draining) for slot in slots).items():
        capacity[device] = capacity.get(device, 0) + (0 if draining else count)
    return capacity


def demands_of(slots: Iterable[SlotFacts], runs: Sequence[RunFacts], *, limits: Limits) -> tuple[dict[int, Demand], dict[int, Block]]:
    """What every run asks for, and why those that cannot run whatever the others do cannot."""
    keepable = {slot.id: slot.device for slot in slots if not slot.draining}
    leaving = _leaving(slots, runs)
    insist = Counter(run.device for run in runs)
    plenty = sorted(limits.capacity, key=lambda device: (limits.capacity[device] / (1 + insist[device]), device), reverse=True)
    demands: dict[int, Demand] = {}
    blocks: dict[int, Block] = {}
    for run in runs:
        least, most = bounds(run)
        block = _never(run, least=least, limits=limits)
        if block is not None:
            blocks[run.id] = block
        held = [keepable[slot] for slot in run.held if slot in keepable]
        device = first = run.device
        if device is None and block is None:
            first = _class_for([], least=least, plenty=plenty, limits=limits)
            device = _class_for(held, least=least, plenty=plenty, limits=limits)
        keeps = held.count(device) if device else 0
        occupied = keeps + leaving[run.id, device]
        demands[run.id] = Demand(run, least, most, first, device, held=keeps, occupied=occupied, weight=positive(run.weight))
    return demands, blocks


def _leaving(slots: Iterable[SlotFacts], runs: Iterable[RunFacts]) -> Counter[tuple[int, Device | None]]:
    """For each run and class: the slots that it was asked to give back and still has a process on."""
    held_by = {run.id: run.held for run in runs}
    return Counter(
        (slot.holder, slot.device)
        for slot in slots
        if slot.holder is not None and not slot.draining and slot.id not in held_by.get(slot.holder, ())
    )


def _class_for(held: Sequence[Device], *, least: int, plenty: Iterable[Device], limits: Limits) -> Device:
    """The class of a run that takes any: the one it is on, if that can carry it at all."""
    return next(device for device in sorted(plenty, key=held.count, reverse=True) if limits.capacity[device] >= least)


def _never(run: RunFacts, *, least: int, limits: Limits) -> Block | None:
    """Why the run cannot run whatever the others do."""
    if run.paused:
        return "paused"
    there_is = max(limits.capacity.values(), default=0) if run.device is None else limits.capacity.get(run.device, 0)
    if least > there_is:
        return "too_large" if there_is else "no_device"
    return limits.over_quota(run, least)


def positive(weight: float) -> float:
    """A weight of nothing would divide by zero; it counts as very little instead."""
    return weight if weight > 1e-9 else 1e-9
