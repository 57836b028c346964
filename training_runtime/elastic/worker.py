"""A worker: one process on one slot that computes its share of the engines and moves from generation to generation.

Everything it does is a row of units (see `sampler`); its place is the number of units done, its tick. A change of members and a death both
arrive as `Moved`, at any barrier; the worker then enters the next generation, where the most advanced members hand their state to those
behind, and goes on.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import torch

from training_runtime.elastic import checkpoint, reports, state, tree
from training_runtime.elastic.arena import (
    BUSY_TICK,
    COMMITTED,
    EXCUSED,
    PID,
    RING,
    RING_READ,
    RING_WRITTEN,
    STATE,
    STATE_BYTES,
    STATE_LEFT,
    WANTED,
    Arena,
    GenerationRecord,
)
from training_runtime.elastic.buffers import SharedBuffers
from training_runtime.elastic.compute import Compute
from training_runtime.elastic.exchange import Exchange
from training_runtime.elastic.group import Group, Moved, await_membership
from training_runtime.elastic.hooks import WorkerHooks
from training_runtime.elastic.job import Job
from training_runtime.elastic.ledger import Ledger
from training_runtime.elastic.loading import Feed
from training_runtime.elastic.sampler import Shape, Unit, derive, seed_everything
from training_runtime.elastic.seat import Place
from training_runtime.elastic.validation import Validation


class Left(Exception):
    """This worker is not needed any more."""


class Worker:
    """The state of one worker process. `place` says where it sits; `resume`: take the state of the engine checkpoint."""

    def __init__(self, job: Job, shape: Shape, place: Place, arena: Arena) -> None:
        self.job, self.shape, self.place, self.arena, self.seat = job, shape, place, arena, place.seat
        self.feed = Feed(job, shape, devices=place.kind != "cpu", warn=lambda message: self._report("warning", message=message))
        self.tick = checkpoint.load_engine(job, shape) if place.resume else 0
        self.compute = Compute(job, shape, place.device())
        self.exchange = Exchange(arena, job.trained)
        self.buffers = SharedBuffers(arena, job.model)
        self.hooks = WorkerHooks(job, self._report)
        self.validation = Validation(self.compute, self.feed, arena, self.hooks)
        self.group = Group(arena, GenerationRecord(0, (self.seat,), ()), self.seat)
        self.last_commit = 0.0
        self.landing: state.Landing | None = None
        self.ledger = Ledger(job.result_dir) if os.environ.get("EDT_LEDGER") else None
        self._tested: list[int] = []

    def run(self) -> None:
        """Until the end of the training, or until the worker is not a member any more."""
        self.hooks.begin()
        self.buffers.keep()
        self._prepare()
        self._commit(self.tick)
        self.arena.set(self.seat, PID, os.getpid())
        self._report("ready")
        generation, abort = self._await_first(), False
        try:
            while True:
                try:
                    self._enter(generation, abort=abort)
                    self._train()
                    return self._finish()
                except Moved as moved:
                    generation, abort = moved.generation, moved.abort
        except Left:
            self.arena.set(self.seat, STATE, STATE_LEFT)
        finally:
            self.feed.close()

    def _prepare(self) -> None:
        """What can be done before the members stop for this worker: its own copy of the pages that it will write, room for the state
        to come."""
        state.touch(state.all_parameters(self.job.model, self.job.optimizer))
        if expected_bytes := self.arena.words[STATE_BYTES]:
            self.landing = state.Landing(self.place.state_fd, expected_bytes)

    def _await_first(self) -> int:
        """The first generation that has this worker in it. Raises Left after EDT_PULL_FAILED_LIMITS waits of EDT_PULL_WEIGHT_TIME_OUT
        seconds."""
        timeout_s, limit = float(os.environ.get("EDT_PULL_WEIGHT_TIME_OUT", "600")), int(os.environ.get("EDT_PULL_FAILED_LIMITS", "5"))
        for attempt in range(1, limit + 1):
            generation = await_membership(self.arena, self.seat, after=self.place.after, timeout_s=timeout_s)
            if generation is not None:
                return generation
            self._report(
                "warning",
                message=f"PULL_FAILED: slot {self.place.slot} got no weights within {timeout_s:g} s (attempt {attempt} of {limit})",
            )
        self._report("pull_limit")
        raise Left

    # -- members

    def _enter(self, number: int, *, abort: bool) -> None:
        """Begin generation `number`: all say how far they are, the most advanced give their state, those behind take it."""
        arena, record = self.arena, self.arena.generation(number)
        self.buffers.ensure_kept()
        self.buffers.rewind()  # a step that was dropped may have touched them
        self.exchange.drop()
        if self.seat not in record.members + record.visitors:
            raise Left
        old, group = self.group, Group(arena, record, self.seat)
        self.group = group
        group.barrier()
        ticks = group.committed()
        top = max(ticks.values())
        if top < 0:
            self._report("lost")
            raise Left
        sources = [seat for seat in record.members + record.visitors if ticks[seat] == top]
        redone = int(abort and any(arena.get(seat, BUSY_TICK) == top + 1 for seat in record.members))
        self._tested = arena.tested.tolist() if self.shape.test_batches else []
        if self.seat in sources:
            self._hand_over(top, sources, record, old, behind=min(ticks.values()) < top)
        group.barrier()
        if self.seat not in record.members:
            raise Left
        if ticks[self.seat] < top:
            self._take_over(top)
        group.begin()
        if group.rank == 0:
            stood_s = time.monotonic() - self.last_commit if self.last_commit else 0.0
            self._report("begun", generation=number, tick=top, redone=redone, stood_s=stood_s)

    def _hand_over(self, top: int, sources: list[int], record: GenerationRecord, old: Group, *, behind: bool) -> None:
        first = self.seat == sources[0]
        step = self.shape.step_at(top)
        if first and step > self.arena.words[RING_WRITTEN]:  # its recorder died between the step and its record
            self._record(self.shape.unit(top - 1), old, 0.0)
        if not record.members:
            if first:
                with self._excused():
                    paths, size = checkpoint.save_engine(self.job, self.shape, top)
                self._report("suspended", tick=top, paths=paths, size_bytes=size)
        elif behind:
            tree_of_state = state.capture(self.job.model, self.job.optimizer, self.job.user_callbacks)
            state.pack(self.place.state_fd, tree_of_state, sources.index(self.seat), len(sources))

    def _take_over(self, top: int) -> None:
        self.arena.set(self.seat, COMMITTED, -1)  # until all of it is here, this worker holds no state
        fd = self.place.state_fd
        landing = self.landing or state.Landing(fd, 0)
        state.restore(state.index_of(fd), landing, self.job.model, self.job.optimizer, self.job.user_callbacks)
        self.landing = None
        self.buffers.keep()
        self._commit(top)

    # -- units

    def _train(self) -> None:
        """All units that are left. Raises Moved when the members change."""
        self.arena.set(self.seat, BUSY_TICK, 0)
        while self.tick < self.shape.ticks:
            unit = self.shape.unit(self.tick)
            if unit.kind == "step":
                self._step(unit)
            elif unit.kind == "begin":
                self._begin_epoch(unit)
            else:
                self._end_epoch(unit)

    def _commit(self, tick: int) -> None:
        self.tick = tick
        self.arena.set(self.seat, COMMITTED, tick)
        self.arena.set(self.seat, BUSY_TICK, 0)
        self.last_commit = time.monotonic()

    def _sync(self) -> int:
        """Meet the others; the newest generation that all of them know."""
        return self.group.barrier() if self.group.size > 1 else self.arena.words[WANTED]

    def _move_on(self, agreed: int) -> None:
        if agreed > self.group.number:
            raise Moved(agreed, abort=False)

    def _step(self, unit: Unit) -> None:
        started, group, parity = time.monotonic(), self.group, unit.step % 2
        self.arena.set(self.seat, BUSY_TICK, self.tick + 1)
        sizes = self.shape.sizes(unit.index)
        engines = len(sizes)
        mine = tree.share(group.rank, group.size, engines)
        alone = engines == 1 and group.size == 1
        if not alone:
            self.buffers.ensure_kept()
        rows = [self._engine(unit, m, mine, sizes) for m in mine]
        agreed = self._sync()
        if group.size > 1:
            self.exchange.merge_joint(group.rank, group.size, engines)
            group.barrier()
        if not alone:
            self.exchange.deliver(group.size, engines, self.job.optimizer)
        self.job.optimizer.step()
        if group.size > 1:
            self.exchange.check()
        self.exchange.drop()
        if alone:
            self.buffers.advance_alone()
        else:
            self.buffers.adopt(parity)
        self._commit(self.tick + 1)
        if self.ledger is not None:
            self.ledger.committed(unit.step)
        if group.rank == 0:
            self._announce_size()
            self._record(unit, group, time.monotonic() - started)
        self.hooks.trained(rows, unit.epoch, group.size)
        self._move_on(agreed)

    def _announce_size(self) -> None:
        """Tell newcomers how much room the state takes; once, after the first step has made the optimizer's part of it."""
        if not self.arena.words[STATE_BYTES]:
            tree_of_state = state.capture(self.job.model, self.job.optimizer, self.job.user_callbacks)
            self.arena.words[STATE_BYTES] = state.packed_bytes(tree_of_state)

    def _engine(self, unit: Unit, m: int, mine: range, sizes: tuple[int, ...]) -> list[float]:
        """Compute one engine: its metrics into their row, its gradients into theirs."""
        parity = unit.step % 2
        if m != mine.start:
            self.buffers.rewind()
        alone = len(sizes) == 1 and self.group.size == 1
        weight = sizes[m] / sum(sizes)
        if not alone:
            self.exchange.begin(m, mine, len(sizes))
        task, group = self.feed.engine(unit, m), self.group
        batch = self.feed.batch(task, self.feed.following(self.tick, group.rank, group.size, after=m), workers=group.size)
        row = self.compute.train(task.place, batch, sizes[m], weight)
        if self.ledger is not None:
            self.ledger.engine(unit.step, unit.epoch + 1, m, task.indices)
        self.arena.metrics[parity, m] = torch.tensor(row, dtype=torch.float64)
        if m == 0 and not alone:
            self.buffers.publish(parity)
        if not alone:
            self.exchange.end(m, mine, len(sizes), scale=weight if self.job.train_function else None)
        return row

    def _record(self, unit: Unit, group: Group, step_s: float) -> None:
        """Put the step's sums into the ring. Rank 0 alone; never over a step that the driver has not read yet."""
        words = self.arena.words
        if unit.step <= words[RING_WRITTEN]:
            return  # done again after a loss: the same figures are there already
        while unit.step - words[RING_READ] >= RING:
            os.eventfd_write(self.place.wake_fd, 1)
            self.arena.bells[self.seat].wait(0.1)
        sums = self.arena.metrics[unit.step % 2, : len(self.shape.sizes(unit.index))].sum(0).tolist()
        row = [unit.step, unit.epoch + 1, sums[0], group.size, step_s, time.time(), group.number, *sums]  # RING_HEAD, then the sums
        self.arena.ring[unit.step % RING] = torch.tensor(row, dtype=torch.float64)
        words[RING_WRITTEN] = unit.step
        os.eventfd_write(self.place.wake_fd, 1)

    @contextmanager
    def _excused(self) -> Iterator[None]:
        """What happens inside may take longer than any step: no hang."""
        self.arena.set(self.seat, EXCUSED, 1)
        try:
            yield
        finally:
            self.arena.set(self.seat, EXCUSED, 0)

    def _begin_epoch(self, unit: Unit) -> None:
        seed_everything(derive(self.shape.seed, unit.epoch, 0, 0, "begin"))
        self.job.model.train()
        with self._excused():
            self.hooks.epoch_begin(unit.epoch)
        self.buffers.keep()
        self._commit(self.tick + 1)

    def _end_epoch(self, unit: Unit) -> None:
        if self.job.validates(unit.epoch):
            self._validate(unit)
        if self.job.checkpoints(unit.epoch) and self.group.rank == 0:
            self._save(f"model_epoch_{unit.epoch + 1}", unit)
            self._save_engine(unit)
        agreed = self._sync()  # nobody goes on before the files are there: else its writer's death would lose them
        seed_everything(derive(self.shape.seed, unit.epoch, 0, 0, "end"))
        with self._excused():
            self.hooks.epoch_end(unit.epoch, save_model=self.group.rank == 0)
        self.buffers.keep()
        self._commit(self.tick + 1)
        self._move_on(agreed)

    def _save(self, name: str, unit: Unit) -> None:
        with self._excused():
            paths, size = checkpoint.save_model(self.job, name)
        self._report("checkpoint", step=unit.step, epoch=unit.epoch + 1, role="model", paths=paths, size_bytes=size)

    def _save_engine(self, unit: Unit) -> None:
        """For the case that all workers die. From it this end of the epoch is done again, to the same files."""
        with self._excused():
            paths, size = checkpoint.save_engine(self.job, self.shape, self.tick)
        self._report("checkpoint", step=unit.step, epoch=unit.epoch + 1, role="engine", paths=paths, size_bytes=size)

    def _validate(self, unit: Unit) -> None:
        """The model as it was before, whatever becomes of it; rank 0 reports the result."""
        modes = [module.training for module in self.job.model.modules()]
        self.job.model.eval()
        self.buffers.ensure_kept()
        try:
            row = self._test(unit)
        finally:
            self.buffers.rewind()
            for module, mode in zip(self.job.model.modules(), modes, strict=True):
                module.training = mode
        if self.group.rank == 0:
            self._report("tested", step=unit.step, epoch=unit.epoch + 1, row=row)
        self._tested = []  # they were this validation's; after going back to a checkpoint the next one would find old marks in them

    def _test(self, unit: Unit) -> list[float]:
        if self.job.test_function is None:
            return self.validation.share(unit, self.tick, self.group, self._tested, lambda: self._move_on(self._sync()))
        if self.group.rank:
            return []  # rank 0 has the result, nobody else needs it
        with self._excused():
            return self.validation.by_user(unit, lambda value: self.arena.set(self.seat, EXCUSED, value))

    def _finish(self) -> None:
        if self.group.rank == 0:
            last = self.shape.unit(self.shape.ticks - 1)
            self._save("model_epoch_final", last)
            if self.job.save_to_onnx:
                self._save_example()
        self._sync()
        with self._excused():
            self.hooks.end()
        self._report("done")
        self.arena.set(self.seat, STATE, STATE_LEFT)

    def _save_example(self) -> None:
        """For the export, which is the driver's affair: whatever goes wrong with it costs a warning."""
        try:
            with self._excused():
                checkpoint.save_example(self.job, self.compute.example(checkpoint.EXAMPLES))
        except Exception as error:
            self._report("warning", message=f"no example of the inputs could be kept for the export: {type(error).__name__}: {error}")

    def _report(self, kind: str, **fields: Any) -> None:
        reports.send(self.place.reports, kind, seat=self.seat, **fields)


def run(job: Job, place: Place, lengths: tuple[int, int]) -> None:
    """The whole life of a worker process that was just forked. Reports an error of the user's code with its traceback; raises it too."""
    place.settle(job)
    try:
        shape = job.shape(*lengths)
        arena = Arena(place.arena_fd, job.layout(shape))
        Worker(job, shape, place, arena).run()
    except BaseException as error:
        fail(place, error)


def fail(place: Place, error: BaseException) -> NoReturn:
    import traceback

    text = "".join(traceback.format_exception(error))
    reports.send(place.reports, "error", seat=place.seat, where=f"worker on slot {place.slot}", traceback=text)
    raise error
