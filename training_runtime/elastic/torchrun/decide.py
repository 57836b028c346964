"""What becomes of a script's worker processes when slots come or go, a worker ends or somebody stops the run. Pure: facts in, an action
with its reason out.

All workers of a start are one group: a script for torch.distributed cannot lose or win a rank, so any change ends all of them (SIGTERM, a
grace, SIGKILL), and when the last is gone they start again with the new number. Level-triggered: asked again after anything has happened,
and at `Wait.until`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Why = Literal["slots", "failure", "stop"]

GATHER_S = 1.0  # slots are often granted one after the other: a start for each would cost more than waiting for the last
RECENT_S = 3600.0  # changes of slots in this time count
LONGEST_PATIENCE_S = 1800.0


@dataclass(frozen=True)
class Facts:
    """Times are seconds of one clock.

    `size`: how many slots it runs on, exactly; None: on any number that it is granted. `granted`: the slots of the last word, in order,
    said at `granted_at` with `reason`. `group`: the slots of the last workers started, by rank, until it is settled what follows them;
    empty: there are none. `ended`: exit statuses by rank. `failed`: those that failed by themselves, before they were told to end, with
    what happened. `ending`: why they were told to end, at `ending_at`. `restarts`: how often they were started again after a failure.
    `began_at`: when the workers were started; `changes`: when workers were told to end since slots had come or gone.
    """

    granted: tuple[int, ...]
    granted_at: float
    reason: str
    size: int | None = None
    group: tuple[int, ...] = ()
    ended: Mapping[int, int] = field(default_factory=dict)
    failed: Mapping[int, str] = field(default_factory=dict)
    ending: Why | None = None
    ending_at: float = 0.0
    killed: bool = False
    restarts: int = 0
    max_restarts: int = 0
    stop: bool = False
    began_at: float = 0.0
    changes: tuple[float, ...] = ()


@dataclass(frozen=True)
class Wait:
    """None: until something happens."""

    until: float | None = None


@dataclass(frozen=True)
class Start:
    """`restarts`: the number that counts from now on."""

    slots: tuple[int, ...]
    reason: str
    restarts: int


@dataclass(frozen=True)
class End:
    """SIGTERM to all workers that are there."""

    why: Why
    reason: str


@dataclass(frozen=True)
class Kill:
    """SIGKILL to all workers that are there."""


@dataclass(frozen=True)
class Suspend:
    """All are gone and there are too few slots to go on with."""

    reason: str


@dataclass(frozen=True)
class Finish:
    """All are gone, and the run is over."""

    outcome: Literal["completed", "stopped", "failed"]


Action = Wait | Start | End | Kill | Suspend | Finish


def decide(facts: Facts, *, now: float, grace_s: float, grow_after_s: float) -> Action:
    """`grace_s`: from SIGTERM to SIGKILL. `grow_after_s`: see `patience_s`."""
    if len(facts.ended) < len(facts.group):
        return _while_they_run(facts, now, grace_s, grow_after_s)
    if facts.stop:
        return Finish("stopped")
    if not facts.group:
        slots = target(facts)
        return Start(slots, facts.reason, facts.restarts) if slots else Wait()
    return _after_the_last(facts)


def target(facts: Facts) -> tuple[int, ...]:
    """The slots to run on, by rank; none where there are too few."""
    if facts.size is None:
        return facts.granted
    return facts.granted[: facts.size] if len(facts.granted) >= facts.size else ()


def patience_s(facts: Facts, now: float, grow_after_s: float) -> float:
    """How long workers run before new slots end them: a start costs what was computed since the script's last checkpoint, and where slots
    come and go all the time it would never get further. Nothing at first, twice as long with each change of the last hour."""
    recent = sum(now - at < RECENT_S for at in facts.changes)
    return min(grow_after_s * 2.0 ** min(recent - 1, 30), LONGEST_PATIENCE_S) if recent else 0.0


def _while_they_run(facts: Facts, now: float, grace_s: float, grow_after_s: float) -> Action:
    if facts.ending is not None:
        due = facts.ending_at + grace_s
        if facts.killed:
            return Wait()
        return Kill() if now >= due else Wait(due)
    if facts.stop:
        return End("stop", facts.reason)
    if facts.failed:
        return End("failure", _first(facts.failed))
    at_work = {slot for rank, slot in enumerate(facts.group) if rank not in facts.ended}
    slots = target(facts)
    if not at_work <= set(slots):
        return End("slots", facts.reason)
    if set(slots) <= set(facts.group) or facts.ended:  # where some have come to their end the others soon will
        return Wait()
    due = max(facts.granted_at + GATHER_S, facts.began_at + patience_s(facts, now, grow_after_s))
    return End("slots", facts.reason) if now >= due else Wait(due)


def _after_the_last(facts: Facts) -> Action:
    """All of the group have ended."""
    if not facts.failed and facts.ending is None:
        return Finish("completed")
    restarts, reason = facts.restarts, facts.reason
    if facts.failed:
        if restarts >= facts.max_restarts:
            return Finish("failed")
        restarts += 1
        reason = f"{_first(facts.failed)}; restart {restarts} of {facts.max_restarts}"
    slots = target(facts)
    return Start(slots, reason, restarts) if slots else Suspend(facts.reason)


def _first(failed: Mapping[int, str]) -> str:
    """The cause comes first (see `Facts.failed`): what the others say is often only that it is gone."""
    return next(iter(failed.values()))
