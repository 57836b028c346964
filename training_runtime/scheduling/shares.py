"""How many slots each run gets: the policy itself. Which slots those are is `placement`'s business. Standard library only.

Progressive filling: the person with the fewest slots for their weight takes the next step, again and again, until nothing fits; that is the
weighted max-min allocation (Bertsekas and Gallager, Data Networks, section 6.5.2), here in whole slots. A person's step starts their next
run at its minimum; when no more can start, it grows their smallest run to its next useful size. Under the priority policy each priority is
filled completely before the next lower one; under fair share everybody is in one level. Each class of slots is shared on its own.

Ties: whoever already holds what the step would give goes first, then the older run. One exception keeps a large run from waiting for ever
while small ones overtake it: runs younger than the oldest such run lose that advantage (see `_overtaken_since`).
What does not fit once never fits later in the same plan, because room and quotas only shrink; so one pass is enough.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush, heapreplace
from itertools import groupby

from training_runtime.protocol import Device
from training_runtime.scheduling.demands import Block, Demand, Limits, capacity_of, demands_of
from training_runtime.scheduling.facts import Rules, RunFacts, SlotFacts
from training_runtime.scheduling.sizes import next_size

# A person's turn: (slots per weight, 0 where they hold more already else 1, when their oldest run was submitted, next run). The smallest
# goes first. A run's turn to grow has the same form, told of the run. Run ids are unique, so both orders are total.
Turn = tuple[float, int, float, int]

# How often a plan is taken as carried out and asked again. Two are enough for nearly all facts that hypothesis could think of.
ROUNDS = 6


@dataclass(slots=True)
class Person:
    """What one person has taken so far, and their runs: those still to start (next one last) and those that may grow.

    `claim`: how many slots they occupy with runs that go before equals. A slot on its way from one of their runs to another counts, so
    that a tie is not decided anew in the middle of a handover.
    """

    weight: float
    claim: int
    since: float
    starts: list[Demand]
    growing: list[Turn] = field(default_factory=list)
    slots: int = 0

    def turn(self, run: int) -> Turn:
        """Their place in the order of the level; `run` is the one that they would start or grow next."""
        return (self.slots / self.weight, 0 if self.claim > self.slots else 1, self.since, run)


@dataclass(frozen=True)
class Shares:
    """How many slots each run gets, of which class, why those that get none do not, and what is left of room and quotas."""

    demands: Mapping[int, Demand]
    blocks: Mapping[int, Block]
    limits: Limits


def share_out(slots: Sequence[SlotFacts], runs: Sequence[RunFacts], *, rules: Rules) -> Shares:
    """Decide how many slots each run gets. The order of the input does not matter."""
    capacity = capacity_of(slots)
    demands, blocks = demands_of(slots, runs, limits=Limits(capacity, rules))
    wanting = [demand for demand in demands.values() if demand.run.id not in blocks]
    limits = _fill_anywhere(wanting, capacity, rules=rules)
    for _ in range(ROUNDS):
        if all(demand.size == demand.held for demand in wanting):
            break
        # Who holds what decides ties, so carrying the plan out could change the plan. Take it as carried out until it says the same again.
        for demand in wanting:
            demand.held = demand.occupied = demand.size
            if demand.size == 0:
                demand.device = demand.first
        limits = _fill_anywhere(wanting, capacity, rules=rules)
    for demand in wanting:
        if demand.size == 0:
            blocks[demand.run.id] = limits.over_quota(demand.run, demand.least) or "room"
    return Shares(demands=demands, blocks=blocks, limits=limits)


def _fill_anywhere(wanting: Sequence[Demand], capacity: Mapping[Device, int], *, rules: Rules) -> Limits:
    """Fill from nothing; runs that take any class, and get nothing in theirs, try the others. Each tries each class once, so this ends."""
    limits = _fill_all(wanting, capacity, rules=rules)
    tried: dict[int, set[Device | None]] = {demand.run.id: {demand.device} for demand in wanting if demand.run.device is None}
    moved = bool(tried)
    while moved:
        moved = False
        for demand in wanting:
            if demand.size or demand.run.device is not None:
                continue
            others = [(limits.room[device], device) for device in capacity if device not in tried[demand.run.id]]
            able = [(room, device) for room, device in others if capacity[device] >= demand.least]
            if able:
                demand.device = max(able)[1]
                demand.held = demand.occupied = 0
                tried[demand.run.id].add(demand.device)
                moved = True
        if moved:
            limits = _fill_all(wanting, capacity, rules=rules)
    return limits


def _fill_all(wanting: Sequence[Demand], capacity: Mapping[Device, int], *, rules: Rules) -> Limits:
    """Fill the levels one after the other, highest priority first, and in each the classes of slots. Returns what is left."""
    limits = Limits(capacity, rules)
    for demand in wanting:
        demand.size = 0
    levels = [wanting]
    if rules.policy == "priority":
        ordered = sorted(wanting, key=lambda demand: -demand.run.priority)
        levels = [list(level) for _, level in groupby(ordered, key=lambda demand: demand.run.priority)]
    for level in levels:
        by_device: dict[Device | None, list[Demand]] = defaultdict(list)
        for demand in level:
            by_device[demand.device].append(demand)
        for device in sorted(limits.room):
            if limits.room[device] and device in by_device:
                _fill(by_device[device], device, limits=limits, rules=rules)
    return limits


def _fill(level: Sequence[Demand], device: Device, *, limits: Limits, rules: Rules) -> None:
    """Progressive filling of one class of slots among equals: see the module's own words."""
    persons = _persons(level, rules=rules)
    demand_of = {demand.run.id: demand for demand in level}
    turns = [person.turn(person.starts[-1].run.id) for person in persons.values()]
    heapify(turns)
    while turns and limits.room[device]:
        demand = demand_of[turns[0][3]]
        person = persons[demand.run.person]
        _step(person, demand, limits=limits)
        if person.starts:
            heapreplace(turns, person.turn(person.starts[-1].run.id))
        elif person.growing:
            heapreplace(turns, person.turn(person.growing[0][3]))
        else:
            heappop(turns)


def _persons(level: Sequence[Demand], *, rules: Rules) -> dict[str, Person]:
    """Who takes part, their runs in the order in which they start."""
    by_person: dict[str, list[Demand]] = defaultdict(list)
    for demand in level:
        by_person[demand.run.person].append(demand)
    overtaken = {name: _overtaken_since(own) for name, own in by_person.items()}
    since = min((overtaken[name] for name, own in by_person.items() if not any(demand.held for demand in own)), default=math.inf)
    persons: dict[str, Person] = {}
    for name, own in by_person.items():
        for demand in own:
            demand.keeps = demand.held > 0 and demand.run.submitted_at <= overtaken[name]
        own.sort(key=lambda each: (not each.keeps, each.run.submitted_at, each.run.id), reverse=True)
        claim = sum(min(max(each.occupied, each.least), each.most) for each in own if each.held and each.run.submitted_at <= since)
        persons[name] = Person(weight_of(name, rules), claim, min(each.run.submitted_at for each in own), own)
    return persons


def _overtaken_since(runs: Iterable[Demand]) -> float:
    """When the oldest waiting run that needs several slots at once was submitted (infinity where there is none).

    Slots become free one by one, so smaller runs that came later would take each of them and the large run would wait for ever. Holders
    younger than it therefore lose the advantage of holding and queue by age: among a person's own runs always, between people where
    the one with the large run holds nothing.
    """
    return min((each.run.submitted_at for each in runs if each.least > 1 and not each.held and each.device == each.first), default=math.inf)


def _step(person: Person, demand: Demand, *, limits: Limits) -> None:
    """Start or grow one run if that fits; if not, it has got all it can."""
    before = demand.size
    if before == 0:
        person.starts.pop()
        if limits.take(demand, demand.least):
            person.slots += demand.least
            turn = _growth(demand)
            if turn is not None:
                heappush(person.growing, turn)
        return
    larger = next_size(before, engines=demand.run.engines, most=demand.most)
    turn = None
    if larger is not None and limits.take(demand, larger - before):
        person.slots += larger - before
        turn = _growth(demand)
    if turn is None:
        heappop(person.growing)
    else:
        heapreplace(person.growing, turn)


def _growth(demand: Demand) -> Turn | None:
    """The run's place among its person's runs that may grow; None when more slots would make it no faster."""
    larger = next_size(demand.size, engines=demand.run.engines, most=demand.most)
    if larger is None:
        return None
    run = demand.run
    return (demand.size / positive(run.weight), 0 if demand.held >= larger else 1, run.submitted_at, run.id)


def weight_of(person: str, rules: Rules) -> float:
    return positive(rules.person_weights.get(person, 1.0))


def positive(weight: float) -> float:
    """A weight of nothing would divide by zero; it counts as very little instead."""
    return max(weight, 1e-9)
