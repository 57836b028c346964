"""What there is to give while slots are shared out: room in each class of slots and on each machine, and quotas. Standard library only."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import cast

from training_runtime.protocol import Device
from training_runtime.scheduling.demand import Block, Demand
from training_runtime.scheduling.facts import Rules, RunFacts, SlotFacts
from training_runtime.scheduling.machines import Machines
from training_runtime.scheduling.sizes import next_size


@dataclass(frozen=True)
class Capacity:
    """The slots that may be used, those that are not being drained: how many of each class, and how many of them on each machine, where
    machines that share runs count as one (`SlotFacts.domain`).

    `at_once`: the most that one run can have of a class. `kinds`: the machines of each kind (`SlotFacts.kind`).
    """

    of_class: Mapping[Device, int]
    on_machine: Mapping[Device, Mapping[str, int]]
    at_once: Mapping[Device, int]
    kinds: Mapping[str, frozenset[str]]

    def at_once_in(self, domains: Collection[str]) -> dict[Device, int]:
        """The same for a run that can be on these machines only."""
        return {device: max((of_node.get(domain, 0) for domain in domains), default=0) for device, of_node in self.on_machine.items()}


def capacity_of(slots: Collection[SlotFacts], *, one_machine: bool) -> Capacity:
    of_class: dict[Device, int] = {}
    on_machine: dict[Device, dict[str, int]] = {}
    for (device, node, draining), count in Counter((slot.device, slot.pool or slot.node, slot.draining) for slot in slots).items():
        usable = 0 if draining else count
        of_class[device] = of_class.get(device, 0) + usable
        of_node = on_machine.setdefault(device, {})
        of_node[node] = of_node.get(node, 0) + usable
    largest = {device: max(of_node.values()) for device, of_node in on_machine.items()}
    kinds: dict[str, set[str]] = defaultdict(set)
    for kind, domain in {(slot.kind, slot.pool or slot.node) for slot in slots}:
        kinds[kind].add(domain)
    return Capacity(
        of_class, on_machine, largest if one_machine else of_class, {kind: frozenset(domains) for kind, domains in kinds.items()}
    )


class Limits:
    """What may still be taken: room per class of slots, on each machine where a run has only one, and quotas of persons and projects.

    `domains`: what is left of each class, by machine; under None where runs may be spread, and `machines` is empty then. `spare`: all of
    that together. Quotas are counted only where there are any.
    """

    def __init__(self, capacity: Capacity, rules: Rules) -> None:
        self.capacity = capacity.of_class
        self.at_once = capacity.at_once
        self.machines: dict[Device, Machines] = {}
        self.domains: dict[Device, dict[str | None, int]] = {device: {None: count} for device, count in capacity.of_class.items()}
        if rules.one_machine:
            self.machines = {device: Machines(of_node) for device, of_node in capacity.on_machine.items()}
            self.domains = {device: cast("dict[str | None, int]", of.free) for device, of in self.machines.items()}
        self.spare: dict[Device, int] = dict(capacity.of_class)
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

    def grow_run(self, demand: Demand, step: int) -> bool:
        """Give `step` more slots to the run if they fit. On one machine: one that starts, or must leave its own, gets another."""
        device, name = demand.device, demand.node
        assert device is not None, "a run is bound to a class of slots before it gets any"
        if self.any_quota and self.over_quota(demand.run, step) is not None:
            return False
        domains = self.domains[device]
        left = domains.get(name, 0) - step
        if left < 0:
            if demand.size or not self.machines or (name := self.machines[device].choose(demand)) is None:
                return False
            demand.node = name
            left = domains[name] - step
        domains[name] = left
        self.spare[device] -= step
        if self.any_quota:
            self._count(demand.run, step)
        demand.size = size = demand.size + step
        demand.larger = next_size(size, engines=demand.run.engines, most=demand.most) if size < demand.most else None
        return True

    def keep_held(self, demand: Demand) -> None:
        """Let the run have what it holds, quotas or not: nobody can take it away now."""
        assert demand.device is not None, "a run with slots is bound to a class of slots"
        demand.size = demand.held
        self.domains[demand.device][demand.node] -= demand.size
        self.spare[demand.device] -= demand.size
        self._count(demand.run, demand.size)

    def move(self, demand: Demand, *, to: str, size: int) -> None:
        """Let the run have `size` slots on machine `to` instead of those that it has where it is."""
        assert demand.device is not None, "a run with slots is bound to a class of slots"
        domains = self.domains[demand.device]
        domains[demand.node] += demand.size
        domains[to] -= size
        self.spare[demand.device] += demand.size - size
        self._count(demand.run, size - demand.size)
        demand.node, demand.size = to, size
        demand.larger = next_size(size, engines=demand.run.engines, most=demand.most)

    def _count(self, run: RunFacts, step: int) -> None:
        self.persons[run.person] += step
        self.projects[run.project] += step

    def left(self, device: Device) -> int:
        """How many slots of the class nobody has taken."""
        return self.spare[device]

    def free_for(self, demand: Demand) -> int:
        """How many more slots the run could have where it is, quotas aside."""
        assert demand.device is not None, "a run with slots is bound to a class of slots"
        return self.domains[demand.device][demand.node]

    def room_at_once(self, device: Device | None) -> int:
        """The most slots that one newcomer could have now of the class, or of any (None), quotas aside."""
        most = [max(of.values(), default=0) for each, of in self.domains.items() if device in (None, each)]
        return max(most, default=0)
