"""What would be otherwise: wishes put onto the facts of a simulation. A pure function, standard library only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from training_runtime.protocol import Device
from training_runtime.scheduling.facts import Policy, RunFacts, SlotFacts
from training_runtime.scheduling.simulation import Job, Scene, Work

NEW_RUN = 0  # the number of the run that is only thought of: no real one has it


@dataclass(frozen=True)
class NewRun:
    """A run that somebody might submit at `at`, on the clock of the runs. `lasts_s`: how long it would run on all of `max_slots`."""

    person: str
    at: float
    lasts_s: float
    max_slots: int
    device: Device | None = None
    priority: int = 5000


@dataclass(frozen=True)
class Wish:
    """What would be otherwise, from now on; None and nothing: as it is.

    `more`: how many more machines there are, each like the one called `like`. `without`: machines that are drained. `person_weights`: of
    those whose weight changes.
    """

    more: int = 0
    like: str = ""
    without: frozenset[str] = frozenset()
    policy: Policy | None = None
    person_weights: Mapping[str, float] = field(default_factory=dict)
    run: NewRun | None = None

    def is_nothing(self) -> bool:
        return self == Wish(like=self.like)


def wished(scene: Scene, wish: Wish) -> Scene:
    """The scene as it would be. Slots of further machines have negative numbers, `added` says of which machine and which slot each is."""
    weights = {**scene.rules.person_weights, **wish.person_weights}
    rules = replace(scene.rules, policy=wish.policy or scene.rules.policy, person_weights=weights)
    slots = [replace(slot, draining=True) if slot.node in wish.without else slot for slot in scene.slots]
    new = added(scene, wish)
    jobs = scene.jobs
    if new:
        slots += [slot for slot, _ in new]
        domains = frozenset(slot.domain for slot, _ in new)
        domain = next(of.domain for _, of in new)
        jobs = tuple(replace(job, facts=_may_use(job.facts, domain, domains)) for job in jobs)
    if wish.run is not None:
        jobs = (*jobs, _job(wish.run))
    return replace(scene, slots=tuple(slots), jobs=jobs, rules=rules)


def added(scene: Scene, wish: Wish) -> list[tuple[SlotFacts, SlotFacts]]:
    """(slot of a further machine, the slot that it is like), in their order."""
    like = [slot for slot in scene.slots if slot.node == wish.like]
    made = [(replace(slot, node=f"{slot.node} (new {number})"), slot) for number in range(1, wish.more + 1) for slot in like]
    return [(replace(slot, id=-place, draining=False, holder=None), of) for place, (slot, of) in enumerate(made, start=1)]


def _may_use(facts: RunFacts, domain: str, domains: frozenset[str]) -> RunFacts:
    """The new machines have what the one has that they are like: environments, and a box that keeps people's code apart."""
    ready = facts.ready_in | domains if facts.ready_in is not None and domain in facts.ready_in else facts.ready_in
    isolated = facts.isolated_in | domains if facts.isolated_in is not None and domain in facts.isolated_in else facts.isolated_in
    return facts if (ready, isolated) == (facts.ready_in, facts.isolated_in) else replace(facts, ready_in=ready, isolated_in=isolated)


def _job(new: NewRun) -> Job:
    facts = RunFacts(
        id=NEW_RUN,
        name="",
        person=new.person,
        project="",
        submitted_at=new.at,
        max_slots=new.max_slots,
        engines=new.max_slots,
        priority=new.priority,
        device=new.device,
    )
    return Job(facts, Work(new.lasts_s, {new.max_slots: 1.0}))
