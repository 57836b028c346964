"""How long a newcomer waits for the state of the training, and how often it asks for it.

Each wait that is too long (EDT_PULL_WEIGHT_TIME_OUT), and each death that takes the state away while it is being handed over, is a failure:
PULL_FAILED in the worker's log and in the journal. It asks again; after EDT_PULL_FAILED_LIMITS failures it ends. Nobody else is touched.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from training_runtime.errors import PullFailed

TIMEOUT_S, LIMIT = 600.0, 5
CAME_BETWEEN = "got no weights, a death came in between"


class Pull:
    """The asking of one worker on `slot`, from `now` on (seconds of a clock that only goes forward). `say` is told each failure."""

    def __init__(self, slot: int, say: Callable[[str], None], environment: Mapping[str, str], now: float) -> None:
        self._slot, self._say, self._since = slot, say, now
        self._timeout_s = float(environment.get("EDT_PULL_WEIGHT_TIME_OUT") or TIMEOUT_S)
        self._limit = int(environment.get("EDT_PULL_FAILED_LIMITS") or LIMIT)
        self._failures = 0

    def left_s(self, now: float) -> float:
        """Of this wait, in seconds."""
        return max(0.0, self._since + self._timeout_s - now)

    def look(self, now: float) -> None:
        """Count a wait that has been too long. Raises PullFailed after the last one allowed."""
        if not self.left_s(now):
            self.failed(f"got no weights within {self._timeout_s:g} s", now)

    def failed(self, why: str, now: float) -> None:
        """Count a failure and ask again. Raises PullFailed after the last one allowed."""
        self._failures += 1
        self._since = now
        message = f"PULL_FAILED: slot {self._slot} {why} (attempt {self._failures} of {self._limit})"
        self._say(message)
        if self._failures >= self._limit:
            raise PullFailed(message)
