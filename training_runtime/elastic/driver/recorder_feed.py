"""What the workers did, from their reports and their ring to the recorder: each generation when it begins, its steps after that, and what a
driver before this one could not write any more. It decides nothing and touches no process.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, assert_never

from training_runtime import journal
from training_runtime.elastic.comm.segment import RING, RING_GENERATION, RING_READ, RING_WRITTEN, GenerationRecord, Segment
from training_runtime.elastic.data.sampler import RunPlan
from training_runtime.elastic.driver.recorder import Recorder
from training_runtime.elastic.job import Job
from training_runtime.elastic.processes import reports
from training_runtime.elastic.state import checkpoint, emergency_checkpoint


@dataclass(frozen=True)
class Published:
    """A generation as it was announced. `identities`: worker id -> slot and pid of each member."""

    record: GenerationRecord
    reason: str
    identities: Mapping[int, tuple[int, int]]


class RecorderFeed:
    """`resumed`: why the next generation goes on from a checkpoint or anew, empty where it just goes on; "resumed" after a suspension."""

    def __init__(self, job: Job, shape: RunPlan, recorder: Recorder) -> None:
        self._job, self.shape, self._recorder = job, shape, recorder
        self.published: dict[int, Published] = {}
        self.begun_number = recorder.last_generation
        self.resumed = ""
        self.workers = 0

    def take_up(self) -> int | None:
        """Put into the journal what an earlier driver could not, or what was written down elsewhere (see `emergency_checkpoint`). The
        position of the engine checkpoint to which the journal now knows the way; None where there is none."""
        with emergency_checkpoint.one_at_a_time(self._job.result_dir):
            if self._take_up(emergency_checkpoint.read(self._job.result_dir)):
                emergency_checkpoint.forget(self._job.result_dir)
            found = checkpoint.find(self._job, self.shape)
        for damaged in found.damaged:
            self._recorder.write(journal.Warned(f"{damaged}; the run goes on from {self._describe_start(found.newest)}"))
        return found.newest.position if found.newest is not None else None

    def _describe_start(self, kept: checkpoint.CheckpointFile | None) -> str:
        return f"{kept.path.name}, the state after step {self.shape.step_at(kept.position)}" if kept is not None else "the start"

    def _take_up(self, unwritten: emergency_checkpoint.Unwritten) -> bool:
        """Whether it is in the journal's file."""
        words = {word["generation"]: word for word in unwritten.generations}
        for row in unwritten.rows:
            if (
                (number := int(row[RING_GENERATION])) > self._recorder.last_generation
                and number in words
                and row[0] > self._recorder.last_step
            ):
                self._begun_before(words[number], step=int(row[0]), epoch=int(row[1]))
            self._recorder.steps([row], self.shape)
        for report in unwritten.reports:
            self.note(report)
        return self._recorder.flush()

    def continues(self, position: int | None) -> None:
        """An attempt begins with the engine checkpoint of `position`; None: with nothing."""
        if position is not None:
            own = "the last checkpoint" if self._recorder.last_step or not self.shape.step_at(position) else "the checkpoint of another run"
            self.resumed = f"continued from {own}"
        elif self._recorder.last_step:
            self.resumed = "continued from the start, there was no checkpoint"

    def announce(self, segment: Segment, published: Published) -> None:
        """A generation is about to be published. Its line is written when it works; word of it is left in case nobody here can do that."""
        self.published[published.record.number] = published
        members = [(rank, *published.identities[worker_id]) for rank, worker_id in enumerate(published.record.members)]
        word = {"generation": published.record.number, "members": members, "before": self.workers, "reason": published.reason}
        segment.note(published.record.number, json.dumps(word).encode())

    def _begun_before(self, word: Mapping[str, Any], *, step: int, epoch: int) -> None:
        """A generation that did `step` under a driver that has died since."""
        members = tuple(journal.Member(*member) for member in word["members"])
        event = journal.Generation(word["generation"], step, epoch, members, word["before"], word["reason"], 0.0, 0)
        self._recorder.generation(event, stood_s=0.0, work_ratio=1.0)

    def note(self, report: reports.Journaled | reports.Exactness) -> None:
        """A report that is a line in the journal and nothing more."""
        match report:
            case reports.Tested():
                self._recorder.test(report.step, report.epoch, report.row)
            case reports.Checkpoint():
                self._recorder.checkpoint(journal.Checkpoint(report.step, report.epoch, report.role, report.paths, report.size_bytes))
            case reports.Digest():
                self._recorder.digest(journal.Digest(report.step, report.epoch, report.digest))
            case reports.Exactness():
                self._recorder.exactness(report.reasons, checked=report.checked)
            case reports.Logged():
                self._recorder.logged(report.at, report.lines)
            case reports.Warned():
                self._recorder.write(journal.Warned(report.message))
            case _:
                assert_never(report)

    def steps(self, segment: Segment) -> bool:
        """Hand finished steps to the recorder, up to the first of a generation whose beginning has not been reported yet; whether any left
        the ring."""
        first, last = segment.words[RING_READ] + 1, segment.words[RING_WRITTEN]
        rows = [segment.ring[step % RING].tolist() for step in range(first, last + 1)]
        rows = list(itertools.takewhile(lambda row: row[RING_GENERATION] <= self.begun_number, rows))
        if rows:
            self._recorder.steps(rows, self.shape)
            # What leaves the ring is in the journal: else a driver that dies now would take it with it, and where the storage takes nothing
            # the workers would not wait. The recorder takes a step that it is given again only once.
            if not self._recorder.flush():
                return False
            segment.words[RING_READ] = first + len(rows) - 1
        return bool(rows)

    def begun(self, report: reports.Begun) -> None:
        """A generation works. It may have been overtaken by an abort already; its steps are in the ring all the same."""
        generation, published = report.generation, self.published[report.generation]
        before, now = self.workers, len(published.record.members)
        step, epoch = self.shape.step_at(report.position), self.shape.epoch_at(report.position)
        if self.resumed:
            self._recorder.write(journal.Resumed(step, epoch, published.reason if self.resumed == "resumed" else self.resumed))
            self.resumed = ""
        members = tuple(journal.Member(rank, *published.identities[s]) for rank, s in enumerate(published.record.members))
        event = journal.Generation(generation, step + 1, epoch, members, before, published.reason, 0.0, report.redone)
        ratio = -(-self._job.engines // now) / -(-self._job.engines // before) if before else 1.0
        self._recorder.generation(event, stood_s=report.stood_s, work_ratio=ratio)
        self.workers, self.begun_number = now, generation
        for number in [n for n in self.published if n < generation]:
            del self.published[number]

    def suspended(self, generation: int, report: reports.Suspended, *, stopping: bool) -> None:
        """The state is on the disk and nobody works on it."""
        step, epoch = self.shape.step_at(report.position), self.shape.epoch_at(report.position)
        self._recorder.write(journal.Checkpoint(step, epoch, "engine", report.paths, report.size_bytes))
        if not stopping:
            self._recorder.write(journal.Suspended(step, epoch, self.published[generation].reason))
        self._recorder.keep_place(step)
        self.workers, self.resumed = 0, "resumed"

    def still_read(self) -> set[int]:
        """Ids of workers that a slow member may still look at: those of the last generation that has begun, and of any since."""
        recent = [p.record for number, p in self.published.items() if number >= self.begun_number]
        return {worker_id for record in recent for worker_id in record.members + record.visitors}
