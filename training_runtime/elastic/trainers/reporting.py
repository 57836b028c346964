"""How far a training is and when it ends, for the run's page: all of its epochs, where the bar that its library draws is of one of them, or
is drawn in a way that nobody reads."""

from __future__ import annotations

import json
import math
import time
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from training_runtime.elastic.script_logs.trainer_progress import OVER, PATH

EVERY_S = 2.0
MOST_REPORTS = 31  # that the time left is told by: those of the last minute


class ProgressReports:
    """Of one training, in the first worker of the run with this environment; of the others nothing is written."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._path = Path(environment["RESULT_DIR"], PATH) if environment.get("RANK", "0") == "0" else None
        self._latest: tuple[float, float, str] | None = None  # done, total, of which units
        self._reports: deque[tuple[float, float]] = deque(maxlen=MOST_REPORTS)  # seconds of a clock that goes forward, done

    def report(self, done: float, total: float, label: str) -> None:
        """`done` of `total` units that are called `label`, at each of them. What is no part of a whole is passed over."""
        if not (total > 0 and math.isfinite(total)):
            return
        self._latest = min(done, total), total, label
        now = time.monotonic()
        if self._path is not None and (not self._reports or now >= self._reports[-1][0] + EVERY_S):
            self._reports.append((now, done))
            self._write(self._left_s(), is_over=False)

    def end(self) -> None:
        """It has ended, at its end or before."""
        if self._latest is not None and self._path is not None:
            self._write(None, is_over=True)

    def _left_s(self) -> float | None:
        (since, first), (now, done) = self._reports[0], self._reports[-1]
        total = self._latest[1] if self._latest else done
        return (total - done) * (now - since) / (done - first) if done > first else None

    def _write(self, left_s: float | None, *, is_over: bool) -> None:
        """In the place of what was said before; not on a disk that takes nothing more."""
        if self._path is None or self._latest is None:
            return
        with suppress(OSError):
            self._path.parent.mkdir(exist_ok=True)
            draft = self._path.with_suffix(".new")
            done, total, label = self._latest
            draft.write_text(json.dumps({"done": done, "total": total, "left_s": left_s, "label": label, OVER: is_over}))
            draft.replace(self._path)
