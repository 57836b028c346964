"""Which slots a run gets, once `shares` has said how many. Standard library only.

In this order: a run keeps what it holds; what it must give up comes from the machines where it has least; what it gains comes first from
the machines it is already on, then from the fullest machine that takes all it still needs (best fit), else from the emptiest. Vacant
slots go before slots that somebody's process has yet to leave, so that nobody waits for a slow leaver while there is room. At the end a
run is moved onto fewer machines where vacant slots allow it: gradients that cross no network are the only benefit for which a run is
moved at all. Of equal machines the one where its driver is comes first. All of that happens among the machines that share the run; a run
that cannot use all of those may get fewer slots than it was to have.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

from training_runtime.protocol import Device
from training_runtime.scheduling.demand import Demand
from training_runtime.scheduling.facts import SlotFacts


@dataclass(slots=True)
class Node:
    """The slots of one class on one machine that no run has yet. `order` is its place among the machines, by name."""

    order: int
    name: str
    free: list[SlotFacts] = field(default_factory=list)
    occupied: int = 0

    @property
    def vacant(self) -> int:
        """How many of the free slots have no process of anybody."""
        return len(self.free) - self.occupied

    def take_slots(self, count: int, *, by: int) -> list[int]:
        """Up to `count` slots: those without a process first (the run's own counts as none), then by number."""
        if self.occupied:
            self.free.sort(key=lambda slot: (slot.holder is not None and slot.holder != by, slot.id))
        taken, self.free = self.free[:count], self.free[count:]
        self.occupied -= sum(slot.holder is not None for slot in taken)
        return [slot.id for slot in taken]

    def give(self, slots: Iterable[SlotFacts]) -> None:
        for slot in slots:
            self.free.append(slot)
            self.occupied += slot.holder is not None
        self.free.sort(key=lambda slot: slot.id)


class Floor:
    """The machines with slots of one class, and which of them have how many free: those that no run keeps."""

    def __init__(self, slots: Sequence[SlotFacts], *, kept: Collection[int]) -> None:
        sizes = Counter(slot.node for slot in slots)
        self.nodes = {name: Node(order, name) for order, name in enumerate(sorted(sizes))}
        for slot in slots:
            if slot.id not in kept:
                node = self.nodes[slot.node]
                node.free.append(slot)
                node.occupied += slot.holder is not None
        largest = max(sizes.values(), default=0)
        # One heap for each number of vacant and of free slots, with the other number, the machine's place and its name. Entries go stale
        # when a machine changes; they are recognised and dropped when met.
        self._by_vacant: list[list[tuple[int, int, str]]] = [[] for _ in range(largest + 1)]
        self._by_free: list[list[tuple[int, int, str]]] = [[] for _ in range(largest + 1)]
        for node in self.nodes.values():
            if node.free:
                self._file(node)

    def _file(self, node: Node) -> None:
        heappush(self._by_vacant[node.vacant], (len(node.free), node.order, node.name))
        heappush(self._by_free[len(node.free)], (-node.vacant, node.order, node.name))

    def take_slots(self, name: str, count: int, *, by: int) -> list[int]:
        node = self.nodes[name]
        if not node.free:
            return []
        taken = node.take_slots(count, by=by)
        self._file(node)
        return taken

    def give(self, name: str, slots: Iterable[SlotFacts]) -> None:
        node = self.nodes[name]
        node.give(slots)
        self._file(node)

    def best(self, count: int) -> str | None:
        """The fullest machine that has `count` vacant slots, else the fullest with `count` free ones, else the one with most free."""
        most = len(self._by_free)
        for size in range(count, most):
            heap = self._by_vacant[size]
            while heap:
                free, _, name = heap[0]
                node = self.nodes[name]
                if node.vacant == size and len(node.free) == free:
                    return node.name
                heappop(heap)
        for size in (*range(count, most), *range(min(count, most) - 1, 0, -1)):
            heap = self._by_free[size]
            while heap:
                vacant, _, name = heap[0]
                node = self.nodes[name]
                if len(node.free) == size and node.vacant == -vacant:
                    return node.name
                heappop(heap)
        return None

    def best_among(self, count: int, names: Iterable[str]) -> str | None:
        """The same for a run that cannot use every machine: of those named."""
        nodes = [self.nodes[name] for name in names if self.nodes[name].free]
        return min(nodes, key=lambda node: _worth(node, count)).name if nodes else None


def _worth(node: Node, count: int) -> tuple[int, int, int, int]:
    """The machine's place in the order of `Floor.best`: the smallest is the best."""
    if node.vacant >= count:
        return 0, node.vacant, len(node.free), node.order
    return (1, len(node.free), -node.vacant, node.order) if len(node.free) >= count else (2, -len(node.free), -node.vacant, node.order)


NOTHING: frozenset[int] = frozenset()
Domain = tuple[Device, str | None]  # the machines of a class of slots among which a run is placed: one or some that share it, or all (None)


class Floors:
    """The floor of each pool, and one for all other machines of a class of slots."""

    def __init__(self, slots: Iterable[SlotFacts], *, pools: Collection[str], kept: Collection[int]) -> None:
        self._pools = pools
        floors: dict[Domain, list[SlotFacts]] = defaultdict(list)
        for slot in slots:
            floors[slot.device, slot.pool if slot.pool in pools else None].append(slot)
        self._floors = {domain: Floor(of_domain, kept=kept) for domain, of_domain in floors.items()}

    def of(self, demand: Demand) -> Floor:
        assert demand.device is not None, "a run with slots is bound to a class of slots"
        return self._floors[demand.device, demand.node if demand.node in self._pools else None]

    def only(self, demand: Demand) -> str | None:
        """The machine that has to have all of the run's slots, where there is one."""
        return None if demand.node in self._pools else demand.node


def assign_slots(slots: Iterable[SlotFacts], demands: Iterable[Demand], *, one_domain: bool = False) -> dict[int, frozenset[int]]:
    """Choose the slots of every run, `demand.size` of its class. Slots come by number, runs oldest first. `one_room`: each run has all its
    slots in one (`SlotFacts.domain`), which its demand names."""
    usable = {slot.id: slot for slot in slots if not slot.draining}
    ordered = list(demands)
    numbers: dict[Domain, set[int]] = defaultdict(set)
    for slot in usable.values():
        numbers[slot.device, (slot.pool or slot.node) if one_domain else None].add(slot.id)
    grants = _keep_held(usable, ordered, numbers=numbers)
    kept = set().union(*grants.values())
    pools = {slot.pool for slot in usable.values()} - {""} if one_domain else set[str]()
    floors = Floors(usable.values(), pools=pools, kept=kept)
    short = [demand for demand in ordered if demand.size > len(grants[demand.run.id])]
    for demand in short:
        _extend_at_home(demand, grants[demand.run.id], floors=floors, usable=usable)
    for demand in sorted(short, key=lambda each: (not _is_bound(each), len(grants[each.run.id]) - each.size)):
        if floors.only(demand) is None:
            _extend(demand, grants[demand.run.id], floor=floors.of(demand))
    if (pools or not one_domain) and sum(map(len, grants.values())) < len(usable):  # else there is no room to move into
        _gather([demand for demand in ordered if floors.only(demand) is None], grants, floors=floors, usable=usable)
    return {run: frozenset(of_run) if of_run else NOTHING for run, of_run in grants.items()}


def _head_node(demand: Demand) -> str:
    """Where its driver is; empty where runs are spread over all machines, and the planner is not told."""
    return demand.run.node or "" if demand.node is not None else ""


def _is_bound(demand: Demand) -> bool:
    """Whether it cannot use every machine that it could get slots on: it chooses before those that can."""
    return demand.run.alone or bool(demand.run.avoids)


def _keep_held(usable: Mapping[int, SlotFacts], ordered: Iterable[Demand], *, numbers: Mapping[Domain, set[int]]) -> dict[int, set[int]]:
    """What every run keeps of what it holds: as many as its size, on the machines where it has most. `numbers`: the slots of each floor."""
    grants: dict[int, set[int]] = {}
    taken: set[int] = set()
    for demand in ordered:
        run = demand.run
        held: set[int] = set()
        if run.held and demand.device is not None and (demand.device, demand.node) in numbers:
            held = (numbers[demand.device, demand.node] & run.held) - taken
        if held and (len(held) > demand.size or _is_bound(demand)):
            held = _best_of(demand, held, usable)
        grants[run.id] = held
        taken |= held
    return grants


def _best_of(demand: Demand, held: set[int], usable: Mapping[int, SlotFacts]) -> set[int]:
    """Of the slots held as many as the run's size, on the machines where it has most; none where it cannot work."""
    run = demand.run
    per_node = Counter(node for slot in held if (node := usable[slot].node) not in run.avoids)
    by_company = sorted(per_node, key=lambda name: (-per_node[name], name != _head_node(demand), name))
    place = {name: number for number, name in enumerate(by_company[:1] if run.alone else by_company)}
    return set(
        sorted((slot for slot in held if usable[slot].node in place), key=lambda slot: (place[usable[slot].node], slot))[: demand.size]
    )


def _extend_at_home(demand: Demand, grant: set[int], *, floors: Floors, usable: Mapping[int, SlotFacts]) -> None:
    """Grow on the machines the run is already on, where it has most first, or where its driver is if that has room for all that is missing;
    on the only one, where there is one."""
    run, head_node, floor = demand.run, _head_node(demand), floors.of(demand)
    if (only := floors.only(demand)) is not None:
        if only not in run.avoids:
            grant.update(floor.take_slots(only, demand.size - len(grant), by=run.id))
        return
    parts = Counter(usable[slot].node for slot in grant)
    names = sorted(parts, key=lambda name: (-parts[name], name != head_node, name))
    if not names and head_node in floor.nodes and floor.nodes[head_node].vacant >= demand.size:
        names = [head_node]
    for name in names:
        if name not in run.avoids:
            grant.update(floor.take_slots(name, demand.size - len(grant), by=run.id))


def _extend(demand: Demand, grant: set[int], *, floor: Floor) -> None:
    """Grow onto further machines, as few as possible."""
    run = demand.run
    while len(grant) < demand.size and not (run.alone and grant):
        missing = demand.size - len(grant)
        name = floor.best_among(missing, floor.nodes.keys() - run.avoids) if run.avoids else floor.best(missing)
        if name is None:
            assert _is_bound(demand), "shares never hands out more slots than there are"
            return
        grant.update(floor.take_slots(name, missing, by=run.id))


def _gather(ordered: Iterable[Demand], grants: dict[int, set[int]], *, floors: Floors, usable: Mapping[int, SlotFacts]) -> None:
    """Move runs onto fewer machines while free slots allow it. Each move empties a machine of a run, so this ends."""
    spread = [demand for demand in ordered if _is_spread(demand, grants[demand.run.id], usable)]
    moved = True
    while moved:
        moved = False
        for demand in spread:
            moved |= _gather_one(demand, grants[demand.run.id], floor=floors.of(demand), usable=usable)


def _is_spread(demand: Demand, grant: set[int], usable: Mapping[int, SlotFacts]) -> bool:
    return demand.size > 1 and not demand.run.pinned and len({usable[slot].node for slot in grant}) > 1


def _gather_one(demand: Demand, grant: set[int], *, floor: Floor, usable: Mapping[int, SlotFacts]) -> bool:
    """Move the run's smallest part to a machine where it has at least as much, if that has vacant slots for all of the part."""
    parts = Counter(usable[slot].node for slot in grant)
    by_size = sorted(parts, key=lambda name: (parts[name], name == _head_node(demand), name))
    if len(by_size) < 2:
        return False
    smallest = by_size[0]
    target = next((name for name in reversed(by_size[1:]) if floor.nodes[name].vacant >= parts[smallest]), None)
    if target is None:
        return False
    leaving = [usable[slot] for slot in sorted(grant) if usable[slot].node == smallest]
    grant.difference_update(slot.id for slot in leaving)
    grant.update(floor.take_slots(target, len(leaving), by=demand.run.id))
    floor.give(smallest, leaving)
    return True
