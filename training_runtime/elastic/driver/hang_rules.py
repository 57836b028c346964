"""Which member of a generation hangs: facts in, decision out. Pure, standard library only.

A stuck process is only known by the time that passes. A member hangs if others wait for it at a barrier, or all stand still, and its
heartbeat has not moved for longer than a deadline derived from the length of the steps. A member that waits never hangs; its time starts
anew when it has been met.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

FIRST_S = 300.0  # before there are steps to judge by
LEAST_S = 60.0  # a stall of a file system, a graph that is compiled again and a retry over the network take as long
TIMES_LONGEST = 20.0
STOPPED_S = 10.0  # for who is stopped by a signal while nobody waits for it yet
EXCUSED_S = 900.0  # for who starts or runs a user's callback,
EXCUSED_TIMES = 15.0  # or so many times the deadline where that is more


@dataclass(frozen=True)
class Sign:
    """A member's progress: `phase` (the barrier where it last arrived), `position` (units done), `excused` (it does something that may take
    long) and `beat` (its heartbeat)."""

    phase: int
    position: int
    excused: bool = False
    beat: int = 0


def deadline_s(durations: Sequence[float], setting: float | None) -> float:
    """Seconds that a member may go without progress. `durations`: of the last steps, in seconds; `setting`: a fixed value, if one is
    set."""
    if setting is not None:
        return setting
    return max(LEAST_S, TIMES_LONGEST * max(durations)) if durations else FIRST_S


def excused_s(limit_s: float) -> float:
    """The same for a member that does something that may take long."""
    return max(EXCUSED_S, EXCUSED_TIMES * limit_s)


class BarrierWatchdog:
    """Remembers when each member last showed something new. `now` is seconds of any clock that only goes forward."""

    def __init__(self) -> None:
        self._signs: dict[int, Sign] = {}
        self._since: dict[int, float] = {}

    def hung(self, now: float, signs: Mapping[int, Sign], limit_s: float) -> tuple[int, ...]:
        """The worker ids among `signs` (all members of one generation) that hang."""
        lowest = min((s.phase for s in signs.values()), default=0)
        met = lowest != min((s.phase for s in self._signs.values()), default=-1) or signs.keys() != self._signs.keys()
        for worker_id, sign in signs.items():
            if met or self._signs.get(worker_id) != sign:
                self._since[worker_id] = now
        self._signs = dict(signs)
        together = all(s.phase == lowest for s in signs.values())
        found = []
        for worker_id, sign in signs.items():
            allowed_s = excused_s(limit_s) if sign.excused else 3 * limit_s if together and len(signs) > 1 else limit_s
            if sign.phase == lowest and now - self._since[worker_id] > allowed_s:
                found.append(worker_id)
        return tuple(found)


class TimeoutWatchdog:
    """Time limits of processes that nobody waits for at a barrier: each may stay unchanged for as long as it is allowed."""

    def __init__(self) -> None:
        self._since: dict[int, tuple[str, float]] = {}

    def expired(self, now: float, seen: Mapping[int, tuple[str, float]]) -> tuple[int, ...]:
        """The ids whose time is over; each then gets its time once more. `seen`: the sign of each (any text; a new one restarts its time)
        and the seconds it is allowed."""
        found = []
        for worker_id, (sign, allowed_s) in seen.items():
            before = self._since.get(worker_id)
            if before is None or before[0] != sign:
                self._since[worker_id] = (sign, now)
            elif now - before[1] > allowed_s:
                found.append(worker_id)
                self._since[worker_id] = (sign, now)
        return tuple(found)


class Grace:
    """One time limit for several processes, which restarts with every sign that any of them is at work."""

    def __init__(self, grace_s: float, now: float) -> None:
        self._grace_s, self._since = grace_s, now
        self._sign: object = None

    def is_over(self, now: float, sign: object) -> bool:
        """Whether the time is over. `sign`: the signs of all of them."""
        if sign != self._sign:
            self._sign, self._since = sign, now
        return now > self._since + self._grace_s
