"""In which order waiting runs come, and when each may expect to start. Standard library only.

The order is the one in which `shares` would serve them if slots became free one by one. The time is a forecast from the remaining times of
the runs that hold slots now: their slots go to the queue as they end. Runs without an estimate are taken to stay, so a forecast is an upper
bound as far as the estimates are right; nothing is promised.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from heapq import heappop, heapreplace

from training_runtime.scheduling.demand import Block, Demand
from training_runtime.scheduling.facts import Rules, Waiting
from training_runtime.scheduling.shares import Shares, weight_of

Pool = tuple[str, str | None, frozenset[str] | None]  # slots of what ("device", "person", "project"), of which, on which machines


@dataclass(frozen=True)
class Forecast:
    """A place in the queue, and the run whose end makes room where that is known."""

    waiting: Waiting
    after: int | None


@dataclass(slots=True)
class Supply:
    """Slots becoming free in one pool over time: (seconds from now, slots, run), soonest first, and how many of them are not spoken for."""

    ends: list[tuple[float, int, int]]
    free: int
    next: int = 0

    def when(self, needs: int) -> float | None:
        """When `needs` more slots will have become free; None: not in sight."""
        free, place = self.free, self.next
        while free < needs and place < len(self.ends):
            free += self.ends[place][1]
            place += 1
        if free < needs:
            return None
        return self.ends[place - 1][0] if place else 0.0

    def promise(self, needs: int) -> tuple[float, int | None] | None:
        """When `needs` more slots will have become free, and whose end brings the last of them. None: not in sight."""
        while self.free < needs and self.next < len(self.ends):
            self.free += self.ends[self.next][1]
            self.next += 1
        if self.free < needs:
            return None
        self.free -= needs
        if self.next == 0:
            return 0.0, None
        expected_s, _, run = self.ends[self.next - 1]
        return expected_s, run


@dataclass(slots=True)
class AnyMachine:
    """Several machines, one of which has to have all that a run needs."""

    machines: list[Supply]
    soonest: dict[int, list[tuple[float, int]]] = field(default_factory=dict)

    def promise(self, needs: int) -> tuple[float, int | None] | None:
        """The soonest of what the machines could promise."""
        if needs not in self.soonest:
            self.soonest[needs] = [(0.0, place) for place in range(len(self.machines))]
        heap = self.soonest[needs]
        while heap:
            expected_s, place = heap[0]
            now_s = self.machines[place].when(needs)
            if now_s is None:
                heappop(heap)
            elif now_s > expected_s:
                heapreplace(heap, (now_s, place))  # times only become later, so the soonest is found in this way
            else:
                return self.machines[place].promise(needs)
        return None


def forecast(shares: Shares, *, rules: Rules) -> dict[int, Forecast]:
    """Position, need and expected start of every run that waits. Paused runs are in no queue."""
    waiting = _in_order(shares, rules=rules)
    if not waiting:
        return {}
    ends = sorted(
        (max(0.0, demand.run.remaining_s), demand.size, demand.run.id)
        for demand in shares.demands.values()
        if demand.size and demand.run.remaining_s is not None
    )
    supplies: dict[Pool, Supply | AnyMachine] = {}
    machines = _machines(ends, shares) if shares.limits.machines else {}
    found: dict[int, Forecast] = {}
    for position, demand in enumerate(waiting, start=1):
        block = shares.blocks[demand.run.id]
        promise = None
        if block not in ("no_device", "too_large", "bound"):
            pool = _pool(demand, block)
            if pool not in supplies:
                supplies[pool] = _supply(pool, ends, machines, shares=shares, rules=rules)
            promise = supplies[pool].promise(demand.least)
        expected_s, after = promise if promise is not None else (None, None)
        found[demand.run.id] = Forecast(Waiting(position=position, needs=demand.least, expected_s=expected_s), after)
    return found


def _in_order(shares: Shares, *, rules: Rules) -> list[Demand]:
    if not any(demand.size == 0 for demand in shares.demands.values()):
        return []
    by_person: dict[tuple[int, str], list[Demand]] = defaultdict(list)
    slots: dict[tuple[int, str], int] = defaultdict(int)
    for demand in shares.demands.values():
        level = -demand.run.priority if rules.policy == "priority" else 0
        slots[level, demand.run.person] += demand.size
        if demand.size == 0 and shares.blocks[demand.run.id] != "paused":
            by_person[level, demand.run.person].append(demand)
    turns: list[tuple[int, float, float, int]] = []
    for (level, person), demands in by_person.items():
        taken, weight = slots[level, person], weight_of(person, rules)
        for demand in sorted(demands, key=lambda each: (each.run.submitted_at, each.run.id)):
            turns.append((level, taken / weight, demand.run.submitted_at, demand.run.id))
            taken += demand.least
    return [shares.demands[run] for *_, run in sorted(turns)]


def _pool(demand: Demand, block: Block) -> Pool:
    """Which slots have to become free: the person's own or the project's where a quota holds the run back, else those of its class, on the
    machines where it can have them."""
    if block == "person_quota":
        return "person", demand.run.person, None
    if block == "project_quota":
        return "project", demand.run.project, None
    return "device", demand.run.device, demand.domains


def _machines(ends: Iterable[tuple[float, int, int]], shares: Shares) -> dict[tuple[str, str], Supply]:
    """What becomes free on each machine, by class of slots."""
    of_machine: dict[tuple[str, str], list[tuple[float, int, int]]] = defaultdict(list)
    for end in ends:
        demand = shares.demands[end[2]]
        of_machine[str(demand.device), str(demand.node)].append(end)
    left = ((device, node, free) for device, of in shares.limits.machines.items() for node, free in of.free.items())
    return {(device, node): Supply(of_machine[device, node], free) for device, node, free in left}


def _supply(
    pool: Pool,
    ends: Iterable[tuple[float, int, int]],
    machines: Mapping[tuple[str, str], Supply],
    *,
    shares: Shares,
    rules: Rules,
) -> Supply | AnyMachine:
    kind, name, nodes = pool
    limits = shares.limits
    if kind == "device" and limits.machines:
        # The same supplies for everybody: what is promised to one is promised to nobody else.
        return AnyMachine(
            [each for (device, node), each in machines.items() if name in (None, device) and (nodes is None or node in nodes)]
        )
    if kind == "device":
        free = sum(limits.left(device) for device in limits.domains if name in (None, device))
        return Supply([end for end in ends if name is None or shares.demands[end[2]].device == name], free)
    quotas: Mapping[str, int] = rules.person_quota if kind == "person" else rules.project_quota
    used = limits.persons if kind == "person" else limits.projects
    of_pool = [end for end in ends if getattr(shares.demands[end[2]].run, kind) == name]
    return Supply(of_pool, quotas[str(name)] - used.get(str(name), 0))
