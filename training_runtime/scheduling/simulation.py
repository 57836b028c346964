"""What will become of everybody's slots: the planner's own decision (`plan.allocate`), asked again whenever something changes.

Something changes when a run ends or is submitted, when machines or rules do, and when a run has waited so long that it goes first. In
between a run that holds slots works at its rate. A pure function of the facts: nothing is written, no clock is read.

Assumed: slots change hands in no time, and only a start on another machine costs a run anything, what its script takes until train()
(`moves.cost_s`). A run is as fast on a number of slots as was measured; on a number that was not, as its nearest measured one and
`sizes.speed` say. A run whose work nobody knows stays to the end. Nobody submits, stops, pauses or changes anything beside what the scene
says.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeVar

from training_runtime.scheduling.ageing import AGEING_S, TURN_S
from training_runtime.scheduling.demands import Memory
from training_runtime.scheduling.facts import Rules, RunFacts, SlotFacts
from training_runtime.scheduling.moves import STAYS, cost_s
from training_runtime.scheduling.plan import allocate
from training_runtime.scheduling.sizes import bounds, speed

MOST_DECISIONS = 3000
DONE = 1e-6  # seconds: what is nearer to its end than this has ended


@dataclass(frozen=True)
class Work:
    """What a run has yet to do, in a unit of its own (steps, say). `left`: None where nobody knows. `rates`: units a second by number of
    slots, as far as they are measured; a run with work has at least one."""

    left: float | None = None
    rates: Mapping[int, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Job:
    """A run and its work. It is there from `facts.submitted_at` on."""

    facts: RunFacts
    work: Work = field(default_factory=Work)


@dataclass(frozen=True)
class Change:
    """From `at` on (seconds of the runs' clock) there are these slots, or these rules; None: as before."""

    at: float
    slots: tuple[SlotFacts, ...] | None = None
    rules: Rules | None = None


@dataclass(frozen=True)
class Scene:
    """Everything that a simulation begins with, and what will change."""

    slots: tuple[SlotFacts, ...]
    jobs: tuple[Job, ...]
    rules: Rules
    changes: tuple[Change, ...] = ()


@dataclass(frozen=True)
class Bar:
    """A run on a slot from `begin` to `end`; None: still there when the simulation ends."""

    slot: int
    run: int
    begin: float
    end: float | None


@dataclass(frozen=True)
class Course:
    """What came of it: who held which slot when, in order of time; when each run first held one (from the beginning on), and when it ended,
    of those that did. `cut`: there was more to decide than MOST_DECISIONS, so what comes after `until` is not known."""

    bars: tuple[Bar, ...]
    begins: Mapping[int, float]
    ends: Mapping[int, float]
    until: float
    decisions: int
    cut: bool = False

    @cached_property
    def _by_run(self) -> Mapping[int, Sequence[Bar]]:
        found: defaultdict[int, list[Bar]] = defaultdict(list)
        for bar in self.bars:
            found[bar.run].append(bar)
        return found

    def held_by(self, run: int) -> Sequence[Bar]:
        """The run's bars, in order of time."""
        return self._by_run.get(run, ())


def rate_on(slots: int, work: Work, *, engines: int | None) -> float:
    """Units a second on that many slots: as measured, else from the nearest measured number (the smaller of two)."""
    if not slots or not work.rates:
        return 0.0
    if slots in work.rates:
        return work.rates[slots]
    near = min(work.rates, key=lambda known: (abs(known - slots), known))
    return work.rates[near] * speed(slots, engines=engines) / speed(near, engines=engines)


def simulate(scene: Scene, *, now: float, until: float = math.inf, gap_s: float = 0.0, grain: float = 0.0) -> Course:
    """The course of things from `now` until no run is left whose end is known, or `until`.

    Decisions are at least `gap_s` seconds apart, and at least the part `grain` of how far ahead they are: what lies a day ahead need not be
    told to the second. What becomes free in between is idle until the next one.
    """
    return _Simulation(scene, now=now, until=until, gap_s=gap_s, grain=grain).run()


@dataclass(slots=True, eq=False)
class _Active:
    """A run that is there. It works since `since`, at `rate`; `last_rate`: on the slots that it held last, which tells its time left."""

    facts: RunFacts
    work: Work
    left: float | None
    since: float
    rate: float = 0.0
    last_rate: float = 0.0

    def advance(self, now: float) -> None:
        if self.left is not None and self.rate and now > self.since:
            self.left -= (now - self.since) * self.rate
        self.since = max(self.since, now)

    def end(self) -> float:
        """When it will have done its work if nothing changes."""
        return self.since + max(0.0, self.left) / self.rate if self.left is not None and self.rate else math.inf

    def remaining_s(self) -> float | None:
        return max(0.0, self.left) / self.last_rate if self.left is not None and self.last_rate else None

    def looks(self) -> Iterable[float]:
        """When a plan may come out otherwise although nobody did anything, of a run that holds nothing: see `ageing` and `moves`."""
        facts = self.facts
        if facts.paused:
            return
        if facts.waits_since is not None and facts.min_slots > 1 and bounds(facts)[0] > 1:
            yield facts.waits_since + AGEING_S
        if facts.favoured_since is not None:
            yield facts.favoured_since + TURN_S
        if facts.moved_at is not None and facts.engines is not None:
            yield facts.moved_at + STAYS * cost_s(facts)


Facts = TypeVar("Facts", RunFacts, SlotFacts)


def _with(facts: Facts, **changed: object) -> Facts:
    """`dataclasses.replace`, which sets thirty fields one after the other: here that was a seventh of all the time."""
    made = object.__new__(type(facts))
    vars(made).update(vars(facts) | changed)
    return made


class _Simulation:
    """The state while it is worked out."""

    def __init__(self, scene: Scene, *, now: float, until: float, gap_s: float, grain: float) -> None:
        self.now, self.until, self.gap_s, self.grain = now, until, gap_s, grain
        self.begin = now
        self.rules = scene.rules
        self.slots = {slot.id: slot for slot in scene.slots}
        self.active: dict[int, _Active] = {}
        self.holders: dict[int, _Active] = {}  # those that hold slots, the only ones that work
        self.to_come = sorted(scene.jobs, key=lambda job: (job.facts.submitted_at, job.facts.id), reverse=True)
        self.changes = sorted(scene.changes, key=lambda change: change.at, reverse=True)
        self.open: dict[int, tuple[int, float]] = {}  # by slot: whose, and since when
        self.bars: list[Bar] = []
        self.begins: dict[int, float] = {}
        self.ends: dict[int, float] = {}
        self.decisions = 0
        self.memory = Memory()

    def run(self) -> Course:
        self._enter()
        while self.decisions < MOST_DECISIONS:
            self._decide()
            then = max(self._next(), self.now + max(self.gap_s, self.grain * (self.now - self.begin)))
            if then > self.until or then == math.inf or not self._is_going_on():
                self._end_until(self.until)
                return self._course(cut=False)
            self._end_until(then)
            self.now = then
            self._enter()
        return self._course(cut=True)

    def _is_going_on(self) -> bool:
        """Whether anything is still to happen of which somebody knows when."""
        return bool(self.to_come or self.changes or any(each.left is not None and not each.facts.paused for each in self.active.values()))

    def _next(self) -> float:
        """When something changes next."""
        soonest = min((each.end() for each in self.holders.values()), default=math.inf)
        if self.to_come:
            soonest = min(soonest, self.to_come[-1].facts.submitted_at)
        if self.changes:
            soonest = min(soonest, self.changes[-1].at)
        waiting = (each for run, each in self.active.items() if run not in self.holders)
        return min(soonest, min((at for each in waiting for at in each.looks() if at > self.now), default=math.inf))

    def _enter(self) -> None:
        """Runs that are submitted by now, and what changes by now."""
        while self.to_come and self.to_come[-1].facts.submitted_at <= self.now:
            job = self.to_come.pop()
            facts = job.facts
            active = _Active(facts, job.work, job.work.left, self.now)
            active.rate = rate_on(len(facts.held), job.work, engines=facts.engines)
            active.last_rate = active.rate or (job.work.left / facts.remaining_s if job.work.left and facts.remaining_s else 0.0)
            self.active[facts.id] = active
            if facts.held:
                self.holders[facts.id] = active
            for slot in facts.held:
                self._hold_slot(slot, facts.id)
        while self.changes and self.changes[-1].at <= self.now:
            change = self.changes.pop()
            self.rules = change.rules if change.rules is not None else self.rules
            if change.slots is not None:
                self.slots = {slot.id: replace(slot, holder=self.open.get(slot.id, (None, 0.0))[0]) for slot in change.slots}

    def _decide(self) -> None:
        self.decisions += 1
        for each in self.holders.values():
            if each.left is not None:
                each.advance(self.now)
                each.facts = _with(each.facts, remaining_s=each.remaining_s())
        runs = [each.facts for each in self.active.values()]
        grants, favoured = allocate(list(self.slots.values()), runs, now=self.now, rules=self.rules, memory=self.memory)
        changed = [(each, grants[run]) for run, each in self.active.items() if grants[run] != each.facts.held]
        for each, granted in changed:
            for slot in each.facts.held - granted:
                self._leave(slot)
        for each, granted in changed:
            for slot in granted - each.facts.held:
                self._hold_slot(slot, each.facts.id)
            self._hold(each, granted)
        if self.decisions == 1:
            self._forget_leavers()
        for run, each in self.active.items():
            waits = not grants[run] and not each.facts.paused
            if waits == (each.facts.waits_since is None) or run in favoured:
                self._note(each, waits=waits, favoured=run in favoured)

    def _forget_leavers(self) -> None:
        """Slots that nobody holds but somebody's process has yet to leave are free from the first decision on."""
        for slot in [slot for slot in self.slots.values() if slot.holder is not None and slot.id not in self.open]:
            self.slots[slot.id] = _with(slot, holder=None)

    def _hold(self, each: _Active, granted: frozenset[int]) -> None:
        """The run goes on with these slots; on another machine it begins with its script."""
        each.advance(self.now)
        facts, node, pool, moved_at = each.facts, each.facts.node, each.facts.pool, each.facts.moved_at
        if granted:
            head_node = self.slots[min(granted)]
            if self.rules.one_machine and head_node.domain != facts.domain:
                node, pool, moved_at = head_node.node, head_node.pool, self.now
                each.since = self.now + cost_s(facts)
            self.begins.setdefault(facts.id, self.now)
            self.holders[facts.id] = each
        else:
            self.holders.pop(facts.id, None)
        each.rate = rate_on(len(granted), each.work, engines=facts.engines)
        each.last_rate = each.rate or each.last_rate
        each.facts = _with(facts, held=granted, node=node, pool=pool, moved_at=moved_at, remaining_s=each.remaining_s())

    def _note(self, each: _Active, *, waits: bool, favoured: bool) -> None:
        """What the next decision has to know, as the scheduler notes it."""
        facts = each.facts
        since = (self.now if facts.waits_since is None else facts.waits_since) if waits else None
        turn = facts.favoured_since
        if favoured and (turn is None or self.now - turn >= TURN_S):
            turn = self.now
        if (since, turn) != (facts.waits_since, facts.favoured_since):
            each.facts = _with(facts, waits_since=since, favoured_since=turn)

    def _end_until(self, then: float) -> None:
        for run, each in [(run, each) for run, each in self.holders.items() if each.end() <= then + DONE and each.end() < math.inf]:
            self.ends[run] = each.end()
            for slot in each.facts.held:
                self._leave(slot, at=each.end())
            del self.active[run], self.holders[run]

    def _hold_slot(self, slot: int, run: int) -> None:
        self.open[slot] = (run, self.now)
        self.slots[slot] = _with(self.slots[slot], holder=run)
        self.begins.setdefault(run, self.now)

    def _leave(self, slot: int, *, at: float | None = None) -> None:
        run, begin = self.open.pop(slot)
        end = self.now if at is None else at
        if end > begin:
            self.bars.append(Bar(slot, run, begin, end))
        if slot in self.slots:
            self.slots[slot] = _with(self.slots[slot], holder=None)

    def _course(self, *, cut: bool) -> Course:
        still = [Bar(slot, run, begin, None) for slot, (run, begin) in self.open.items()]
        bars = sorted([*self.bars, *still], key=lambda bar: (bar.begin, bar.slot))
        until = self.now if cut else self.until
        return Course(tuple(bars), self.begins, self.ends, until, self.decisions, cut)
