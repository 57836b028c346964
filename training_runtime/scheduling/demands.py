"""What each run asks for, and why those that cannot run whatever the others do cannot. Standard library only.

Every run takes slots of one class, because its results are exact on one kind of device. A run that would take any is bound here: to the
class it is on, else to the one with most slots for each run that insists on it. Where a run trains on one machine, one that holds slots is
bound to theirs as well; the others choose when they start (see `machines`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from training_runtime.protocol import Device
from training_runtime.scheduling.demand import Block, Demand, positive
from training_runtime.scheduling.facts import Rules, RunFacts, SlotFacts
from training_runtime.scheduling.limits import Capacity, Limits
from training_runtime.scheduling.sizes import bounds

Place = tuple[Device, str]


def demands_of(
    slots: Iterable[SlotFacts], runs: Sequence[RunFacts], *, capacity: Capacity, rules: Rules, caps: Mapping[int, int]
) -> tuple[dict[int, Demand], dict[int, Block]]:
    """What every run asks for, and why those that cannot run whatever the others do cannot. `caps`: see `plan`."""
    limits = Limits(capacity, rules)
    keepable: dict[int, Place] = {slot.id: (slot.device, slot.pool or slot.node) for slot in slots if not slot.draining}
    avoided = _avoided(slots, runs)
    leaving = _leaving(slots, runs)
    insist = Counter(run.device for run in runs)
    plenty = sorted(capacity.of_class, key=lambda device: (capacity.of_class[device] / (1 + insist[device]), device), reverse=True)
    demands: dict[int, Demand] = {}
    blocks: dict[int, Block] = {}
    for run in runs:
        least, most = bounds(run)
        cap = caps.get(run.id, most) if caps else most
        held = run.held if run.id not in avoided else run.held - avoided[run.id]
        places = [keepable[slot] for slot in held if slot in keepable]
        if run.pinned and places:
            least = most = cap = len(places)
            block = None
        else:
            block = _never(run, least=least, limits=limits) or ("room" if cap < least else None)
        if block is not None:
            blocks[run.id] = block
        device = first = run.device
        if device is None and block is None:
            first = _class_for([], least=least, plenty=plenty, limits=limits)
            device = _class_for([of for of, _ in places], least=least, plenty=plenty, limits=limits)
        on, keeps = None, 0
        if places and device and rules.one_machine:
            on, keeps = _machine_for(run, device, places, least=least, capacity=capacity)
        elif places and device:
            keeps = sum(of == device for of, _ in places)
        occupied = keeps + leaving[run.id, device]
        order = (math.inf if run.remaining_s is None else run.remaining_s, run.submitted_at, run.id)
        demand = Demand(run, least, min(most, cap), first, device, on, keeps, occupied, positive(run.weight), order, capped=cap < most)
        demands[run.id] = demand
    return demands, blocks


def _avoided(slots: Iterable[SlotFacts], runs: Iterable[RunFacts]) -> dict[int, frozenset[int]]:
    """For each run that holds slots where it cannot work: which."""
    wary = [run for run in runs if run.avoids]
    node = {slot.id: slot.node for slot in slots} if wary else {}
    return {run.id: frozenset(slot for slot in run.held if node.get(slot) in run.avoids) for run in wary}


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
    return next(device for device in sorted(plenty, key=held.count, reverse=True) if limits.at_once[device] >= least)


def _machine_for(run: RunFacts, device: Device, places: Sequence[Place], *, least: int, capacity: Capacity) -> tuple[str | None, int]:
    """The machine of a run that holds slots, and how many of its class there; none if what is in service there cannot carry it."""
    room = run.room
    if room is not None and (count := places.count((device, room))) and capacity.on_machine[device][room] >= least:
        return room, count  # how it nearly always is
    held = Counter(node for of, node in places if of == device)
    if not held:
        return None, 0
    node = min(held, key=lambda name: (-held[name], name))
    return (node, held[node]) if capacity.on_machine[device][node] >= least else (None, 0)


def _never(run: RunFacts, *, least: int, limits: Limits) -> Block | None:
    """Why the run cannot run whatever the others do."""
    if run.paused:
        return "paused"
    there_is = max(limits.at_once.values(), default=0) if run.device is None else limits.at_once.get(run.device, 0)
    if least > there_is:
        return "too_large" if there_is else "no_device"
    return limits.over_quota(run, least)
