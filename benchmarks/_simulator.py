"""Replays a workload through a policy, event by event. The policies fair share and priority are the studio's own `plan`, unchanged.

An event is a job's arrival or its end; the policy is asked after each, or at most every `every_s` seconds for very large workloads. A job
whose members change, its start included, stands still for `change_s`; that time is charged on all slots it then holds. Everything else a
job does with its slots is work.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush

from benchmarks._ledger import Ledger
from benchmarks._workload import Job, Workload
from training_runtime.scheduling.demand import Demand
from training_runtime.scheduling.facts import Policy, Rules, RunFacts, SlotFacts
from training_runtime.scheduling.placement import assign_slots
from training_runtime.scheduling.plan import plan

# Slot-seconds after which Tiresias moves a job to its second queue.
TIRESIAS_QUEUE = 16 * 3600.0

Grants = Mapping[int, frozenset[int]]


@dataclass
class Active:
    """A job that is in the system. `left` steps at `since_s`; it stands still until `resumes_s`. `attained`: slot-seconds so far.

    `known_rate`: its speed on the slots that it held last; None before it has held any.
    """

    job: Job
    left: float
    held: frozenset[int] = frozenset()
    rate: float = 0.0
    known_rate: float | None = None
    since_s: float = 0.0
    resumes_s: float = 0.0
    version: int = 0
    attained: float = 0.0

    def left_at(self, now: float) -> float:
        return self.left - max(0.0, now - max(self.since_s, self.resumes_s)) * self.rate

    def advance(self, now: float) -> None:
        self.left = self.left_at(now)
        self.attained += (now - self.since_s) * len(self.held)
        self.since_s = now

    def ends_s(self) -> float:
        return max(self.since_s, self.resumes_s) + max(0.0, self.left) / self.rate if self.rate else math.inf


@dataclass(frozen=True)
class Outcome:
    """What came of it: when each job ended, and the ledger of who held what meanwhile."""

    policy: str
    workload: Workload
    ended_s: Mapping[int, float]
    ledger: Ledger
    decisions: int


Decide = Callable[[Sequence[Active], Sequence[SlotFacts], float], Grants]


def first_come_first_served(active: Sequence[Active], slots: Sequence[SlotFacts], now: float) -> Grants:
    """The static peer: a job starts when all the slots it asked for are free, in order of arrival, and keeps them to its end."""
    free = len(slots) - sum(len(each.held) for each in active)
    sizes = {}
    for each in sorted(active, key=_by_arrival):
        size = len(each.held)
        if size == 0 and each.job.slots <= free:
            size = each.job.slots
            free -= size
        elif size == 0:
            free = 0
        sizes[each.job.id] = size
    return _placed(active, slots, sizes, now)


def tiresias(active: Sequence[Active], slots: Sequence[SlotFacts], now: float) -> Grants:
    """The preempting peer: all or nothing of what a job asked for; those with little service so far go before the others.

    Two queues, each in order of arrival (Gu et al., NSDI 2019), with one threshold between them.
    """
    for each in active:
        each.advance(now)
    free = len(slots)
    sizes = {}
    for each in sorted(active, key=lambda one: (one.attained >= TIRESIAS_QUEUE, *_by_arrival(one))):
        sizes[each.job.id] = each.job.slots if each.job.slots <= free else 0
        free -= sizes[each.job.id]
    return _placed(active, slots, sizes, now)


def _by_arrival(active: Active) -> tuple[float, int]:
    return active.job.submitted_s, active.job.id


def _placed(active: Sequence[Active], slots: Sequence[SlotFacts], sizes: Mapping[int, int], now: float) -> Grants:
    demands = []
    for each in sorted((one for one in active if sizes[one.job.id]), key=_by_arrival):
        run, held = facts(each, now), len(each.held)
        order = (0.0, run.submitted_at, run.id)
        demand = Demand(run, run.max_slots, run.max_slots, "gpu", "gpu", None, held, held, 1.0, order, size=sizes[run.id])
        demands.append(demand)
    return assign_slots(slots, demands)


def elastic(policy: Policy, *, one_machine: bool = False) -> Decide:
    """The studio's own decision; with `one_machine` as it is today, when a run has all its slots on one machine."""
    rules = Rules(policy=policy, one_machine=one_machine)

    def decide(active: Sequence[Active], slots: Sequence[SlotFacts], now: float) -> Grants:
        runs = [facts(each, now) for each in active]
        if one_machine:
            node_of = {slot.id: slot.node for slot in slots}
            runs = [replace(run, node=node_of[min(run.held)]) if run.held else run for run in runs]
        return plan(slots, runs, now=now, rules=rules).grants

    return decide


def facts(active: Active, now: float) -> RunFacts:
    """The job as the studio would know it: its remaining time from its own rate, once it has one."""
    job = active.job
    remaining_s = active.left_at(now) / active.known_rate if active.known_rate else None
    return RunFacts(
        id=job.id,
        name=job.name,
        person=job.person,
        project=job.person,
        submitted_at=job.submitted_s,
        min_slots=1,
        max_slots=job.slots,
        engines=job.slots,
        priority=job.priority,
        device="gpu",
        held=active.held,
        remaining_s=remaining_s,
    )


@dataclass
class Replay:
    """The state of one replay: the clock, who is in the system, and what is still to come."""

    workload: Workload
    decide: Decide
    change_s: float
    every_s: float
    active: dict[int, Active] = field(default_factory=dict)
    ended_s: dict[int, float] = field(default_factory=dict)
    decisions: int = 0

    def __post_init__(self) -> None:
        nodes, each = self.workload.nodes, self.workload.slots_per_node
        self.slots = [SlotFacts(id=index, node=f"node-{index // each:04d}", device="gpu") for index in range(nodes * each)]
        self.node_of = {slot.id: slot.node for slot in self.slots}
        self.ledger = Ledger(len(self.slots))
        self._arrivals = sorted(self.workload.jobs, key=lambda job: (job.submitted_s, job.id), reverse=True)
        self._ends: list[tuple[float, int, int]] = []
        self._decide_at = math.inf

    def run(self) -> None:
        now = 0.0
        while self._arrivals or self.active:
            then = min(self._arrivals[-1].submitted_s if self._arrivals else math.inf, self._next_end(), self._decide_at)
            assert then < math.inf, "jobs wait and nothing will ever change: the policy starves them"
            self.ledger.passes(then - now)
            now = then
            if self._arrive(now) | self._end(now):
                self.ledger.settle()
                self._decide_at = min(self._decide_at, math.ceil(now / self.every_s) * self.every_s if self.every_s else now)
            if now >= self._decide_at:
                self._decide_at = math.inf
                self._apply(self.decide(list(self.active.values()), self.slots, now), now)

    def _next_end(self) -> float:
        while self._ends and (self._ends[0][2] not in self.active or self.active[self._ends[0][2]].version != self._ends[0][1]):
            heappop(self._ends)
        return self._ends[0][0] if self._ends else math.inf

    def _arrive(self, now: float) -> bool:
        came = False
        while self._arrivals and self._arrivals[-1].submitted_s <= now:
            job = self._arrivals.pop()
            self.active[job.id] = Active(job, left=job.work, since_s=now)
            self.ledger.came(job)
            came = True
        return came

    def _end(self, now: float) -> bool:
        gone = False
        while self._next_end() <= now:
            done = self.active.pop(heappop(self._ends)[2])
            self.ended_s[done.job.id] = now
            self.ledger.ended(done.job)
            gone = True
        return gone

    def _apply(self, grants: Grants, now: float) -> None:
        self.decisions += 1
        for number, each in self.active.items():
            granted = grants.get(number, frozenset())
            if granted == each.held:
                continue
            each.advance(now)
            each.held = granted
            each.version += 1
            per_node = Counter(self.node_of[slot] for slot in granted)
            each.rate = each.job.rate(tuple(per_node[node] for node in sorted(per_node))) if granted else 0.0
            each.known_rate = each.rate or each.known_rate
            each.resumes_s = now + self.change_s
            self.ledger.holds(each.job, len(granted))
            self.ledger.changed(len(granted) * self.change_s)
            if granted:
                heappush(self._ends, (each.ends_s(), each.version, number))


POLICIES: Mapping[str, Decide] = {
    "static": first_come_first_served,
    "tiresias": tiresias,
    "fair_share": elastic("fair_share"),
    "priority": elastic("priority"),
    "fair_share_one_machine": elastic("fair_share", one_machine=True),
}


def simulate(workload: Workload, policy: str, *, change_s: float, every_s: float = 0.0) -> Outcome:
    """Replay the workload through one of POLICIES."""
    replay = Replay(workload, POLICIES[policy], change_s=change_s, every_s=every_s)
    replay.run()
    return Outcome(policy, workload, replay.ended_s, replay.ledger, replay.decisions)
