"""Supervises the workers of one train(): which must be ended, and what the death of one means. It gathers facts from the segment, the
worker table and the journal for the modules that decide (`hang_rules`, `reclaim`, `failures`). It kills nobody itself."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Collection, Iterator

from training_runtime.elastic.comm.segment import BEAT, COMMITTED, EXCUSED, PHASE, WAITS, GenerationRecord, Segment
from training_runtime.elastic.driver import hang_detector, reclaim
from training_runtime.elastic.driver.failure_causes import FailureCauses
from training_runtime.elastic.driver.failures import Ended, Failures
from training_runtime.elastic.driver.reclaim import GracePeriod, Holder
from training_runtime.elastic.driver.worker_process import WorkerProcess
from training_runtime.elastic.driver.worker_table import WorkerTable

HANGS_S = 0.15  # how often it is looked for hangs at most
HANG_TIMEOUT, RELEASE_GRACE = "EDT_HANG_TIMEOUT", "EDT_RELEASE_GRACE_S"


class Supervision:
    """Supervision of the workers of one train(). `now` is seconds of a clock that only goes forward."""

    def __init__(self, now: float) -> None:
        self.causes, self.failures = FailureCauses(now), Failures()
        setting, grace = os.environ.get(HANG_TIMEOUT), os.environ.get(RELEASE_GRACE)
        self._hang_detector = hang_detector.HangDetector(float(setting) if setting else None)
        self._grace_period = GracePeriod(float(grace) if grace else reclaim.GRACE_S)
        self._looked = 0.0

    def is_due(self, now: float) -> bool:
        """Whether it is time to look again; once asked, it counts as looked at."""
        due = now >= self._looked + HANGS_S
        if due:
            self._looked = now
            self.causes.look(now)
        return due

    def fork_server_hangs(self, now: float, pid: int, durations: list[float]) -> bool:
        return self._hang_detector.fork_server(now, pid, durations)

    def to_end(
        self,
        now: float,
        segment: Segment,
        workers: Collection[WorkerProcess],
        record: GenerationRecord,
        *,
        wanted: Collection[int],
        durations: list[float],
        done: bool,
        retiring: bool,
    ) -> Iterator[tuple[int, str]]:
        """Yields (worker id, reason) for each of `workers` (processes not killed yet) that must be ended. `wanted`: slots that the run may
        use; `durations`: of the last steps, in seconds; `done`: all units are done; `retiring`: the final model is being written."""
        for found in self._hang_detector.look(now, segment, workers, members=record.worker_ids, durations=durations, done=done):
            slot = next(worker.slot.id for worker in workers if worker.worker_id == found.worker_id)
            yield found.worker_id, found.message(slot)
        holders = [_holder(segment, worker, record, retiring) for worker in workers if not worker.killed]
        if any(segment.get(worker.worker_id, EXCUSED) == WAITS for worker in workers):
            # For room on the disk: until there is some nobody can leave, and those who wait for that one are not to blame either.
            holders = [dataclasses.replace(holder, gives=True, beat=int(now * 1000)) for holder in holders]
        for holder in self._grace_period.overdue(now, holders, wanted):
            grace = f"slot {holder.slot} was asked back and not free within {self._grace_period.grace_s:g} s"
            yield holder.worker_id, f"{grace}: its worker was ended ({RELEASE_GRACE} sets the time)"

    def ended(self, worker_table: WorkerTable, worker_id: int, code: int, *, segment: Segment | None, generation: int) -> Ended:
        """The facts about a worker that was reaped, from the worker table as it was before."""
        worker = worker_table[worker_id]
        positions = {s.worker_id: -1 if segment is None else segment.get(s.worker_id, COMMITTED) for s in (worker, *worker_table.alive())}
        return Ended(
            slot=worker.slot.id,
            pid=worker.pid,
            position=positions[worker_id],
            generation=generation,
            cause=self.causes.cause(worker_id, code),
            newcomer=worker.state in ("starting", "ready") or positions[worker_id] < 0,
            members=any(positions[s] >= 0 for s in worker_table.those("member", "leaving") if s != worker_id),
            others=any(s != worker_id for s in worker_table.those("starting", "ready", "member", "leaving")),
        )


def _holder(segment: Segment, worker: WorkerProcess, record: GenerationRecord, retiring: bool) -> Holder:
    gives = (retiring and worker.state == "member") or (
        worker.state == "leaving" and segment.get(worker.worker_id, PHASE) >> 32 >= record.number
    )
    return Holder(worker.worker_id, worker.slot.id, gives, segment.get(worker.worker_id, BEAT))
