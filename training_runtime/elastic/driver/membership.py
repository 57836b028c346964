"""Who is in the next generation: facts in, decision and reason out. Pure, standard library only.

The rules, in order: a death is answered at once with the survivors; a generation that is on its way is left alone until it has begun; slots
that were taken away are given back at the next step; newcomers join when all that were started are ready, or the first of them has waited
JOIN_WAIT_S: one that is slow or stuck must not keep out the others. One worker a slot, at most V workers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from training_runtime.elastic.driver import reclaim

JOIN_WAIT_S = 3.0

State = Literal["starting", "ready", "member", "leaving", "left"]


@dataclass(frozen=True)
class WorkerFacts:
    """A worker process that is not reaped yet, or died as a member. `ready`: waits to be taken in, since `ready_at`; `leaving`: was a
    member of the generation before the one that is on its way; `left`: has said that it is done and is about to exit."""

    worker_id: int
    slot: int
    state: State
    dead: bool = False
    ready_at: float = 0.0


@dataclass(frozen=True)
class Facts:
    """`members` are the last published generation's worker ids in rank order; `begun` says that it has started to work. `barred`: slots
    that are left alone for now. `now`: seconds of the clock of `ready_at`."""

    engines: int
    wanted: tuple[int, ...]
    reason: str
    generation: int
    members: tuple[int, ...]
    begun: bool
    workers: tuple[WorkerFacts, ...]
    barred: frozenset[int] = frozenset()
    now: float = 0.0


@dataclass(frozen=True)
class Publish:
    """Announce the next generation. `visitors` belong to the old one only and hand their state over. `abort`: drop the step in flight."""

    members: tuple[int, ...]
    visitors: tuple[int, ...]
    abort: bool
    reason: str


@dataclass(frozen=True)
class Decision:
    """`start` workers on these slots, `discard` (kill) the worker ids that never became members, then `publish`. `lost`: no one holds the
    state any more."""

    start: tuple[int, ...] = ()
    discard: tuple[int, ...] = ()
    publish: Publish | None = None
    lost: bool = False


def decide(facts: Facts) -> Decision:
    """What to do now. Called after every event; with nothing to do it returns an empty decision."""
    involved = [w for w in facts.workers if w.state == "member" or (w.state == "leaving" and not facts.begun)]
    dead = [w for w in involved if w.dead]
    if dead:
        return _after_death(involved, dead)
    targets = tuple(slot for slot in dict.fromkeys(facts.wanted) if slot not in facts.barred)[: facts.engines]
    living = [w for w in facts.workers if not w.dead]
    taken = {w.slot for w in living}
    start = tuple(slot for slot in targets if slot not in taken)
    discard = tuple(w.worker_id for w in living if w.state in ("starting", "ready") and w.slot not in targets)
    return Decision(
        start, discard, _next(facts, targets, waiting=bool(start) or any(w.state == "starting" and w.slot in targets for w in living))
    )


def _after_death(involved: list[WorkerFacts], dead: list[WorkerFacts]) -> Decision:
    survivors = tuple(w.worker_id for w in involved if not w.dead)
    names = ", ".join(str(w.slot) for w in dead)
    reason = f"the worker on slot {names} died" if len(dead) == 1 else f"the workers on slots {names} died"
    return Decision(lost=True) if not survivors else Decision(publish=Publish(survivors, (), True, reason))


def _next(facts: Facts, targets: tuple[int, ...], *, waiting: bool) -> Publish | None:
    if not facts.begun:
        return None
    slots = {w.worker_id: w.slot for w in facts.workers}
    stay, leave = reclaim.split(facts.members, slots, targets)
    by_slot = {w.slot: w for w in facts.workers if w.state == "ready" and not w.dead}
    ready = [by_slot[slot] for slot in targets if slot in by_slot]
    join = tuple(w.worker_id for w in ready)
    if not targets:
        return Publish((), leave, False, facts.reason) if leave else None
    if leave and stay:
        return Publish(stay + join, (), False, facts.reason)
    if not join or (waiting and facts.now < min(w.ready_at for w in ready) + JOIN_WAIT_S):
        return None
    return Publish(stay + join, () if stay else leave, False, facts.reason)
