"""What the sentences about runs are told from: the facts, the decision, and who is in it. Standard library only."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from training_runtime.protocol import Device
from training_runtime.scheduling.demand import Demand
from training_runtime.scheduling.facts import Rules, RunFacts, SlotFacts
from training_runtime.scheduling.forecast import Forecast
from training_runtime.scheduling.shares import Shares
from training_runtime.scheduling.wording import listed


@dataclass(frozen=True)
class Scene:
    """What the sentences are told from: the facts, the decision, and who is in it."""

    slots: Mapping[int, SlotFacts]
    shares: Shares
    grants: Mapping[int, frozenset[int]]
    forecasts: Mapping[int, Forecast]
    rules: Rules
    owner: Mapping[int, int]  # slot -> the run that gets it
    leaver: Mapping[int, int]  # slot -> the run that held it before, where that is another one
    # class, machine and level -> persons who have slots there, with weights; where runs may be spread (None) also those who wait
    sharers: Mapping[tuple[Device, str | None, int], tuple[str, ...]]
    holders: Mapping[Device | None, str]  # class -> "alice and bob", who have the most slots of it first
    lowest: Mapping[Device | None, int]  # class -> lowest priority that has slots there
    at_once: Mapping[Device | None, int]  # class -> the most slots that a newcomer could have now
    several: frozenset[Device]  # classes with several machines (or pools), on one of which a run has to be
    pools: frozenset[str]  # what machines that share runs are called

    def level(self, run: RunFacts) -> int:
        return run.priority if self.rules.policy == "priority" else 0

    def one_of_several(self, device: Device | None) -> bool:
        """Whether a run of this class has to be on one of several machines."""
        return bool(self.several) if device is None else device in self.several


def scene_of(
    slots: Mapping[int, SlotFacts],
    shares: Shares,
    grants: Mapping[int, frozenset[int]],
    forecasts: Mapping[int, Forecast],
    *,
    rules: Rules,
) -> Scene:
    owner = {slot: run for run, of_run in grants.items() for slot in of_run}
    leaver = {slot: run for run, demand in shares.demands.items() for slot in demand.run.held if owner.get(slot) != run}
    leaver.update(
        {slot.id: slot.holder for slot in slots.values() if slot.holder is not None and owner.get(slot.id, slot.holder) != slot.holder}
    )
    sharers, taken, lowest = _shared(shares, rules)
    return Scene(
        slots=slots,
        shares=shares,
        grants=grants,
        forecasts=forecasts,
        rules=rules,
        owner=owner,
        leaver=leaver,
        sharers={key: tuple(_weighed(person, rules) for person in sorted(persons)) for key, persons in sharers.items()},
        holders={
            pool: listed([name for name, _ in sorted(of.items(), key=lambda item: (-item[1], item[0]))]) for pool, of in taken.items()
        },
        lowest=lowest,
        at_once={device: shares.limits.room_at_once(device) for device in (None, *shares.limits.capacity)},
        pools=frozenset(slot.pool for slot in slots.values() if slot.pool) if rules.one_machine else frozenset(),
        several=frozenset(each for each, of in shares.limits.machines.items() if sum(count > 0 for count in of.capacity.values()) > 1),
    )


def _shared(
    shares: Shares, rules: Rules
) -> tuple[dict[tuple[Device, str | None, int], set[str]], dict[Device | None, Counter[str]], dict[Device | None, int]]:
    """Who shares each class, machine and level; how many slots of each class people have; the lowest priority that has any."""
    waiting = bool(shares.blocks)  # who holds how much is told to those who wait
    sharers: dict[tuple[Device, str | None, int], set[str]] = defaultdict(set)
    taken: dict[Device | None, Counter[str]] = defaultdict(Counter)
    lowest: dict[Device | None, int] = {}
    for demand in shares.demands.values():
        run = demand.run
        if not demand.size and shares.blocks[run.id] != "room":
            continue
        for device in _classes(demand, shares):
            sharers[device, demand.node, run.priority if rules.policy == "priority" else 0].add(run.person)
        if demand.size and waiting:
            for pool in (demand.device, None):
                taken[pool][run.person] += demand.size
                lowest[pool] = min(run.priority, lowest.get(pool, run.priority))
    return sharers, taken, lowest


def _classes(demand: Demand, shares: Shares) -> Iterable[Device]:
    """The classes that a run has slots of, or else waits for; where it trains on one machine, it shares with those who are there."""
    if demand.size:
        return () if demand.device is None else (demand.device,)
    if shares.limits.machines:
        return ()
    return shares.limits.capacity if demand.run.device is None else (demand.run.device,)


def _weighed(person: str, rules: Rules) -> str:
    """Their name, with their weight where it is not the usual one."""
    weight = rules.person_weights.get(person, 1.0)
    return person if weight == 1.0 else f"{person} (weight {weight:g})"
