"""How many slots each run gets: the policy itself. Which slots those are is `placement`'s business. Standard library only.

Progressive filling: the person with the fewest slots for their weight takes the next step, again and again, until nothing fits; that is the
weighted max-min allocation (Bertsekas and Gallager, Data Networks, section 6.5.2), here in whole slots. A person's step starts their next
run at its minimum; when no more can start, it grows their smallest run to its next useful size. Under the priority policy each priority is
filled completely before the next lower one; under fair share everybody is in one level. Each class of slots is shared on its own.

Ties: whoever already holds what the step would give goes first, then the older run; among one person's runs that may grow, the one with
least time left goes before the older one. One exception keeps a large run from waiting for ever while small ones overtake it: runs younger
than the oldest such run lose that advantage (see `_overtaken_since`).
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
from training_runtime.scheduling.ageing import favoured_of
from training_runtime.scheduling.demand import Block, Demand, positive
from training_runtime.scheduling.demands import Memory, demands_of
from training_runtime.scheduling.facts import Rules, RunFacts, SlotFacts
from training_runtime.scheduling.limits import Capacity, Limits, capacity_of
from training_runtime.scheduling.relocation import relocate

# The smallest goes first; the number makes it total. A run: (slots per weight, whether the step is new to it, what decides a tie). A person
# among those with equal slots per weight: (whether the step is new to them, when their oldest run was submitted, number).
RunTurn = tuple[float, bool, tuple[float, float, int], Demand]
PersonTurn = tuple[bool, float, int, "Person"]

# How often a plan is taken as carried out and asked again. Two are enough for nearly all facts that hypothesis could think of.
ROUNDS = 6


@dataclass(slots=True)
class Person:
    """What one person has taken so far, and their runs: those still to start (next one last) and those that may grow.

    `claim`: how many slots they occupy with runs that go before equals. A slot on its way from one of their runs to another counts, so
    that a tie is not decided anew in the middle of a handover. `since`, `number`: when their oldest run was submitted, and its id.
    """

    weight: float
    claim: int
    since: float
    number: int
    starts: list[Demand]
    growing: list[RunTurn] = field(default_factory=list)
    slots: int = 0

    def turn(self) -> PersonTurn:
        """Their place among those who have as many slots for their weight."""
        return (self.claim <= self.slots, self.since, self.number, self)

    def step(self, limits: Limits) -> bool:
        """Start or grow the first run in turn for which that fits; those before it have all they can get. False when no run is left."""
        starts, growing = self.starts, self.growing
        while starts:
            demand = starts.pop()
            if limits.grow_run(demand, demand.least):
                self.slots += demand.least
                if demand.larger is not None:
                    heappush(growing, _growth(demand, demand.larger))
                return bool(starts or growing)
        while growing:
            demand = growing[0][3]
            larger = demand.larger
            assert larger is not None, "a run is in the list to grow while there is a larger size"
            step = larger - demand.size
            if not limits.grow_run(demand, step):
                heappop(growing)
                continue
            self.slots += step
            if demand.larger is None:
                heappop(growing)
                return bool(growing)
            heapreplace(growing, _growth(demand, demand.larger))
            return True
        return False


def _growth(demand: Demand, larger: int) -> RunTurn:
    """The run's place among its person's runs that may grow.

    Equals get equal numbers; an odd slot is worth most to the run that is soonest done, because all of its share is free again then.
    """
    return (demand.size / demand.weight, demand.held < larger, demand.order, demand)


@dataclass(frozen=True)
class Shares:
    """How many slots each run gets, of which class, why those that get none do not, and what is left of room and quotas."""

    demands: Mapping[int, Demand]
    blocks: Mapping[int, Block]
    limits: Limits
    favoured: frozenset[int]  # runs that went first because they had waited too long


def share_out(
    slots: Sequence[SlotFacts],
    runs: Sequence[RunFacts],
    *,
    rules: Rules,
    now: float,
    caps: Mapping[int, int] | None = None,
    memory: Memory | None = None,
) -> Shares:
    """Decide how many slots each run gets. Slots come by number, runs oldest first. `caps`: the most that some runs, by their ids, can have
    where their slots would be. `memory`: of whoever asks again and again; the answer before is not to be read any more then."""
    capacity = capacity_of(slots, one_machine=rules.one_machine)
    demands, blocks = demands_of(slots, runs, capacity=capacity, rules=rules, caps=caps or {}, now=now, memory=memory)
    wanting = [demand for demand in demands.values() if demand.run.id not in blocks]
    favoured = favoured_of(wanting, now=now)
    limits = _fill_anywhere(wanting, capacity, rules=rules, favoured=favoured)
    for _ in range(ROUNDS):
        if all(demand.size == demand.held for demand in wanting):
            break
        # Who holds what decides ties, so carrying the plan out could change the plan. Take it as carried out until it says the same again.
        for demand in wanting:
            demand.held, demand.occupied, demand.on = demand.size, demand.size, demand.node
            if demand.size == 0:
                demand.device, demand.on = demand.first, demand.only_room()
        limits = _fill_anywhere(wanting, capacity, rules=rules, favoured=favoured)
    if rules.one_machine:
        relocate(wanting, limits)
    for demand in wanting:
        if demand.size == 0:
            blocks[demand.run.id] = (limits.over_quota(demand.run, demand.least) if limits.any_quota else None) or "room"
    first = frozenset(demand.run.id for demand in favoured.values() if demand.size)
    return Shares(demands=demands, blocks=blocks, limits=limits, favoured=first)


def _fill_anywhere(wanting: Sequence[Demand], capacity: Capacity, *, rules: Rules, favoured: Mapping[Device, Demand]) -> Limits:
    """Fill from nothing; runs that take any class, and get nothing in theirs, try the others. Each tries each class once, so this ends."""
    limits = _fill_all(wanting, capacity, rules=rules, favoured=favoured)
    tried: dict[int, set[Device | None]] = {demand.run.id: {demand.device} for demand in wanting if demand.run.device is None}
    moved = bool(tried)
    while moved:
        moved = False
        for demand in wanting:
            if demand.size or demand.run.device is not None or demand.domains is not None:
                continue
            others = [(limits.left(device), device) for device in capacity.of_class if device not in tried[demand.run.id]]
            able = [(domain, device) for domain, device in others if capacity.at_once[device] >= demand.least]
            if able:
                demand.device = max(able)[1]
                demand.held, demand.occupied, demand.on = 0, 0, None
                tried[demand.run.id].add(demand.device)
                moved = True
        if moved:
            limits = _fill_all(wanting, capacity, rules=rules, favoured=favoured)
    return limits


def _fill_all(wanting: Sequence[Demand], capacity: Capacity, *, rules: Rules, favoured: Mapping[Device, Demand]) -> Limits:
    """Fill the levels one after the other, highest priority first, and in each the classes of slots. Returns what is left."""
    limits = Limits(capacity, rules)
    for demand in wanting:
        demand.size, demand.node, demand.larger = 0, demand.on, None
    for demand in wanting:
        if demand.run.pinned and demand.held:
            limits.keep_held(demand)
    levels = [list(wanting)]
    if rules.policy == "priority":
        ordered = sorted(wanting, key=lambda demand: -demand.run.priority)
        levels = [list(level) for _, level in groupby(ordered, key=lambda demand: demand.run.priority)]
    by_device = [_by_device(level) for level in levels]
    for place, level in enumerate(by_device):
        for device in sorted(limits.domains):
            if device not in level or not limits.left(device):
                continue
            if limits.machines:
                below = (demand for lower in by_device[place + 1 :] for demand in lower.get(device, ()))
                limits.machines[device].open(level[device], below)
            first = favoured.get(device)
            if first is not None and first.device == device and not first.size and _is_of(first, level[device], rules):
                limits.grow_run(first, first.least)
            _fill(level[device], device, limits=limits, rules=rules)
    return limits


def _is_of(demand: Demand, level: Sequence[Demand], rules: Rules) -> bool:
    """Whether the run is served with these."""
    return rules.policy != "priority" or demand.run.priority == level[0].run.priority


def _by_device(level: Iterable[Demand]) -> dict[Device | None, list[Demand]]:
    by_device: dict[Device | None, list[Demand]] = defaultdict(list)
    for demand in level:
        by_device[demand.device].append(demand)
    return by_device


def _fill(level: Sequence[Demand], device: Device, *, limits: Limits, rules: Rules) -> None:
    """Progressive filling of one class of slots among equals: see the module's own words."""
    # Everybody's turns by their slots per weight. A step always makes that larger, so a list is complete before its turn comes.
    turns: dict[float, list[PersonTurn]] = defaultdict(list)
    for person in _serve_in_peace(_persons(level, rules=rules), level, device, limits=limits):
        turns[person.slots / person.weight].append(person.turn())
    shares = list(turns)
    heapify(shares)
    while shares:
        for *_, person in sorted(turns.pop(heappop(shares))):
            if not limits.spare[device]:
                return
            if not person.step(limits):
                continue
            share = person.slots / person.weight
            if share not in turns:
                heappush(shares, share)
            turns[share].append(person.turn())


def _serve_in_peace(persons: Sequence[Person], level: Iterable[Demand], device: Device, *, limits: Limits) -> list[Person]:
    """Serve everybody up to the level at which nobody can have been refused anything yet; who wants more.

    Until everybody has `calm` slots for their weight, and one step more, all there is suffices. So far the order in which people take
    their turns makes no difference, and going by person is cheaper than by turn. (Quotas and single machines refuse before slots run out.)
    """
    if limits.any_quota or limits.machines or not persons:  # nobody, where a run that went first was the only one
        return list(persons)
    widest = max(demand.most for demand in level)
    calm = (limits.left(device) - widest * len(persons)) / sum(person.weight for person in persons)
    if calm <= 0:
        return list(persons)
    left = []
    for person in persons:
        enough = calm * person.weight
        while person.slots < enough:
            if not person.step(limits):
                break
        else:
            left.append(person)
    return left


def _persons(level: Sequence[Demand], *, rules: Rules) -> list[Person]:
    """Who takes part, their runs in the order in which they start."""
    by_person: dict[str, list[Demand]] = defaultdict(list)
    for demand in level:
        by_person[demand.run.person].append(demand)
    overtaken = {name: _overtaken_since(own) for name, own in by_person.items()}
    since = min((overtaken[name] for name, own in by_person.items() if not any(demand.held for demand in own)), default=math.inf)
    persons: list[Person] = []
    for name, own in by_person.items():
        oldest, claim, slots = own[0].run, 0, 0
        first: list[Demand] = []
        later: list[Demand] = []
        growing: list[RunTurn] = []  # those that have been given something before everybody's turns began
        for demand in own:
            demand.keeps = demand.held > 0 and demand.run.submitted_at <= overtaken[name]
            if demand.held and demand.run.submitted_at <= since:
                claim += min(max(demand.occupied, demand.least), demand.most)
            if not demand.size:
                (first if demand.keeps else later).append(demand)
                continue
            slots += demand.size
            if demand.larger is not None and not demand.run.pinned:
                growing.append(_growth(demand, demand.larger))
        starts = [*reversed(later), *reversed(first)]
        if starts or growing:
            persons.append(Person(weight_of(name, rules), claim, oldest.submitted_at, oldest.id, starts, growing, slots))
    return persons


def _overtaken_since(runs: Iterable[Demand]) -> float:
    """When the oldest waiting run that needs several slots at once was submitted (infinity where there is none). `runs`: oldest first.

    Slots become free one by one, so smaller runs that came later would take each of them and the large run would wait for ever. Holders
    younger than it therefore lose the advantage of holding and queue by age: among a person's own runs always, between people where
    the one with the large run holds nothing.
    """
    for demand in runs:
        if demand.least > 1 and not demand.held and demand.device == demand.first:
            return demand.run.submitted_at
    return math.inf


def weight_of(person: str, rules: Rules) -> float:
    return positive(rules.person_weights.get(person, 1.0))
