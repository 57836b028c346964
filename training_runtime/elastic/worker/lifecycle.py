"""The life of a worker: it becomes a member, moves from generation to generation, and ends. What it does in between is `worker`.

A change of members and a death both arrive as `Reconfigured`, at any barrier; the worker then enters the next generation, where the most
advanced members hand their state to those behind, and goes on. When nobody leads the run any more it writes down what it knows (see
`emergency_checkpoint`).
"""

from __future__ import annotations

import functools
import os
import time
import traceback
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import TypeVar

import torch

from training_runtime.elastic.comm.group import Group, Reconfigured, await_membership
from training_runtime.elastic.comm.segment import (
    BUSY_POSITION,
    COMMITTED,
    RING,
    RING_READ,
    RING_WRITTEN,
    STATE,
    STATE_LEFT,
    WAITS,
    WANTED,
    GenerationRecord,
    Segment,
)
from training_runtime.elastic.data.sampler import RunPlan, WorkItem
from training_runtime.elastic.job import Job
from training_runtime.elastic.multinode import payloads
from training_runtime.elastic.processes import hidden_gpus, process_handles, reports
from training_runtime.elastic.processes.worker_context import WorkerContext
from training_runtime.elastic.state import capture, emergency_checkpoint, transfer
from training_runtime.elastic.worker import heartbeat, long_work, reduction
from training_runtime.elastic.worker.buffers import SharedBuffers
from training_runtime.elastic.worker.callbacks import WorkerHooks
from training_runtime.elastic.worker.memory import Memory
from training_runtime.elastic.worker.pull import CAME_BETWEEN, Pull
from training_runtime.elastic.worker.sharding import ShardedOptimizer
from training_runtime.elastic.worker.writer import Writer, is_first
from training_runtime.errors import PullFailed

T = TypeVar("T")
RECENT_REPORTS = 64  # last reports that go with a checkpoint, in case the driver dies before it has read them


class Retired(Exception):
    """This worker is not needed any more."""


class Lifecycle(ABC):
    """One worker process. `position`: units done; -1: it holds no state. `context`: what it was started with. `worked`: the group that did
    the last unit, which is not `group` while a generation is entered: that one may have no members, and may be overtaken before it has
    begun."""

    def __init__(self, job: Job, shape: RunPlan, context: WorkerContext, segment: Segment) -> None:
        self.job, self.shape, self.context, self.segment, self.worker_id = job, shape, context, segment, context.worker_id
        heartbeat.begin(segment, self.worker_id)
        hidden_gpus.reveal(context.device())
        capture.move(job.live, context.device())
        self.position = context.begin
        self.exchange = reduction.exchange_of(job, segment, context)
        self.sharding = ShardedOptimizer(segment, job.optimizer, job.trained, on=job.shard_optimizer)
        self.buffers = SharedBuffers(segment, job.live.modules(), context.device(), on_device=context.on_device)
        self.hooks = WorkerHooks(job, self._warn)
        self.group = self.worked = Group(segment, GenerationRecord(0, (self.worker_id,), ()), self.worker_id, context.driver)
        self.memory = Memory(segment, shape, context)
        self.last_commit = self.last_unit_s = 0.0
        self.pull: Pull | None = None  # until it is a member that holds the state
        self.warm_up: Callable[[], None] | None = None
        self._tested: list[int] = []
        self.unsaved = -1  # the end of an epoch whose model nobody was told to save
        self.whole = True  # no unit is half applied to model, optimizer and callbacks
        self._passed = False  # what is left of another generation can be given back, after the next barrier
        self.recent_reports: deque[reports.Once] = deque(maxlen=RECENT_REPORTS)
        self.writer = Writer(job.result_dir, segment, context.snapshot_fd, lambda: tuple(self.recent_reports))

    @abstractmethod
    def _train(self) -> None:
        """All units that are left. Raises Reconfigured when the members change."""

    @abstractmethod
    def _finish(self) -> None:
        """What follows the last unit."""

    def run(self) -> None:
        """Until the end of the training, or until the worker is not a member any more."""
        self._begin()
        with self._ending():
            generation, abort = self._await_first(), False
            while True:
                try:
                    self._enter(generation, abort=abort)
                    self.pull = None
                    self._train()
                    return self._finish()
                except Reconfigured as change:
                    generation, abort = change.generation, change.abort

    def _begin(self) -> None:
        """All that comes before this worker is a member."""
        self.hooks.begin()
        self.buffers.snapshot()
        if self.warm_up is not None:
            self.warm_up()
            self.buffers.restore()
            self.exchange.drop()
        if self.position > 0:
            self._take_up()
        self._prepare()
        self._commit(self.position)
        process_handles.outlive_parent()  # from here on it may be the last one who knows something
        self._report(reports.Ready(self.worker_id))

    @contextmanager
    def _ending(self) -> Iterator[None]:
        """What is to be done when this worker is not needed any more, or cannot go on."""
        try:
            yield
        except Retired:
            self.writer.stop()
            self.segment.set(self.worker_id, STATE, STATE_LEFT)
        except PullFailed:
            self._report(reports.PullLimit(self.worker_id))
            self.segment.set(self.worker_id, STATE, STATE_LEFT)
        except emergency_checkpoint.Orphaned:
            self._write_down()
        except Exception:
            self._leave_state()
            raise

    def _leave_state(self) -> None:
        """An exception ends this worker. If nobody else holds the state, and no unit is half applied to it, whoever comes next goes on from
        here: one step is done again and not all since the last checkpoint."""
        if self.group.size == 1:
            try:
                self._written()
                if self.whole and self.position > 0:
                    with self._excused():
                        self._write_down()
            except Exception:  # the device may be what is broken; it is the first error that counts
                traceback.print_exc()

    def _write_down(self) -> None:
        """Nobody leads any more. The step in flight is void, unless its sum was complete: then it has been taken."""
        self._written()
        self.buffers.ensure_snapshot()
        self.buffers.restore()
        self.exchange.drop()
        position, row = self.segment.get(self.worker_id, COMMITTED), None
        if self.shape.step_at(max(position, 0)) > self.segment.words[RING_WRITTEN]:  # its recorder is dead, or found no room
            row = self._row(self.shape.unit(position - 1), self.worked, 0.0)
        # On another machine than the driver's its agent lives and takes out what is unread, perhaps after the driver has gone on from here.
        unread = functools.cache(lambda: [*self.recent_reports, *self.context.unread()])  # once, however often it must be written
        self._patiently(lambda: emergency_checkpoint.write_down(self.job, self.shape, self.segment, position, row=row, unread=unread))

    def _take_up(self) -> None:
        """The state on the disk, as a newcomer takes that of the others: after on_train_begin, which would begin anew with it."""
        if not emergency_checkpoint.load(self.job, self.shape, self.segment, self.position, self._warn):
            self.position = -1  # the journal knows the way to that one, not to another that came in between
        self.buffers.snapshot()

    def _prepare(self) -> None:
        """What can be done before the members stop for this worker."""
        self.memory.prepare(self.job, through_segment=self.exchange.through_segment)

    def _await_first(self) -> int:
        """The first generation that has this worker in it."""
        self.pull = Pull(self.context.slot, self._say, os.environ, time.monotonic())
        return await_membership(self.segment, self.worker_id, driver=self.context.driver, after=self.context.after, pull=self.pull)

    # -- members

    def _enter(self, number: int, *, abort: bool) -> None:
        """Begin generation `number`: all say how far they are, the most advanced give their state, those behind take it."""
        segment, record = self.segment, self.segment.generation(number)
        self.buffers.ensure_snapshot()
        self.buffers.restore()  # a step that was dropped may have touched them
        self.exchange.leave()
        if self.worker_id not in record.worker_ids:
            raise Retired
        self.exchange.drop()
        group = self.group = Group(segment, record, self.worker_id, self.context.driver)
        self.sharding.enter(group)
        self.memory.enter()
        if not record.members:
            self._written()  # nobody will be left who could
        self.exchange.meet(record, self.worker_id)
        self._meet(payloads.MARKS)
        positions = group.committed()
        top = max(positions.values())
        if top < 0:
            raise Retired
        sources = [worker_id for worker_id in record.worker_ids if positions[worker_id] == top]
        if abort:
            self._look_for_a_lost_hook(record)
        redone = int(abort and any(segment.get(worker_id, BUSY_POSITION) == top + 1 for worker_id in record.members))
        self._tested = segment.tested.tolist() if self.shape.test_batches else []
        handed = self._hand_over(top, sources, record, positions) if self.worker_id in sources else 0
        self._meet(handed)
        if self.worker_id not in record.members:
            raise Retired
        if positions[self.worker_id] < top:
            self._take_over(top)
        self._passed = True
        group.begin()
        self.writer.settle(self.position, is_first=is_first(self.worker_id, record.members, segment))
        self.exchange.join(group)
        self.worked = group
        if group.rank == 0:
            self._begun(top, redone)

    def _begun(self, top: int, redone: int) -> None:
        """Say so, as the first member."""
        stood_s = time.monotonic() - self.last_commit if self.last_commit else 0.0
        self._report(reports.Begun(self.group.number, top, redone, stood_s))
        self.sharding.complain(self._warn)

    def _look_for_a_lost_hook(self, record: GenerationRecord) -> None:
        """The first member may have died in its on_epoch_end, which alone is told to save the model, while the others were done with
        theirs: then the next first member does that part again. What the dead had committed last still stands in its words."""
        first = self.worked.record.members[0]
        ends = [
            position for position in (self.position - 1, self.position - 2) if position >= 0 and self.shape.unit(position).kind == "end"
        ]
        if ends and first not in record.worker_ids and 0 <= self.segment.get(first, COMMITTED) <= ends[0]:
            self.unsaved = ends[0]

    def _meet(self, made: int) -> None:
        """A barrier of entering. Who holds no state yet counts how long it waits for it, and who dies in between."""
        pull = self.pull if self.pull is not None and self.group.is_ahead() else None
        try:
            self.group.barrier(pull, payload=made)
        except Reconfigured:
            if pull is not None:
                pull.failed(CAME_BETWEEN, time.monotonic())
            raise

    def _hand_over(self, top: int, sources: list[int], record: GenerationRecord, positions: Mapping[int, int]) -> int:
        """Give the state to those behind, each machine to its own, and one of them to machines that have nobody who knows it. Returns what
        that gives to other machines."""
        first = self.worker_id == sources[0]
        step = self.shape.step_at(top)
        if first and step > self.segment.words[RING_WRITTEN]:  # its recorder died between the step and its record
            self._record(self.shape.unit(top - 1), self.worked, 0.0)
        if not record.members:
            if first:
                paths, size = self._patiently(
                    lambda: emergency_checkpoint.save(self.job, self.shape, self.segment, top, self.recent_reports)
                )
                self._report(reports.Suspended(top, paths, size))
            return 0
        machine = self.segment.layout.machine
        here, give = machine(self.worker_id), {machine(worker_id) for worker_id in sources}
        lacking = {machine(worker_id) for worker_id, position in positions.items() if position < top}
        elsewhere = lacking - give if here == min(give) else set()
        if here not in lacking and not elsewhere:
            return 0
        mine = [worker_id for worker_id in sources if machine(worker_id) == here]
        transfer.pack(self.memory.window, capture.capture(self.job.live), mine.index(self.worker_id), len(mine))
        return payloads.state(elsewhere, len(mine)) if elsewhere else 0

    def _take_over(self, top: int) -> None:
        self.whole = False
        self.segment.set(self.worker_id, COMMITTED, -1)  # until all of it is here, this worker holds no state
        capture.restore(transfer.index_of(self.context.state_fd), self.memory.take_landing(), self.job.live)
        self.buffers.snapshot()
        self._commit(top)

    # -- what units need

    def _commit(self, position: int) -> None:
        self.position, self.whole = position, True
        self.segment.set(self.worker_id, COMMITTED, position)
        self.segment.set(self.worker_id, BUSY_POSITION, 0)
        now = time.monotonic()
        self.last_commit, self.last_unit_s = now, now - (self.last_commit or now)

    def _sync(self, made: int = 0) -> int:
        """Meet the others; the newest generation that all of them know. `made`: what machines other than this one need of it."""
        newest = self.group.barrier(payload=made) if self.group.size > 1 else self.segment.words[WANTED]
        if self._passed:  # who took the state has done so before this barrier, and nobody gives the next one before another
            self._passed = False
            self.memory.settle(self.group.record)
        return newest

    def _written(self) -> None:
        """All that is to be written is on the disk."""
        self.writer.finish(self._report, self._say, self._excused)

    def _move_on(self, agreed: int) -> None:
        self.writer.look(self._report, self._say)
        emergency_checkpoint.look(self.segment, self.context.driver)
        if agreed > self.group.number:
            raise Reconfigured(agreed, abort=False)
        self.memory.some(self.last_unit_s)

    def _record(self, unit: WorkItem, group: Group, step_s: float) -> None:
        """Put the step's sums into the ring. Rank 0 alone; never over a step that the driver has not read yet."""
        words = self.segment.words
        if unit.step <= words[RING_WRITTEN]:
            return  # done again after a loss: the same figures are there already
        if unit.step - words[RING_READ] >= RING:
            with self._excused(WAITS):  # the driver may wait for room on the disk
                self._await_room(unit.step)
        self.segment.ring[unit.step % RING] = torch.tensor(self._row(unit, group, step_s), dtype=torch.float64)
        words[RING_WRITTEN] = unit.step
        os.eventfd_write(self.context.wake_fd, 1)
        self.segment.stir()

    def _await_room(self, step: int) -> None:
        while step - self.segment.words[RING_READ] >= RING:
            os.eventfd_write(self.context.wake_fd, 1)
            self.segment.bells[self.worker_id].wait(0.1)
            emergency_checkpoint.look(self.segment, self.context.driver)
            heartbeat.beat()  # it is the driver who is late

    def _row(self, unit: WorkItem, group: Group, step_s: float) -> list[float]:
        """What the ring holds of a step that has just been done: RING_HEAD columns, then the sums."""
        sums = self.segment.metrics[unit.step % 2, : len(self.shape.sizes(unit.index))].sum(0).tolist()
        return [unit.step, unit.epoch + 1, sums[0], group.size, step_s, time.time(), group.number, *sums]

    def _excused(self, how: int = 1) -> AbstractContextManager[None]:
        return long_work.excused(self.segment, self.worker_id, how)

    def _patiently(self, write: Callable[[], T]) -> T:
        return long_work.until_written(write, excused=self._excused, say=self._say)

    def _say(self, message: str) -> None:
        """A line for people: in this worker's log and in the journal."""
        print(message, flush=True)  # noqa: T201
        self._warn(message)

    def _warn(self, message: str) -> None:
        self._report(reports.Warned(message))

    def _report(self, report: reports.OfWorker) -> None:
        self.context.reports.send(report)
        if isinstance(report, reports.Once):
            self.recent_reports.append(report)
        if self.context.reports.unsent:
            emergency_checkpoint.declare(self.segment)  # nobody hears us: the next driver or fork server will read what we write down
