"""Decides what follows from the death of a worker: facts in, verdict and reason out. Pure, standard library only.

A member's end costs the step in flight. Where it raised an exception, the step is done again once; if another process then raises the same
at the same place, the script is at fault and the run fails with that traceback. A newcomer's end is never the run's while members live. A
slot whose workers keep failing is left alone for a while, longer each time. What was long ago, or before a step that has been done since,
does not count: a run of months must not die of what happens once a month.
"""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass

from training_runtime.crashes import GOT_ON_S

TIMES_AT_ONE_STEP = 3  # deaths with a cause before the same unit that fail the run: it would die for ever
FRUITLESS = 10  # deaths one after the other without a step between that fail the run
WINDOW_S = 3600.0  # how long a failure of a slot is remembered
FREE = 3  # failures of a slot within that time after which it is used again at once
FIRST_PAUSE_S, TIMES_LONGER, LONGEST_PAUSE_S = 1.0, 4.0, 1800.0


@dataclass(frozen=True)
class FailureCause:
    """What a worker died of, in words; `traceback` where it could still give one. `known`: a person should be told, the signal alone does
    not say it. `raised`: the kind of exception, where it was one. `final`: it would only happen again. `no_room`: the disk is full;
    `no_memory`: there was none left, which others on the machine or the device may have taken."""

    what: str
    known: bool
    traceback: str = ""
    raised: str = ""
    final: bool = False
    no_room: bool = False
    no_memory: bool = False


@dataclass(frozen=True)
class Ended:
    """A worker that died on `slot`, process `pid`, after `position` units, in `generation`. `newcomer`: it had no part in the training yet.
    `members`: others live who hold the state; `others`: anybody else is alive."""

    slot: int
    pid: int
    position: int
    generation: int
    cause: FailureCause | None
    newcomer: bool
    members: bool
    others: bool

    def may_be_the_slot(self) -> bool:
        """Whether the slot may be to blame: not where a limit was met, or the script would end in the same way anywhere."""
        return self.cause is None or not (self.cause.final or self.cause.no_room or self.cause.no_memory)


@dataclass(frozen=True)
class Verdict:
    """`failed`: (message, traceback) where the run cannot go on, `no_room` because the disk is full. `warning`: what a person should be
    told, if anything."""

    failed: tuple[str, str] | None = None
    warning: str = ""
    no_room: bool = False


class Recent:
    """Counts how often something happened within the last `window_s` seconds. Older occurrences are dropped once the run has made progress
    for GOT_ON_S since."""

    def __init__(self, window_s: float) -> None:
        self._window_s = window_s
        self._times: deque[float] = deque()
        self._step = 0

    def happened(self, now: float, *, step: int = 0) -> int:
        """Count one more occurrence, after this step. Returns the count."""
        if self._times and step > self._step and now >= self._times[-1] + GOT_ON_S:
            self._times.clear()
        self._step = step
        self._times.append(now)
        while self._times[0] < now - self._window_s:
            self._times.popleft()
        return len(self._times)


class Failures:
    """The failures of one run. `now` is seconds of a clock that only goes forward."""

    def __init__(self) -> None:
        self._of_slot: defaultdict[int, Recent] = defaultdict(lambda: Recent(WINDOW_S))
        self._until: dict[int, float] = {}
        self._places: defaultdict[int, set[int]] = defaultdict(set)  # position -> occasions of deaths with a cause
        self._raised: defaultdict[tuple[int, str], set[int]] = defaultdict(set)  # position and kind of exception -> processes
        self._fruitless: set[int] = set()  # occasions since the last step
        self._step = 0

    def resting(self, now: float) -> frozenset[int]:
        """The slots that get no worker for now."""
        return frozenset(slot for slot, until in self._until.items() if now < until)

    def judge(self, ended: Ended, now: float, *, step: int) -> Verdict:
        """Decide what follows from a death. `step`: the last one in the journal."""
        count, pause_s = self._rest(ended, now)
        self._forget(ended.position, step)
        failed = None if ended.newcomer and ended.members else self._newcomer(ended) if ended.newcomer else self._member(ended)
        if failed:
            return Verdict(failed, no_room=ended.cause is not None and ended.cause.no_room)
        return Verdict(warning=_describe(ended, count, pause_s))

    def _rest(self, ended: Ended, now: float) -> tuple[int, float]:
        """Leave the slot alone for a while. Returns how often it failed lately, and for how many seconds."""
        count = self._of_slot[ended.slot].happened(now)
        could_not_begin = ended.newcomer and ended.cause is not None
        exponent = count - (1 if could_not_begin else FREE + 1)
        pause_s = min(FIRST_PAUSE_S * TIMES_LONGER**exponent, LONGEST_PAUSE_S) if exponent >= 0 else 0.0
        self._until[ended.slot] = now + pause_s
        return count, pause_s

    def _forget(self, position: int, step: int) -> None:
        """Forget failures before units that have been done since. (`position` is that of the worker that died, which was as far as any.)"""
        for place in [place for place in self._places if place < position]:
            del self._places[place]
        for key in [key for key in self._raised if key[0] < position]:
            del self._raised[key]
        if step > self._step:
            self._step, self._fruitless = step, set()

    def _newcomer(self, ended: Ended) -> tuple[str, str] | None:
        """Judge the death of one of the first workers: the run fails if it was the last, or if the others would end the same way."""
        cause = ended.cause
        if cause is None:
            return self._without_progress(-ended.pid)
        if cause.raised:
            return (_message(cause), cause.traceback) if cause.final or cause.no_room or not ended.others else None
        return _too_often(cause) if self._again(-1, -ended.pid) and not ended.others else None

    def _member(self, ended: Ended) -> tuple[str, str] | None:
        cause = ended.cause
        if cause is not None and cause.raised:
            processes = self._raised[ended.position, cause.raised]
            processes.add(ended.pid)
            if cause.final or cause.no_room or len(processes) > 1:
                return _message(cause), cause.traceback
        elif cause is not None and self._again(ended.position, ended.generation):
            return _too_often(cause)
        return self._without_progress(ended.generation)

    def _again(self, position: int, occasion: int) -> bool:
        """Whether this was the last time that a death with a cause before unit `position` is answered by trying again. Several at one
        `occasion` (generation, or process of a newcomer) are one: they may have died of the same."""
        self._places[position].add(occasion)
        return len(self._places[position]) >= TIMES_AT_ONE_STEP

    def _without_progress(self, occasion: int) -> tuple[str, str] | None:
        self._fruitless.add(occasion)
        if len(self._fruitless) < FRUITLESS:
            return None
        return f"{FRUITLESS} times one after the other workers died, and not one step was done between", ""


def _too_often(cause: FailureCause) -> tuple[str, str]:
    return f"{TIMES_AT_ONE_STEP} times at one step a worker {cause.what}", cause.traceback


def _message(cause: FailureCause) -> str:
    """The last line of the traceback, which names the exception."""
    return cause.what.removeprefix("raised ") if cause.traceback else f"a worker {cause.what}"


def _describe(ended: Ended, count: int, pause_s: float) -> str:
    """The warning to show, if any: a cause that the signal does not reveal, or a slot that is left alone."""
    cause = ended.cause
    what = cause.what if cause is not None else "died"
    rest = f"; {count} workers have failed there within an hour, it is tried again in {pause_s:.0f} s" if pause_s and count > 1 else ""
    if ended.newcomer and cause is not None:
        return f"a new worker on slot {ended.slot} {what}{rest}" + ("; the others go on" if ended.members else "")
    if cause is not None and cause.raised:
        return f"the worker on slot {ended.slot} {what}; its step is done again, and the run fails if the same happens again{rest}"
    if (cause is not None and cause.known) or rest:
        return f"the worker on slot {ended.slot} {what}{rest}; the others go on"
    return ""
