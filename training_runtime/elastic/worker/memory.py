"""The memory of a worker: made ready before anybody waits for it, and given back when nothing needs it, a little after each unit."""

from __future__ import annotations

from training_runtime.elastic import tree
from training_runtime.elastic.comm.give_back import GiveBack
from training_runtime.elastic.comm.prefault import Prefault
from training_runtime.elastic.comm.segment import STATE_BYTES, STATE_ROOM, WANTED, GenerationRecord, Segment
from training_runtime.elastic.data.sampler import RunPlan
from training_runtime.elastic.job import Job
from training_runtime.elastic.processes.worker_context import WorkerContext
from training_runtime.elastic.state import capture, transfer
from training_runtime.elastic.state.window import Window


class Memory:
    """`window` shows the memfd through which states go to newcomers; `landing` is the room for the state to come, if there is any."""

    def __init__(self, segment: Segment, shape: RunPlan, context: WorkerContext) -> None:
        self._segment, self._context = segment, context
        self._rows = Prefault(segment)
        self._give_back = GiveBack(segment, context.worker_id, context.state_fd, shape.engine_counts)
        self._number = 0
        self.window = Window(context.state_fd)
        self.landing: transfer.Landing | None = None

    def prepare(self, job: Job, *, through_segment: bool) -> None:
        """What can be done before the members stop for this worker: its own copy of the pages that it will write, room for the state to
        come."""
        live, words = job.live, self._segment.words
        if expected_bytes := words[STATE_BYTES]:
            words[STATE_ROOM] = words[WANTED]  # members get ready too
            self.landing = transfer.Landing(self.window, expected_bytes, [*live.parameters(), *live.buffers()])
        if expected_bytes or not job.shard_parameters:  # else these pages are not written before the parameters are elsewhere
            capture.touch(live.parameters())
        if through_segment:
            self._rows.allocate(tree.first_rows(self._context.workers, job.engines))
        self._rows.warm_heap(job.trained)

    def take_landing(self) -> transfer.Landing:
        """Where the state is taken from."""
        landing, self.landing = self.landing or transfer.Landing(self.window, 0), None
        return landing

    def enter(self) -> None:
        """A change of members has begun."""
        self._give_back.forget()

    def settle(self, record: GenerationRecord) -> None:
        """It is over: who took a state has done so."""
        self._number = record.number
        self.window.forget()
        self._give_back.begin(record.number, record.members)

    def some(self, step_s: float) -> None:
        """After a unit that took so long."""
        self._rows.some(step_s)
        if self._segment.words[STATE_ROOM] == self._number:  # somebody is about to join
            self.window.some(self._segment.words[STATE_BYTES], step_s)
        self._give_back.some(step_s)
