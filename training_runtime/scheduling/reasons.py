"""Why every run has what it has: one sentence each, for the people who share the slots. Standard library only.

A sentence depends on nothing but the facts and the decision, so it stays the same, letter by letter, while nothing changes; the forecast is
rounded on a coarse ladder for the same reason. People and runs are named, numbers of the database are not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from training_runtime.protocol import Device
from training_runtime.scheduling.demand import Demand
from training_runtime.scheduling.facts import Rules, RunFacts, SlotFacts
from training_runtime.scheduling.forecast import Forecast
from training_runtime.scheduling.scene import Scene, scene_of
from training_runtime.scheduling.shares import Shares
from training_runtime.scheduling.sizes import next_size
from training_runtime.scheduling.wording import about, label, listed, plural

BOUND = {
    "stays": "where its script is at work: it has not come to train(), so it cannot go on elsewhere",
    "moved": "where it has just moved to: to go on elsewhere would cost it more than to wait for a while",
    "environment": "where its environment is built: elsewhere it is not yet",
    "kind": "the machines of the kind that it has trained on: on another its results would differ",
    "isolated": "where people's code is kept apart: elsewhere nothing new is run until an administrator says that they trust each other",
}
ORDINALS = ("first", "second", "third", "fourth", "fifth")


def reasons(
    slots: Iterable[SlotFacts], shares: Shares, grants: Mapping[int, frozenset[int]], forecasts: Mapping[int, Forecast], *, rules: Rules
) -> dict[int, str]:
    """A sentence for every run."""
    scene = scene_of({slot.id: slot for slot in slots}, shares, grants, forecasts, rules=rules)
    return {run: _sentence(demand, scene) for run, demand in shares.demands.items()}


def _sentence(demand: Demand, scene: Scene) -> str:
    held, granted = demand.run.held, scene.grants[demand.run.id]
    if not granted:
        left = f"suspended: {_recipients(held, scene, by=demand.run)}; " if held and not demand.run.paused else ""
        return left + _why_none(demand, scene)
    turn = "; it goes first for a while, because it had waited too long" if demand.run.id in scene.shares.favoured else ""
    what = f"holds {_amount(demand, scene)}" if held == granted else _change(demand, held, granted, scene)
    return f"{what}: {_why_no_more(demand, scene)}{turn}"


def _amount(demand: Demand, scene: Scene) -> str:
    capacity = scene.shares.limits.capacity
    assert demand.device is not None, "a run with slots is bound to a class of slots"
    kind = f" {demand.device}" if len(capacity) > 1 else ""
    if demand.node in scene.pools:
        there = scene.shares.limits.machines[demand.device].capacity[demand.node]
        return f"{demand.size} of {there}{kind} slots, {_where(demand, scene)}"
    if demand.node is not None and scene.one_of_several(demand.device):
        there = scene.shares.limits.machines[demand.device].capacity[demand.node]
        return f"{demand.size} of {there}{kind} {'slot' if there == 1 else 'slots'} on {demand.node}"
    return f"{demand.size} of {capacity[demand.device]}{kind} slots"


def _where(demand: Demand, scene: Scene) -> str:
    """The machines of a run that may have several: "all on alpha", "4 on alpha and 2 on beta"."""
    counts = Counter(scene.slots[slot].node for slot in scene.grants[demand.run.id])
    names = sorted(counts, key=lambda name: (-counts[name], name))
    if len(names) == 1:
        return f"{'' if demand.size == 1 else 'all '}on {names[0]}"
    shown = [f"{counts[name]} on {name}" for name in (names if len(names) <= 3 else names[:2])]
    rest = [f"{sum(counts[name] for name in names[2:])} on {len(names) - 2} others"] if len(names) > 3 else []
    return listed([*shown, *rest])


def _change(demand: Demand, held: frozenset[int], granted: frozenset[int], scene: Scene) -> str:
    """Who or what made the run's slots change."""
    if not held:
        return f"starts with {_amount(demand, scene)}{_received(granted, scene, by=demand.run)}"
    left = sorted({scene.slots[slot].domain for slot in held if slot in scene.slots} - {demand.node})
    if demand.node is not None and left:
        forced = any(slot in scene.owner or (slot in scene.slots and scene.slots[slot].draining) for slot in held)
        given = f"{_recipients(held - granted, scene, by=demand.run)}, " if forced else ""
        why = "" if forced else ", where more is free,"
        return f"{given}moves from {listed(left)} to {demand.node}{why} and holds {_amount(demand, scene)}"
    if len(granted) > len(held):
        return f"grows from {len(held)} to {_amount(demand, scene)}{_received(granted - held, scene, by=demand.run)}"
    if len(granted) < len(held):
        return f"{_recipients(held - granted, scene, by=demand.run)} and holds {_amount(demand, scene)}"
    drained = sorted({scene.slots[slot].node for slot in held - granted if slot in scene.slots and scene.slots[slot].draining})
    because = f"{listed(drained)} gives its slots up for maintenance" if drained else "to be on fewer machines"
    return f"moves {plural(len(held - granted))} ({because}) and holds {_amount(demand, scene)}"


def _received(gained: Iterable[int], scene: Scene, *, by: RunFacts) -> str:
    """Who hands the gained slots over; nothing to say about slots that were free."""
    known = scene.shares.demands
    sources = Counter(
        label(known[scene.leaver[slot]].run, to=by) if scene.leaver[slot] in known else "a run that has ended"
        for slot in gained
        if slot in scene.leaver
    )
    return f", {plural(sources.total())} handed over by {listed(sorted(sources))}" if sources else ""


def _recipients(lost: frozenset[int], scene: Scene, *, by: RunFacts) -> str:
    """To whom the lost slots go, or why else they are given up."""
    takers: Counter[int] = Counter(scene.owner[slot] for slot in lost if slot in scene.owner)
    drained = sum(slot in scene.slots and scene.slots[slot].draining for slot in lost)
    rest = len(lost) - takers.total() - drained
    parts = []
    if takers:
        named = [_taker(scene.shares.demands[run].run, scene, by=by) for run in sorted(takers)]
        parts.append(f"gave {plural(takers.total())} to {listed(named)}")
    if drained:
        parts.append(f"left {plural(drained)} that will be out of service")
    if rest:
        parts.append(f"gave {plural(rest)} back")
    return listed(parts)


def _taker(run: RunFacts, scene: Scene, *, by: RunFacts) -> str:
    return f"{label(run, to=by)} (priority {run.priority})" if scene.rules.policy == "priority" else label(run, to=by)


def _why_no_more(demand: Demand, scene: Scene) -> str:
    """What keeps the run from having more slots than it has."""
    run, size = demand.run, demand.size
    if run.pinned:
        return f"{run.node or demand.node} is offline, so nothing changes there until it is back"
    larger = next_size(size, engines=run.engines, most=demand.most)
    if larger is None:
        if demand.capped:
            return _why_capped(run)
        if size == run.max_slots or run.engines is None:
            return "its maximum"
        if size >= run.engines:
            return f"one for each of its {plural(run.engines, 'engine')}"
        return f"its {run.engines} engines would be no faster on {size + 1}"
    quota = scene.shares.limits.over_quota(run, larger - size)
    if quota is not None:
        return _quota(run, quota, scene)
    assert demand.device is not None, "a run with slots is bound to a class of slots"
    free = scene.shares.limits.free_for(demand)
    if free:
        there = f" on {demand.node}" if scene.one_of_several(demand.device) else ""
        return f"the next size that is faster is {larger}, and only {free} more {'is' if free == 1 else 'are'} free{there}"
    return _shared(demand, demand.device, scene)


def _why_capped(run: RunFacts) -> str:
    """Why it cannot use what is free on some of the machines that share runs."""
    if run.always_alone:
        return "its script runs on the slots of one machine"
    if run.alone:
        return "it may have slots on other machines too once its script has come to train()"
    return f"it cannot work on {listed(sorted(run.avoids))}"


def _shared(demand: Demand, device: Device, scene: Scene) -> str:
    machine = scene.shares.limits.machines[device].capacity if scene.one_of_several(device) else {}
    if demand.node in scene.pools and demand.size == machine.get(str(demand.node)):
        return f"all there are on {demand.node}, and other machines share no run with {'it' if demand.size == 1 else 'them'}"
    if demand.node is not None and demand.size == machine.get(demand.node):
        return f"all there {'is' if demand.size == 1 else 'are'} on {demand.node}, and a run trains on one machine"
    persons = scene.sharers[device, demand.node, scene.level(demand.run)]
    if scene.rules.policy == "priority":
        equals = f", shared fairly between {listed(persons)}" if len(persons) > 1 else ""
        return f"priority {demand.run.priority}{equals}"
    if len(persons) > 1:
        return f"fair share between {listed(persons)}"
    if demand.size == scene.shares.limits.capacity[device]:
        return "all there are"
    return f"fair share between {demand.run.person}'s runs"


def _quota(run: RunFacts, quota: str, scene: Scene) -> str:
    if quota == "person_quota":
        return f"{run.person}'s quota is {plural(scene.rules.person_quota[run.person])}"
    return f"the quota of project {run.project} is {plural(scene.rules.project_quota[run.project])}"


def _why_none(demand: Demand, scene: Scene) -> str:
    """Why the run holds nothing, its place in the queue and what would have to happen."""
    run, block = demand.run, scene.shares.blocks[demand.run.id]
    if block == "paused":
        return "paused: holds nothing until somebody resumes it"
    needs = f"needs {plural(demand.least)}{' at once' if demand.least > 1 else ''}"
    there = scene.shares.limits.capacity
    kind = f" {run.device}" if run.device is not None and (len(there) > 1 or run.device not in there) else ""
    if block == "no_device":
        return f"waits: {needs}, and no{kind} slot is in service"
    if block == "too_large":
        at_once = scene.shares.limits.at_once
        most = max(at_once.values()) if run.device is None else at_once[run.device]
        return f"waits: {needs}, and only {most}{kind} {'is' if most == 1 else 'are'} in service{_together(run.device, scene)}"
    if block == "bound":
        way_out = "" if demand.bound == "isolated" else "; its owner can allow other kinds of machines"
        return f"waits: {_bound(demand, needs, scene)}{way_out}"
    why = _no_room(demand, needs, scene) if block == "room" else f"{needs}, and {_quota(run, block, scene)}"
    return f"waits: {why}; {_outlook(scene.forecasts[run.id], scene, to=run)}"


def _no_room(demand: Demand, needs: str, scene: Scene) -> str:
    limits, device = scene.shares.limits, demand.run.device
    if demand.domains is not None and not demand.domains >= _domains(demand, scene):
        return _bound(demand, needs, scene)
    free = scene.at_once[device]
    if demand.run.always_alone and free >= demand.least:
        return f"{needs} on one machine, and none has so many free"
    if free:
        return f"{needs}, and {free} {'is' if free == 1 else 'are'} free{_together(device, scene)}"
    total = sum(limits.capacity.values()) if device is None else limits.capacity[device]
    kind = f" {device}" if device is not None and len(limits.capacity) > 1 else ""
    held = f"the only{kind} slot is" if total == 1 else f"all {total}{kind} slots are"
    at = f" at priority {scene.lowest[device]} or higher" if scene.rules.policy == "priority" else ""
    return f"{needs}, and {held} held by {scene.holders[device]}{at}"


def _usable_classes(demand: Demand, scene: Scene) -> list[Device]:
    return [each for each in scene.shares.limits.machines if demand.run.device in (None, each)]


def _domains(demand: Demand, scene: Scene) -> frozenset[str]:
    """All machines that have slots of its class: where it is bound to no fewer of them, that is not why it waits."""
    return frozenset(domain for each in _usable_classes(demand, scene) for domain in scene.shares.limits.machines[each].free)


def _bound(demand: Demand, needs: str, scene: Scene) -> str:
    """What is free where a run can be that cannot use every machine, and why it cannot."""
    limits, domains = scene.shares.limits, demand.domains or frozenset()
    free = max((limits.machines[each].free.get(domain, 0) for each in _usable_classes(demand, scene) for domain in domains), default=0)
    where = listed(sorted(domains)) or "any machine that it can use"
    there = f"{free or 'none'} {'is' if free == 1 else 'are'} free on {where}"
    return f"{needs}, and {there}, {BOUND[demand.bound]}"


def _together(device: Device | None, scene: Scene) -> str:
    if not scene.one_of_several(device):
        return ""
    return " on machines that can share a run" if scene.pools else " on one machine"


def _outlook(found: Forecast, scene: Scene, *, to: RunFacts) -> str:
    position = found.waiting.position
    place = f"{ORDINALS[position - 1]} in the queue" if position <= len(ORDINALS) else f"number {position} in the queue"
    if found.waiting.expected_s is None or found.after is None:
        return place
    return f"{place}; expected in {about(found.waiting.expected_s)}, when {label(scene.shares.demands[found.after].run, to=to)} ends"
