"""Writes states to the disk while the training goes on: what stands still is the copy of a state into memory (see `snapshot`).

One thread of the first member on a machine writes the snapshot there; one at a time. The word SNAPSHOT says that it is not on the disk
yet: whoever becomes the first member after its writer has died, or left, writes it again from the beginning. Should all of them die, the
run goes on from the state before it, and comes to the same one again. Where the next state is due before this one is written, it waits.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from training_runtime import storage
from training_runtime.elastic.comm.segment import SNAPSHOT, WAITS, Segment
from training_runtime.elastic.processes import reports
from training_runtime.elastic.state import emergency_checkpoint, model_files
from training_runtime.elastic.state.snapshot import Order, Snapshot
from training_runtime.elastic.worker import heartbeat

WAITING = "The state of the training cannot be written now ({}): it waits and tries again by itself."
GIVEN_UP = "No checkpoint was written after step {}: {}. The one before it is kept."
_LOOK_S = 0.05


class _Stopped(Exception):
    """This thread is to end, whatever it does."""


class Writer:
    """`fd`: the memfd of the snapshot. `recent`: what this worker has reported lately. All methods are for the worker's own thread."""

    def __init__(self, result_dir: Path, segment: Segment, fd: int, recent: Callable[[], Iterable[reports.Once]]) -> None:
        self._result_dir, self._segment, self._fd, self._recent = result_dir, segment, fd, recent
        self._thread: threading.Thread | None = None
        self._stops = threading.Event()
        self._told: deque[reports.Checkpoint | str] = deque()
        self._error: Exception | None = None
        self._moves = 0
        self._waits = False  # for room on the disk

    @property
    def is_busy(self) -> bool:
        return self._thread is not None

    def begin(self, position: int) -> None:
        """Write what is in the memfd, which is the state of `position`. Only while it is not busy."""
        self._segment.words[SNAPSHOT] = position
        self._stops.clear()
        self._thread = threading.Thread(target=self._run, name="state-writer", daemon=True)
        self._thread.start()

    def settle(self, position: int, *, is_first: bool) -> None:
        """A generation has begun with the state of `position`. `is_first`: this worker is the first member on its machine."""
        pending = self._segment.words[SNAPSHOT]
        if not is_first:
            self.stop()
        elif pending > position:  # all who were further have died: it will be come to again
            self.stop()
            self._forget()
        elif pending and not self.is_busy:
            self.begin(pending)

    def look(self, report: Callable[[reports.Checkpoint], None], say: Callable[[str], None]) -> None:
        """Pass on what has been written since, and what is in the way. Raises what writing has raised."""
        if self._thread is None:
            return
        ended = not self._thread.is_alive()  # before what it has told
        while self._told:
            told = self._told.popleft()
            report(told) if isinstance(told, reports.Checkpoint) else say(told)
        if ended:
            self._thread, error = None, self._error
            self._error = None
            if error is not None:
                raise error
            self._forget()

    def finish(
        self,
        report: Callable[[reports.Checkpoint], None],
        say: Callable[[str], None],
        excused: Callable[[int], AbstractContextManager[None]],
    ) -> None:
        """Wait until all is written, for as long as that takes."""
        while self._thread is not None:
            moves = self._moves
            with excused(WAITS if self._waits else 1):
                self._thread.join(_LOOK_S)
                if self._moves != moves or self._waits:
                    heartbeat.beat()
            self.look(report, say)

    def stop(self) -> None:
        """Leave it to the next one. What was there before stays as it is."""
        if self._thread is not None:
            self._stops.set()
            self._thread.join()
            self._thread = self._error = None
            self._told.clear()

    def _forget(self) -> None:
        self._segment.words[SNAPSHOT] = 0
        os.ftruncate(self._fd, 0)

    # -- the thread

    def _run(self) -> None:
        heartbeat.aside(self._moved)
        try:
            found = Snapshot(self._fd)
            if found.order.files:
                self._write(found.order, lambda: self._files(found))
            if found.order.engine:
                self._write(found.order, lambda: self._engine(found))
        except Exception as error:
            if not self._stops.is_set():
                self._error = error

    def _moved(self) -> None:
        self._moves += 1
        if self._stops.is_set():
            raise _Stopped

    def _files(self, found: Snapshot) -> None:
        order, size = found.order, found.order.others_bytes
        for path, content in order.files:
            size += model_files.save(self._result_dir, path, found.content(content))
        paths = (*(path for path, _ in order.files), *order.others)
        self._told.append(reports.Checkpoint(order.step, order.epoch, "model", paths, size))

    def _engine(self, found: Snapshot) -> None:
        paths, size = emergency_checkpoint.save_snapshot(self._result_dir, self._segment, found, self._recent())
        self._told.append(reports.Checkpoint(found.order.step, found.order.epoch, "engine", paths, size))

    def _write(self, order: Order, write: Callable[[], None]) -> None:
        """`write`, again and again while the storage takes nothing; what it wrote before stays as it is, since files are replaced as a
        whole."""
        while True:
            try:
                return write()
            except OSError as error:
                if error.errno not in storage.UNAVAILABLE:
                    raise
                if not order.patient:
                    self._told.append(GIVEN_UP.format(order.step, error.strerror))
                    return None
                if not self._waits:
                    self._told.append(WAITING.format(error.strerror))
                self._waits = True
            self._stops.wait(storage.RETRY_S)
            self._moved()


def is_first(worker_id: int, members: Sequence[int], segment: Segment) -> bool:
    """Whether it is the first of `members`, in rank order, on its machine."""
    machine = segment.layout.machine
    return next(member for member in members if machine(member) == machine(worker_id)) == worker_id
