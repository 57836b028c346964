"""Whose turn it is in a lane: some work at once, and the others wait. Nobody takes all places of a lane, and of those who wait, whoever has
the fewest at work is next; so a person who keeps a lane busy waits for themselves, and others do not."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass

NOBODY = 0  # the studio itself, or somebody who is not logged in
asks: ContextVar[int] = ContextVar("asks", default=NOBODY)  # the number of the person, set where it is known who they are


def next_turn(waiting: Sequence[int], working: Mapping[int, int], *, size: int) -> int | None:
    """The place in `waiting` (people, in the order in which they came) of who begins now; None: nobody. `working`: how many each has at
    work. Pure."""
    if sum(working.values()) >= size:
        return None
    most = max(1, size - 1)
    ready = [place for place, who in enumerate(waiting) if who == NOBODY or working.get(who, 0) < most]
    return min(ready, key=lambda place: (working.get(waiting[place], 0), place), default=None)


@dataclass(eq=False)
class _Waiting:
    who: int
    begun: bool = False


class Turns:
    """Of one lane in one process; any thread may wait in it."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._changed = threading.Condition()
        self._waiting: list[_Waiting] = []
        self._working: Counter[int] = Counter()

    def begin(self, who: int, *, patience_s: float) -> bool:
        """Whether it is their turn now; `end` says that it is over."""
        with self._changed:
            waiting = _Waiting(who)
            self._waiting.append(waiting)
            self._admit()
            if not self._changed.wait_for(lambda: waiting.begun, patience_s):
                self._waiting.remove(waiting)
            return waiting.begun

    def end(self, who: int) -> None:
        with self._changed:
            self._working[who] -= 1
            self._working += Counter()  # who has nothing at work is forgotten
            self._admit()

    def _admit(self) -> None:
        while (place := next_turn([each.who for each in self._waiting], self._working, size=self._size)) is not None:
            admitted = self._waiting.pop(place)
            admitted.begun = True
            self._working[admitted.who] += 1
        self._changed.notify_all()
