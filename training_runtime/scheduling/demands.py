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
from training_runtime.scheduling.demand import Block, Bound, Demand, positive
from training_runtime.scheduling.facts import Rules, RunFacts, SlotFacts
from training_runtime.scheduling.limits import Capacity, Limits
from training_runtime.scheduling.moves import has_just_moved
from training_runtime.scheduling.sizes import bounds

Location = tuple[Device, str]


class Memory:
    """What runs that hold nothing asked for, for who decides again and again: a simulation. It is the same as long as the run's facts are
    the same object, and slots and rules are equal to those before."""

    def __init__(self) -> None:
        self._of: tuple[Capacity, Rules] | None = None
        self.known: dict[int, tuple[RunFacts, Demand, Block | None]] = {}

    def begin(self, capacity: Capacity, rules: Rules) -> None:
        """Forget everything if it was asked for among other slots, or under other rules."""
        if self._of != (capacity, rules):
            self._of, self.known = (capacity, rules), {}


def demands_of(
    slots: Iterable[SlotFacts],
    runs: Sequence[RunFacts],
    *,
    capacity: Capacity,
    rules: Rules,
    caps: Mapping[int, int],
    now: float,
    memory: Memory | None = None,
) -> tuple[dict[int, Demand], dict[int, Block]]:
    """What every run asks for, and why those that cannot run whatever the others do cannot. `caps`: see `plan`."""
    asking = _Asking(slots, runs, capacity=capacity, rules=rules, caps=caps, now=now)
    memory = memory or Memory()
    memory.begin(capacity, rules)
    known, leaving = memory.known, asking.leaving
    demands: dict[int, Demand] = {}
    blocks: dict[int, Block] = {}
    for run in runs:
        before = known.get(run.id)
        if before is not None and before[0] is run and run.id not in caps:
            _, demand, block = before
            demand.forget(occupied=leaving[run.id, run.device] if leaving else 0)
        else:
            demand, block = asking.of(run)
            if asking.is_lasting(run):
                known[run.id] = run, demand, block
        demands[run.id] = demand
        if block is not None:
            blocks[run.id] = block
    return demands, blocks


class _Asking:
    """What is looked up for one run after the other. `leaving`: for each run and class the slots that it has yet to leave."""

    def __init__(
        self,
        slots: Iterable[SlotFacts],
        runs: Sequence[RunFacts],
        *,
        capacity: Capacity,
        rules: Rules,
        caps: Mapping[int, int],
        now: float,
    ) -> None:
        self._capacity, self._one_machine, self._caps, self._now = capacity, rules.one_machine, caps, now
        self._limits = Limits(capacity, rules)
        self._keepable: dict[int, Location] = {slot.id: (slot.device, slot.pool or slot.node) for slot in slots if not slot.draining}
        self._avoided = _avoided(slots, runs)
        self.leaving = _leaving(slots, runs)
        insist = Counter(run.device for run in runs)
        of_class = capacity.of_class
        self._plenty = sorted(of_class, key=lambda device: (of_class[device] / (1 + insist[device]), device), reverse=True)

    def is_lasting(self, run: RunFacts) -> bool:
        """Whether it will ask for the same until something about it changes, whoever else there is and however late it is."""
        return not run.held and run.device is not None and run.id not in self._caps and not has_just_moved(run, now=self._now)

    def of(self, run: RunFacts) -> tuple[Demand, Block | None]:
        least, most = bounds(run)
        caps, capacity, keepable = self._caps, self._capacity, self._keepable
        cap = caps.get(run.id, most) if caps else most
        held = run.held if run.id not in self._avoided else run.held - self._avoided[run.id]
        places = [keepable[slot] for slot in held if slot in keepable]
        domains, bound = _bounds(run, least=least, capacity=capacity, now=self._now) if self._one_machine else (None, "")
        at_once = capacity.at_once if domains is None else capacity.at_once_in(domains)
        if run.pinned and places:
            least = most = cap = len(places)
            block = None
        else:
            block = _never(run, least=least, limits=self._limits, at_once=at_once) or ("room" if cap < least else None)
        device = first = run.device
        if device is None and block is None:
            first = _class_for([], least=least, plenty=self._plenty, at_once=at_once)
            device = _class_for([of for of, _ in places], least=least, plenty=self._plenty, at_once=at_once)
        on, keeps = None, 0
        if places and device and self._one_machine:
            on, keeps = _machine_for(run, device, places, least=least, capacity=capacity)
        elif places and device:
            keeps = sum(of == device for of, _ in places)
        occupied = keeps + self.leaving[run.id, device]
        order = (math.inf if run.remaining_s is None else run.remaining_s, run.submitted_at, run.id)
        demand = Demand(run, least, min(most, cap), first, device, on, keeps, occupied, positive(run.weight), order, capped=cap < most)
        demand.domains, demand.bound = domains, bound
        demand.on = on or demand.only_room()
        return demand, block


def _bounds(run: RunFacts, *, least: int, capacity: Capacity, now: float) -> tuple[frozenset[str] | None, Bound]:
    """Where a run that trains on one machine can have slots, None: anywhere; and why. It is not sent from where it has slots for want of an
    environment, nor because its machine has come to refuse what is new: its process has been let in already."""
    domains, bound = _bounds_of_old(run, least=least, capacity=capacity, now=now)
    own = {run.domain} if run.held and run.domain else set()
    if run.ready_in is not None:
        ready = run.ready_in | own
        domains, bound = (ready, "environment") if domains is None else (domains & ready, bound)
    if run.isolated_in is not None:
        isolated = run.isolated_in | own
        if domains is None or (bound == "moved" and not domains & isolated):
            return isolated, "isolated"
        return domains & isolated, bound if domains <= isolated else "isolated"
    return domains, bound


def _bounds_of_old(run: RunFacts, *, least: int, capacity: Capacity, now: float) -> tuple[frozenset[str] | None, Bound]:
    """The same by what it has done so far."""
    domain = run.domain
    if domain is None:
        return None, ""
    if run.stays:
        return frozenset({domain}), "stays"
    if has_just_moved(run, now=now) and max(capacity.at_once_in((domain,)).values(), default=0) >= least:
        return frozenset({domain}), "moved"
    if run.kind and capacity.kinds.keys() - {run.kind, ""}:
        alike = capacity.kinds.get(run.kind, frozenset()) | capacity.kinds.get("", frozenset())
        return alike | {domain}, "kind"
    return None, ""


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


def _class_for(held: Sequence[Device], *, least: int, plenty: Iterable[Device], at_once: Mapping[Device, int]) -> Device:
    """The class of a run that takes any: the one it is on, if that can carry it at all."""
    return next(device for device in sorted(plenty, key=held.count, reverse=True) if at_once[device] >= least)


def _machine_for(run: RunFacts, device: Device, places: Sequence[Location], *, least: int, capacity: Capacity) -> tuple[str | None, int]:
    """The machine of a run that holds slots, and how many of its class there; none if what is in service there cannot carry it."""
    domain = run.domain
    if domain is not None and (count := places.count((device, domain))) and capacity.on_machine[device][domain] >= least:
        return domain, count  # how it nearly always is
    held = Counter(node for of, node in places if of == device)
    if not held:
        return None, 0
    node = min(held, key=lambda name: (-held[name], name))
    return (node, held[node]) if capacity.on_machine[device][node] >= least else (None, 0)


def _never(run: RunFacts, *, least: int, limits: Limits, at_once: Mapping[Device, int]) -> Block | None:
    """Why the run cannot run whatever the others do. `at_once`: the most it could have of each class where it may be."""
    if run.paused:
        return "paused"
    there_is = max(limits.at_once.values(), default=0) if run.device is None else limits.at_once.get(run.device, 0)
    if least > there_is:
        return "too_large" if there_is else "no_device"
    if least > (max(at_once.values(), default=0) if run.device is None else at_once.get(run.device, 0)):
        return "bound"
    return limits.over_quota(run, least)
