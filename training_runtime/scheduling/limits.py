"""What there is to give while slots are shared out: room in each class of slots and on each machine, and quotas. Standard library only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from training_runtime.protocol import Device
from training_runtime.scheduling.demand import Block, Demand
from training_runtime.scheduling.facts import Rules, RunFacts, SlotFacts
from training_runtime.scheduling.machines import Machines
from training_runtime.scheduling.sizes import next_size


@dataclass(frozen=True)
class Capacity:
    """The slots that may be used, those that are not being drained: how many of each class, and how many of them on each machine.

    `at_once`: the most that one run can have of a class.
    """

    of_class: Mapping[Device, int]
    on_machine: Mapping[Device, Mapping[str, int]]
    at_once: Mapping[Device, int]


def capacity_of(slots: Iterable[SlotFacts], *, one_machine: bool) -> Capacity:
    of_class: dict[Device, int] = {}
    on_machine: dict[Device, dict[str, int]] = {}
    for (device, node, draining), count in Counter((slot.device, slot.node, slot.draining) for slot in slots).items():
        usable = 0 if draining else count
        of_class[device] = of_class.get(device, 0) + usable
        of_node = on_machine.setdefault(device, {})
        of_node[node] = of_node.get(node, 0) + usable
    largest = {device: max(of_node.values()) for device, of_node in on_machine.items()}
    return Capacity(of_class, on_machine, largest if one_machine else of_class)


class Limits:
    """What may still be taken: room per class of slots, on each machine where a run has only one, and quotas of persons and projects.

    Quotas are counted only where there are any; `machines` is empty where runs may be spread.
    """

    def __init__(self, capacity: Capacity, rules: Rules) -> None:
        self.capacity = capacity.of_class
        self.at_once = capacity.at_once
        self.room = dict(capacity.of_class)
        self.machines: dict[Device, Machines] = {}
        if rules.one_machine:
            self.machines = {device: Machines(of_node) for device, of_node in capacity.on_machine.items()}
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
        """Give `step` more slots to the run if they fit. On one machine: one that starts, or must leave its own, gets another."""
        device = demand.device
        assert device is not None, "a run is bound to a class of slots before it gets any"
        left = self.room[device] - step
        if left < 0 or (self.any_quota and self.over_quota(demand.run, step) is not None):
            return False
        if self.machines:
            machines, name = self.machines[device], demand.node
            if name is None or machines.room[name] < step:
                name = None if demand.size else machines.choose(demand)
                if name is None:
                    return False
                demand.node = name
            machines.room[name] -= step
        if self.any_quota:
            self.persons[demand.run.person] += step
            self.projects[demand.run.project] += step
        self.room[device] = left
        demand.size = size = demand.size + step
        demand.larger = next_size(size, engines=demand.run.engines, most=demand.most) if size < demand.most else None
        return True

    def keep(self, demand: Demand) -> None:
        """Let the run have what it holds, quotas or not: nobody can take it away now."""
        assert demand.device is not None, "a run with slots is bound to a class of slots"
        demand.size = demand.held
        self.room[demand.device] -= demand.size
        if self.machines and demand.node is not None:
            self.machines[demand.device].room[demand.node] -= demand.size
        self.persons[demand.run.person] += demand.size
        self.projects[demand.run.project] += demand.size

    def room_for(self, demand: Demand) -> int:
        """How many more slots the run could have where it is, quotas aside."""
        assert demand.device is not None, "a run with slots is bound to a class of slots"
        if self.machines and demand.node is not None:
            return self.machines[demand.device].room[demand.node]
        return self.room[demand.device]

    def room_at_once(self, device: Device | None) -> int:
        """The most slots that one newcomer could have now of the class, or of any (None), quotas aside."""
        of_class = {each: max(of.room.values()) for each, of in self.machines.items()} if self.machines else self.room
        return max(of_class.values(), default=0) if device is None else of_class.get(device, 0)
