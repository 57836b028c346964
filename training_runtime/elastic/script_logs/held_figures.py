"""Of figures that a script prints several times at one step, the last. Pure, standard library only.

A progress bar is drawn several times at each count: when it gets there, with what was beside it before, and when the script says what it
came to. And all that a test prints on its way, and comes to, is at the step at which the training waits for it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from training_runtime.elastic.script_logs.event_folders import Figure
from training_runtime.elastic.script_logs.printed import Bar
from training_runtime.tracking.answers import Group

HOLD_S = 2.0  # that a value beside a bar waits for a later one at its step; of a test from when its bar is done
QUIET_S = 10.0  # after which a test that prints lines is taken to be over
MOST_NAMES = 1000


class HeldFigures:
    """Those of one script, in the order in which they were printed."""

    def __init__(self) -> None:
        self._held: dict[tuple[Group, str], Figure] = {}  # all of one step
        self._due = 0.0
        self._told: dict[tuple[Group, str], int] = {}  # the last step, by group and name
        self._count = 0.0  # of the bar that was drawn last

    def add(self, printed: Iterable[Figure], beside: Bar | None, now: float) -> list[Figure]:
        """`printed`: figures of a line or `beside` a bar, which are of one step. `now`: seconds of a clock that goes forward. What can be
        told by now."""
        found = [*printed]
        told = [] if self._is_test_going_on(found, beside) else self._end_test()
        if beside is None and not _are_of_test(found):
            return [*told, *self.release(), *found]
        new = {(each.group, each.name): each for each in found if self._told.get((each.group, each.name)) != each.step}
        if not new:
            return told
        told += [] if self._goes_on(new) else self.release()
        self._due = self._due_after(found, beside, now)
        self._held |= new
        return told

    def due(self, now: float) -> list[Figure]:
        """What has waited long enough."""
        return self.release() if now >= self._due else []

    def release(self) -> list[Figure]:
        """All that was held; what is printed of the same step later is passed over."""
        if len(self._told) >= MOST_NAMES:
            self._told.clear()
        told, self._held = self._held, {}
        self._told |= {name: each.step for name, each in told.items()}
        return [*told.values()]

    def _is_test_going_on(self, found: list[Figure], beside: Bar | None) -> bool:
        """Whether none has ended with this: by figures of the training, or by a bar that begins anew."""
        before, self._count = self._count, self._count if beside is None else beside.done
        return _are_of_test(found) and self._count >= before

    def _end_test(self) -> list[Figure]:
        """What the next one prints at the same step is told as well, and may be refused where it is something else."""
        told = self.release() if self._held and _are_of_test(self._held.values()) else []
        self._told = {name: step for name, step in self._told.items() if name[0] == "train"}
        return told

    def _goes_on(self, new: dict[tuple[Group, str], Figure]) -> bool:
        is_one = self._held.keys() & new.keys() or _are_of_test([*self._held.values(), *new.values()])
        return bool(is_one) and {each.step for each in self._held.values()} == {each.step for each in new.values()}

    def _due_after(self, found: list[Figure], beside: Bar | None, now: float) -> float:
        if beside is None:
            return now + QUIET_S
        if not _are_of_test(found):
            return self._due if self._held else now + HOLD_S
        if beside.done < beside.total:
            return math.inf
        return self._due if self._held and self._due < math.inf else now + HOLD_S


def _are_of_test(figures: Iterable[Figure]) -> bool:
    return all(each.group == "test" for each in figures)
