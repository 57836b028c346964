"""Turns what the workers did into the journal, the driver's logger callback and a line for the terminal. Each step exactly once, over
restarts too.
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Protocol

from training_runtime import journal, journal_writer, storage
from training_runtime.elastic.build import same_build
from training_runtime.elastic.data.sampler import RunPlan
from training_runtime.elastic.driver import journal_position
from training_runtime.elastic.driver.driver_logger import DriverLogger, EpochMeans
from training_runtime.elastic.driver.journal_position import JournalPosition
from training_runtime.elastic.job import Job
from training_runtime.elastic.processes.reports import LoggedLine
from training_runtime.fabric.dispatch import Logger

FLUSH_S = 0.05
MOST_REASONS = 20
NOT_THE_SAME = (
    "epoch {} was computed again and came to another state than before (digest {} and now {}): the script, or this machine, does not "
    "compute the same each time; docs/exactness.md says what that takes"
)


@dataclass
class _Pending:
    """A generation that has begun; its line waits for its first step, which tells the pause."""

    event: journal.Generation
    before_t: float
    stood_s: float
    work_ratio: float


class Screen(Protocol):
    """What a person looks at."""

    def begin(self, steps: int) -> None: ...
    def trained(self, event: journal.Train, means: Mapping[str, float], generation: int) -> None: ...
    def say(self, line: str) -> None: ...


class Recorder:
    """The one writer of the journal. `grown` is told the journal's size after each flush; `look`, called now and then, may write too."""

    def __init__(
        self,
        writer: journal_writer.Writer,
        job: Job,
        *,
        logger: object,
        grown: Callable[[int], None],
        screen: Screen,
        look: Callable[[], None] = lambda: None,
    ) -> None:
        self._writer, self._job, self._grown, self._screen, self._look = writer, job, grown, screen, look
        self._console = Logger(logger) if logger is screen else None
        self._logger = None if logger is None or logger is screen else DriverLogger(logger, writer.path)
        self._before = writer.seq
        self.last_step = self.last_generation = self.trained_step = 0
        self._last_test = self._last_logged = 0
        self._files: set[journal.Checkpoint] = set()
        self._files_from = 0  # files of steps before this one are in the journal, whoever says so again
        self._digests: dict[int, str] = {}
        self.metrics: dict[str, float] = {}
        self._means = EpochMeans()
        self._exactness = journal.Exactness((), checked=False, build="")
        self._pending: _Pending | None = None
        self._last_t = 0.0
        self._durations: deque[tuple[float, int]] = deque(maxlen=64)  # of a step, and the engines that a worker had in it
        self._share = 1
        self._flushed = 0.0
        self._dirty = False
        self._waits_since: float | None = None
        self._read_back()

    def _read_back(self) -> None:
        """Take up where an earlier attempt stopped: from the place it kept on, or else from the first line."""
        for line in journal.follow(self._writer.path, self._recall()):
            event = line.event
            if isinstance(event, journal.Train):
                self.last_step = event.step
                self._accumulate(event)
            elif isinstance(event, journal.Test):
                self._last_test = event.step
                self.metrics.update({f"test {k}": v for k, v in event.metrics.items()})
            elif isinstance(event, journal.Checkpoint):
                self._files.add(event)
            elif isinstance(event, journal.Digest):
                self._digests[event.step] = event.digest
            elif isinstance(event, journal.Exactness):
                self._exactness = event
            elif isinstance(event, journal.Trained):
                self.trained_step = event.step
            elif isinstance(event, journal.Generation):
                self.last_generation = event.generation

    def keep_place(self, step: int) -> None:
        """The engine checkpoint of `step` was written: whoever goes on from it need not read the journal up to here, which may have a
        million lines. A convenience, so it costs nothing where the disk is full. Files of steps before that one are not written again."""
        if not self.flush(durable=True):
            return
        path, size = self._writer.path, self._writer.flush()
        self._files, self._files_from = {file for file in self._files if file.step >= step}, step
        digests = {at: digest for at, digest in self._digests.items() if at >= step}
        steps = (self.last_step, self.last_generation, self.trained_step, self._last_test)
        epoch = (self._means.epoch, self._means.sums, self._means.samples)
        journal_position.write(path, size, JournalPosition(steps, self.metrics, epoch, self._files, step, self._exactness, digests))

    def _recall(self) -> int:
        """The offset of the place that was kept, with all that the lines before it say; 0 where none was, or of another journal."""
        found = journal_position.read(self._writer.path)
        if found is None:
            return 0
        offset, place = found
        self.last_step, self.last_generation, self.trained_step, self._last_test = place.steps
        self._means.epoch, self._means.sums, self._means.samples = place.epoch
        self.metrics, self._exactness, self._digests = place.metrics, place.exactness, place.digests
        self._files, self._files_from = place.files, place.files_from
        return offset

    def _accumulate(self, event: journal.Train) -> dict[str, float]:
        """The averages over the epoch so far."""
        means = self._means.add(event)
        self.metrics.update({f"train {k}": v for k, v in means.items()})
        return means

    @property
    def epoch(self) -> int:
        """Of the last step, from 1; 0 before the first."""
        return self._means.epoch

    def write(self, event: journal.Event) -> None:
        """A rare event: at once in the file."""
        self.write_pending()
        self._writer.write(event)
        self.flush()
        if isinstance(event, journal.Warned):
            self._screen.say(f"warning: {event.message}")

    def died(self, slot: int) -> None:
        """A worker died there, maybe of the slot. In the file with what comes next: a change of members that is being measured goes on."""
        self._writer.write(journal.Died(slot))
        self._dirty = True

    def started(self, shape: RunPlan, attempt: int) -> None:
        """train() was called; also tells the driver's logger."""
        job = self._job
        held = [*job.model.parameters(), *job.model.buffers()]
        self.write(
            journal.Started(
                attempt=attempt,
                engines=job.engines,
                batch_size=job.batch_size,
                epochs=job.epochs,
                steps_per_epoch=shape.steps_per_epoch,
                samples=shape.samples,
                seed=job.seed,
                parameters=sum(p.numel() for p in job.model.parameters()),
                state_bytes=sum(t.numel() * t.element_size() for t in held),
            )
        )
        self._screen.begin(shape.steps_per_epoch * job.epochs)
        if self._logger is not None:
            self._logger.begin(shape.engine_batches, before=self._before)

    def exactness(self, reasons: Sequence[str], *, checked: bool = False) -> None:
        """More was seen of whether this run is exact; a line where that changes anything."""
        before, build = self._exactness, json.dumps(same_build())
        if before.build and before.build != build:
            reasons = [*reasons, f"it went on with another build or on another kind of machine: {build} after {before.build}"]
        now = journal.Exactness(tuple(dict.fromkeys((*before.reasons, *reasons)))[:MOST_REASONS], before.checked or checked, build)
        if now != before:
            self._exactness = now
            self.write(now)

    def durations(self) -> list[float]:
        """Of the last steps in seconds, or what they would take where a worker has more engines now."""
        return [step_s * max(1.0, self._share / share) for step_s, share in self._durations]

    def _engines_each(self, workers: int) -> int:
        return -(-self._job.engines // workers)

    def steps(self, rows: Sequence[Sequence[float]], shape: RunPlan) -> None:
        """Rows of the ring, in order."""
        for row in rows:
            step, epoch, samples, workers, step_s, t, _, *columns = row
            if int(step) <= self.last_step:
                continue
            event = journal.Train(int(step), int(epoch), self._job.means(columns), int(samples), int(workers), step_s)
            self.write_pending(t)
            self._writer.write(event, t=t)
            self.last_step, self._last_t, self._dirty = event.step, t, True
            self._durations.append((step_s, self._engines_each(event.workers)))
            means = self._accumulate(event)
            self._screen.trained(event, means, self.last_generation)
            if self._console is not None:
                self._console.train(means, shape.engine_batches(event.step), event.epoch, event.workers)

    def generation(self, event: journal.Generation, *, stood_s: float, work_ratio: float) -> None:
        """A generation has begun. `work_ratio`: a worker's engines now against before, by which a step may take longer for no fault
        of the change."""
        self.write_pending()
        self._pending = _Pending(event, self._last_t, stood_s, max(1.0, work_ratio))
        self.last_generation, self._share = event.generation, self._engines_each(len(event.members))

    def write_pending(self, t: float | None = None) -> None:
        """Write the waiting generation's line. Pause: the gap at the change minus a median step, and never less than the time it
        stood still."""
        pending, self._pending = self._pending, None
        if pending is None:
            return
        event, pause_s = pending.event, 0.0
        if event.workers_before and pending.before_t:
            gap_s = max(0.0, (t or time.time()) - pending.before_t)  # the clock may have been set back
            usual_s = median(step_s for step_s, _ in self._durations) if self._durations else 0.0
            pause_s = max(gap_s - usual_s * pending.work_ratio, min(pending.stood_s, gap_s)) if t else pending.stood_s
        self._writer.write(journal.Generation(**{**vars(event), "pause_ms": round(1000 * pause_s, 3)}))
        self._dirty = True
        self._screen.say(
            f"step {event.step}: {event.workers_before} -> {len(event.members)} workers, {event.reason}, {1000 * pause_s:.0f} ms"
        )

    def test(self, step: int, epoch: int, vector: Sequence[float]) -> None:
        if step <= self._last_test:
            return
        self._last_test = step
        metrics = self._job.means(list(vector))
        self.metrics.update({f"test {k}": v for k, v in metrics.items()})
        self.write(journal.Test(step, epoch, metrics, int(vector[0])))
        shown = ", ".join(f"{k} {v:.4g}" for k, v in metrics.items())
        self._screen.say(f"epoch {epoch} test: {shown}")

    def logged(self, at: int, lines: Sequence[LoggedLine]) -> None:
        """What the body of the script's loop has logged in step `at`; once, also where two workers tell it. Names that the engine measures
        are left to it. (After a driver's death some may be told again: that is one point all the same.)"""
        if at <= self._last_logged:
            return
        self._last_logged = at
        own = self._job.metric_names()
        for line in lines:
            values = {name: value for name, value in line.values.items() if name not in own}
            if values:
                self._writer.write(journal.Logged(line.group, line.step, values))
                self.metrics.update({f"{line.group} {name}": value for name, value in values.items()})
                self._dirty = True

    def checkpoint(self, event: journal.Checkpoint) -> None:
        """Once, also where a part of an epoch is done again and writes the same files."""
        if event in self._files or event.step < self._files_from:
            return
        self._files.add(event)
        self.write(event)
        if event.role == "engine":
            self.keep_place(event.step)

    def digest(self, event: journal.Digest) -> None:
        """Once. A part of an epoch that was done again must come to the same."""
        before = self._digests.get(event.step)
        if before is None:
            self._digests[event.step] = event.digest
            self.write(event)
        elif before != event.digest:
            self.write(journal.Warned(NOT_THE_SAME.format(event.epoch, before, event.digest)))
            self.exactness([f"epoch {event.epoch} was computed twice and came to another state the second time"])

    def trained(self) -> None:
        """The training is over, and what it has made is on the disk."""
        if self.trained_step != self.last_step:
            self.trained_step = self.last_step
            self.write(journal.Trained(self.last_step, self.epoch))

    def pause(self) -> None:
        """No thread of ours runs until the next flush: something is about to be forked."""
        if self._logger is not None:
            self._logger.pause()

    def end(self, left: Callable[[], bool], *, failed: bool = False) -> None:
        """Wait until the driver's logger has come to the end as well. `left`, asked meanwhile, says whether not to wait much longer."""
        if self._logger is None:
            return
        self.flush()
        whole = self._logger.end(left, silent=failed)
        self._complain()
        if not whole:
            self.write(journal.Warned("the driver's logger callback was far behind the training when that ended, and was not waited for"))

    def _complain(self) -> None:
        for message in self._logger.take_complaints() if self._logger is not None else ():
            self.write(journal.Warned(message))

    @property
    def waits(self) -> bool:
        """Whether the storage takes no line now. Nothing is lost: lines wait here, steps in the ring, and workers for room in that."""
        return self._waits_since is not None

    def due(self, now: float) -> float:
        """Seconds until lines that wait may be flushed."""
        return max(0.0, self._flushed + (storage.RETRY_S if self.waits else FLUSH_S) - now)

    def flush(self, *, durable: bool = False) -> bool:
        """Whether all that was written is in the file. Where the storage does not take it, it is tried again."""
        self._flushed = time.monotonic()
        try:
            size = self._writer.flush(durable=durable)
        except OSError as error:
            if error.errno not in storage.UNAVAILABLE:
                raise
            self._dirty = True
            if self._waits_since is None:
                self._waits_since = self._flushed
                self._screen.say(f"the journal cannot be written now ({error.strerror}): the training waits and goes on by itself")
            return False
        self._dirty = False
        self._grown(size)
        if self._waits_since is not None:
            waited_s, self._waits_since = self._flushed - self._waits_since, None
            self.write(journal.Warned(f"The storage took nothing for {waited_s:.0f} s; what was to be written then is there now."))
        if self._logger is not None:
            self._logger.feed()
        return True

    def flush_if_due(self, now: float) -> None:
        self._complain()
        self._look()
        if self._dirty and self.due(now) <= 0:
            self.flush()
