"""Of the figures beside a progress bar, one value at a count. A bar is drawn several times at each: when it gets there, with what was
beside it before, and when the script says what it came to. Pure, standard library only."""

from __future__ import annotations

from collections.abc import Iterable

from training_runtime.elastic.script_logs.event_folders import Figure
from training_runtime.tracking.answers import Group

HOLD_S = 2.0  # that a value of the training waits for a later one at its step; one of a test does until something else is drawn
MOST_NAMES = 1000


class BarFigures:
    """Those of one script, in the order in which they were drawn."""

    def __init__(self) -> None:
        self._held: dict[tuple[Group, str], Figure] = {}  # all of one step
        self._since = 0.0
        self._told: dict[tuple[Group, str], int] = {}  # the last step, by group and name

    def add(self, drawn: Iterable[Figure], now: float) -> list[Figure]:
        """`drawn`: figures beside one bar, which are of one step. `now`: seconds of a clock that goes forward. What can be told by now."""
        new = {(each.group, each.name): each for each in drawn if self._told.get((each.group, each.name)) != each.step}
        goes_on = any(name in self._held and self._held[name].step == each.step for name, each in new.items())
        told = self.release() if new and not goes_on else []
        if not self._held:
            self._since = now
        self._held |= new
        return told

    def due(self, now: float) -> list[Figure]:
        """Of the training, what has waited long enough."""
        waits = now < self._since + HOLD_S or any(group == "test" for group, _ in self._held)
        return [] if waits else self.release()

    def release(self) -> list[Figure]:
        """All that was held; what is drawn of the same step later is passed over."""
        if len(self._told) >= MOST_NAMES:
            self._told.clear()
        told, self._held = self._held, {}
        self._told |= {name: each.step for name, each in told.items()}
        return [*told.values()]
