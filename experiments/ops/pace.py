"""For work that is asked for again and again and takes the longer the more there is: how long to wait before the next turn. Pure."""

from __future__ import annotations

LONGEST_S = 1.0
SHORT_S = 0.02


class Pace:
    """Turns take `share` of the time at the most, and none waits longer than LONGEST_S; after a short one the next may follow at once. All
    times are monotonic."""

    def __init__(self, *, share: float) -> None:
        self._rest = 1.0 / share - 1.0  # seconds for each second of a turn
        self._next = 0.0

    def wait_s(self, now: float) -> float:
        return min(LONGEST_S, max(0.0, self._next - now))

    def took(self, began: float, ended: float) -> None:
        lasted_s = ended - began
        self._next = ended + (min(LONGEST_S, lasted_s * self._rest) if lasted_s > SHORT_S else 0.0)
