"""How long looking at a training may take: a moment at first, then a small share of the time that the training has taken."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

AT_FIRST_S = 0.2
SHARE = 0.02


class Allowance:
    """Of one process. The first look is always allowed; what a look costs is known only afterwards (a dataset may hold a list of a thousand
    tensors, or one tensor)."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._began, self._spent_s = clock, clock(), 0.0

    def is_left(self) -> bool:
        return self._spent_s <= AT_FIRST_S + SHARE * (self._clock() - self._began)

    @contextmanager
    def spending(self) -> Iterator[None]:
        """Around each part of a look."""
        began = self._clock()
        try:
            yield
        finally:
            self._spent_s += self._clock() - began
