"""Which slots a run gets, once `shares` has said how many. Standard library only.

In this order: a run keeps what it holds; what it must give up comes from the machines where it has least; what it gains comes first from
the machines it is already on, then from the fullest machine that takes all it still needs (best fit), else from the emptiest. Vacant
slots go before slots that somebody's process has yet to leave, so that nobody waits for a slow leaver while there is room. At the end a
run is moved onto fewer machines where vacant slots allow it: gradients that cross no network are the only benefit for which a run is
moved at all.
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

    def take(self, count: int, *, by: int) -> list[int]:
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

    def take(self, name: str, count: int, *, by: int) -> list[int]:
        node = self.nodes[name]
        if not node.free:
            return []
        taken = node.take(count, by=by)
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


def place(slots: Iterable[SlotFacts], demands: Iterable[Demand]) -> dict[int, frozenset[int]]:
    """Choose the slots of every run, `demand.size` of its class. Slots come by number, runs oldest first."""
    usable = {slot.id: slot for slot in slots if not slot.draining}
    ordered = list(demands)
    by_device: dict[Device, list[SlotFacts]] = defaultdict(list)
    for slot in usable.values():
        by_device[slot.device].append(slot)
    grants = _keep(usable, ordered, numbers={device: {slot.id for slot in of_class} for device, of_class in by_device.items()})
    kept = set().union(*grants.values())
    floors = {device: Floor(of_class, kept=kept) for device, of_class in by_device.items()}
    short = [demand for demand in ordered if demand.size > len(grants[demand.run.id])]
    for demand in short:
        _extend_at_home(demand, grants[demand.run.id], floors=floors, usable=usable)
    for demand in sorted(short, key=lambda each: len(grants[each.run.id]) - each.size):
        _extend(demand, grants[demand.run.id], floors=floors)
    _gather(ordered, grants, floors=floors, usable=usable)
    return {run: frozenset(of_run) for run, of_run in grants.items()}


def _keep(usable: Mapping[int, SlotFacts], ordered: Iterable[Demand], *, numbers: Mapping[Device, set[int]]) -> dict[int, set[int]]:
    """What every run keeps of what it holds: as many as its size, on the machines where it has most. `numbers`: the slots of each class."""
    grants: dict[int, set[int]] = {}
    taken: set[int] = set()
    for demand in ordered:
        held: set[int] = set()
        if demand.run.held and demand.device is not None and demand.device in numbers:
            held = (numbers[demand.device] & demand.run.held) - taken
            if demand.node not in (None, demand.run.node):
                held = {slot for slot in held if usable[slot].node == demand.node}
        if len(held) > demand.size:
            per_node = Counter(usable[slot].node for slot in held)
            by_company = sorted(held, key=lambda slot: (-per_node[usable[slot].node], usable[slot].node, slot))
            held = set(by_company[: demand.size])
        grants[demand.run.id] = held
        taken |= held
    return grants


def _extend_at_home(demand: Demand, grant: set[int], *, floors: Mapping[Device, Floor], usable: Mapping[int, SlotFacts]) -> None:
    """Grow on the machines the run is already on, where it has most first; on its only one, where it has only one."""
    assert demand.device is not None, "a run with slots is bound to a class of slots"
    if demand.node is not None:
        grant.update(floors[demand.device].take(demand.node, demand.size - len(grant), by=demand.run.id))
        return
    homes = Counter(usable[slot].node for slot in grant)
    for name in sorted(homes, key=lambda home: (-homes[home], home)):
        grant.update(floors[demand.device].take(name, demand.size - len(grant), by=demand.run.id))


def _extend(demand: Demand, grant: set[int], *, floors: Mapping[Device, Floor]) -> None:
    """Grow onto further machines, as few as possible."""
    assert demand.device is not None, "a run with slots is bound to a class of slots"
    floor = floors[demand.device]
    while len(grant) < demand.size:
        missing = demand.size - len(grant)
        name = floor.best(missing)
        assert name is not None, "shares never hands out more slots than there are"
        grant.update(floor.take(name, missing, by=demand.run.id))


def _gather(
    ordered: Iterable[Demand], grants: dict[int, set[int]], *, floors: Mapping[Device, Floor], usable: Mapping[int, SlotFacts]
) -> None:
    """Move runs onto fewer machines while free slots allow it. Each move empties a machine of a run, so this ends."""
    if not any(node.free for floor in floors.values() for node in floor.nodes.values()):
        return
    spread = [demand for demand in ordered if demand.size > 1 and len({usable[slot].node for slot in grants[demand.run.id]}) > 1]
    moved = True
    while moved:
        moved = False
        for demand in spread:
            assert demand.device is not None, "a run with slots is bound to a class of slots"
            moved |= _gather_one(demand, grants[demand.run.id], floor=floors[demand.device], usable=usable)


def _gather_one(demand: Demand, grant: set[int], *, floor: Floor, usable: Mapping[int, SlotFacts]) -> bool:
    """Move the run's smallest part to a machine where it has at least as much, if that has vacant slots for all of the part."""
    parts = Counter(usable[slot].node for slot in grant)
    by_size = sorted(parts, key=lambda name: (parts[name], name))
    if len(by_size) < 2:
        return False
    smallest = by_size[0]
    target = next((name for name in reversed(by_size[1:]) if floor.nodes[name].vacant >= parts[smallest]), None)
    if target is None:
        return False
    leaving = [usable[slot] for slot in sorted(grant) if usable[slot].node == smallest]
    grant.difference_update(slot.id for slot in leaving)
    grant.update(floor.take(target, len(leaving), by=demand.run.id))
    floor.give(smallest, leaving)
    return True
