"""Calls the script's driver logger in a thread of its own, so that a slow callback never delays training.

The thread reads the journal, so what it has not come to yet waits there and not in memory, and a driver that takes up a run of an earlier
one tells its logger all from the first line. It runs only while nothing is forked (`pause`).
"""

from __future__ import annotations

import threading
import time
import traceback
from collections import deque
from collections.abc import Callable
from pathlib import Path

from training_runtime import journal
from training_runtime.elastic.complaints import Complaints
from training_runtime.fabric import dispatch
from training_runtime.fabric.dispatch import Logger

PAUSE_S = 5.0  # for a call that is under way when something has to be forked
LEFT_S = 5.0  # for what it has not come to yet when the training was stopped or has failed
_PIECE_BYTES = 1 << 16
_LOOK_S = 0.05


class EpochMeans:
    """The averages of metrics over an epoch so far."""

    def __init__(self) -> None:
        self.epoch, self.sums, self.samples = 0, dict[str, float](), 0.0

    def add(self, event: journal.Train) -> dict[str, float]:
        if event.epoch != self.epoch:
            self.epoch, self.sums, self.samples = event.epoch, {}, 0.0
        self.samples += event.samples
        for name, value in event.metrics.items():
            self.sums[name] = self.sums.get(name, 0.0) + value * event.samples
        return {name: total / self.samples for name, total in self.sums.items()}


class DriverLogger:
    """Feeds `callback` the lines of the journal at `path`. All methods are to be called in the driver's main thread."""

    def __init__(self, callback: object, path: Path) -> None:
        self._logger, self._path = Logger(callback), path
        self._offset, self._lines = 0, deque[journal.Line]()
        self._means = EpochMeans()
        self._batches: Callable[[int], int] | None = None
        self._before = 0
        self._thread: threading.Thread | None = None
        self._news = threading.Event()
        self._begun = self._pausing = self._ending = self._ended = self._silent = False
        self._complaints, self._said = Complaints(), deque[str]()

    def begin(self, batches: Callable[[int], int], *, before: int) -> None:
        """The training begins. `batches`: how many an engine has done after a step; `before`: the last line of an earlier driver."""
        self._batches, self._before = batches, before
        self.feed()

    def feed(self) -> None:
        """Tell the thread that the journal may have grown."""
        if self._batches is None or self._ended:
            return
        self._pausing = False
        self._news.set()
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._serve, name="driver-logger", daemon=True)
            self._thread.start()

    def pause(self) -> None:
        """Stop the thread until the next `feed`; a callback that takes too long is not waited for."""
        self._pausing = True
        self._news.set()
        if self._thread is not None:
            self._thread.join(PAUSE_S)

    def end(self, left: Callable[[], bool], *, silent: bool = False) -> bool:
        """Let the thread read the journal to its end, then stop it. Returns whether it got there. `left` is polled; once it is true, the
        wait is cut short. `silent`: the training has failed, so on_train_end is not called."""
        self._silent, self._ending = silent, True
        until = float("inf")
        while self._batches is not None and not self._ended and time.monotonic() < until:
            self.feed()
            if self._thread is not None:
                self._thread.join(_LOOK_S)
            if until == float("inf") and (silent or left()):
                until = time.monotonic() + LEFT_S
        if said := self._complaints.rest():
            self._said.append(said)
        self._pausing = True
        return self._batches is None or self._ended

    def take_complaints(self) -> list[str]:
        """Warnings about errors of the callback since the last call."""
        return [self._said.popleft() for _ in range(len(self._said))]

    # -- in the thread

    def _serve(self) -> None:
        if not self._begun:
            self._begun = True
            self._call(self._logger.begin)
        while not self._pausing:
            self._news.clear()
            if not self._process_next():
                if self._ending:
                    return self._finish()
                self._news.wait()
        return None

    def _finish(self) -> None:
        if not self._silent:
            self._call(self._logger.end)
        self._ended = True

    def _process_next(self) -> bool:
        """Process one line, or read what was added to the journal. Returns whether there was anything to do."""
        if not self._lines:
            batch = journal.read(self._path, self._offset, limit_bytes=_PIECE_BYTES)
            moved, self._offset = batch.end_offset > self._offset, batch.end_offset
            self._lines.extend(batch.lines)
            return moved
        line = self._lines.popleft()
        dispatch.replaying = line.seq <= self._before
        event = line.event
        if isinstance(event, journal.Train):
            means, batches = self._means.add(event), self._batches
            assert batches is not None
            self._call(lambda: self._logger.train(means, batches(event.step), event.epoch, event.workers))
        elif isinstance(event, journal.Test):
            self._call(lambda: self._logger.test(event.metrics, 0, event.epoch))
        dispatch.replaying = False
        return True

    def _call(self, action: Callable[[], None]) -> None:
        """Call the callback. An error in it becomes a warning and never fails a step."""
        try:
            action()
        except Exception as error:
            if said := self._complaints.add(f"the driver's logger callback raised {type(error).__name__}: {error}"):
                traceback.print_exc()
                self._said.append(said)
