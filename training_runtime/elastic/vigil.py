"""Which processes of a run show no life: the driver's look at the arena and at /proc, judged by `watch`. It kills nobody.

Members are judged together, by who waits for whom. Everybody else has a patience of their own: newcomers that start, leavers that were let
go, workers of a training that is done, and the template. Who is stopped by a signal is granted no more than a step may take.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from training_runtime.elastic import watch
from training_runtime.elastic.arena import COMMITTED, EXCUSED, PHASE, Arena
from training_runtime.elastic.kinship import is_stopped
from training_runtime.elastic.roster import Seated

TEMPLATE = -1


@dataclass(frozen=True)
class Found:
    """A process that hangs: its seat, or TEMPLATE; `allowed_s` is how long it was given."""

    seat: int
    allowed_s: float


class Vigil:
    """`setting`: seconds that somebody wants instead of a deadline that follows the steps."""

    def __init__(self, setting: float | None) -> None:
        self._setting = setting
        self._members, self._others = watch.Watch(), watch.Patience()

    def look(
        self, now: float, arena: Arena, workers: Collection[Seated], *, members: Iterable[int], durations: list[float], done: bool
    ) -> tuple[Found, ...]:
        """Who of `workers` hangs. `members`: the seats that must meet; `durations`: of the last steps, in seconds."""
        limit_s = watch.deadline_s(durations, self._setting)
        together = () if done else tuple(s for s in workers if s.seat in members)
        signs = {s.seat: watch.Sign(arena.get(s.seat, PHASE), arena.get(s.seat, COMMITTED), _excused(arena, s)) for s in together}
        found = (Found(seat, limit_s) for seat in self._members.hung(now, signs, limit_s))
        alone = {s.seat: _patience(arena, s, limit_s, done=done) for s in workers if s.seat not in signs}
        return (*found, *(Found(seat, alone[seat][1]) for seat in self._others.lost(now, alone)))

    def template(self, now: float, pid: int, durations: list[float]) -> bool:
        """Whether the template was stopped for too long. What it does otherwise is the user's own (the datasets function) or an instant."""
        stopped = is_stopped(pid)
        allowed_s = min(watch.deadline_s(durations, self._setting), watch.STOPPED_S) if stopped else float("inf")
        return bool(self._others.lost(now, {TEMPLATE: (f"{pid} {stopped}", allowed_s)}))


def _patience(arena: Arena, seated: Seated, limit_s: float, *, done: bool) -> tuple[str, float]:
    """What a worker shows that nobody waits for at a barrier, and how long it may go on showing it."""
    stopped = is_stopped(seated.pid)
    if stopped:
        allowed_s = min(limit_s, watch.STOPPED_S)
    elif seated.state == "ready":
        allowed_s = float("inf")  # it waits to be taken in, and counts itself how long
    else:
        allowed_s = watch.EXCUSED_S if seated.state == "starting" or arena.get(seated.seat, EXCUSED) else limit_s
    return f"{seated.state} {seated.pid} {stopped} {done}", allowed_s


def _excused(arena: Arena, seated: Seated) -> bool:
    """Whether a worker does what may take long. One that is stopped from outside does nothing."""
    return bool(arena.get(seated.seat, EXCUSED)) and not is_stopped(seated.pid)
