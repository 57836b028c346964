"""A worker: one process on one slot that computes its share of the engines.

Everything it does is a row of units (see `sampler`); its place is the number of units done, its position. Members may change at any barrier
and at the end of each unit: how a worker lives through that is `lifecycle`.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any, NoReturn

from training_runtime import storage
from training_runtime.elastic import look, verify
from training_runtime.elastic.comm.group import SLICE_S, Reconfigured
from training_runtime.elastic.comm.segment import BUSY_POSITION, CLOSED, RETIRED, RING_WRITTEN, STATE, STATE_LEFT, Segment
from training_runtime.elastic.data.loading import Feed
from training_runtime.elastic.data.sampler import RunPlan, WorkItem, derive, seed_everything
from training_runtime.elastic.driver import advice, failure_causes
from training_runtime.elastic.job import Job
from training_runtime.elastic.processes import reports
from training_runtime.elastic.processes.worker_context import WorkerContext
from training_runtime.elastic.state import capture, checkpoint, digest, emergency_checkpoint, model_files
from training_runtime.elastic.state.registered import early_end
from training_runtime.elastic.worker.compute import BatchMetrics, Compute
from training_runtime.elastic.worker.ledger import Ledger
from training_runtime.elastic.worker.lifecycle import Retired
from training_runtime.elastic.worker.stepping import Doing, Stepping
from training_runtime.elastic.worker.validation import Validation
from training_runtime.errors import RuntimeFailure

CHECKPOINT_MINUTES = 10.0  # between two engine checkpoints within an epoch; EDT_CHECKPOINT_MINUTES, 0: only at the ends of epochs


STOPPED = "The script has ended the training by {}: after step {} of {}."


class Worker(Stepping):
    """The units of one worker process. `ended`: whether, and after which position, the script has ended the training, which is a part of
    the state."""

    computes = Compute
    stops_by = "stop_training"

    def __init__(self, job: Job, shape: RunPlan, context: WorkerContext, segment: Segment) -> None:
        # First of all: it may fork, which is not safe any more once a device has been touched.
        twice = context.worker_id == 0 and context.begin == 0 and look.is_worth_it(job, on_device=context.on_device)
        found = look.look_twice(job, shape, context.device()) if twice else None
        self.feed = Feed(job, shape, devices=context.on_device, warn=self._warn)
        super().__init__(job, shape, context, segment)
        self.compute = self.computes(job, shape, context.device())
        self.warm_up = self.compute.warm_up if self.compute.compiled or context.on_device else None
        restore = self.buffers.restore
        self.validation = Validation(self.compute, self.feed, segment, self.hooks, restore=restore, on_device=context.on_device)
        self.exactness = verify.Exactness(job, lambda reasons, checked: self._report(reports.Exactness(tuple(reasons), checked)))
        self.exactness.begin(found, on_device=context.on_device)
        self.ledger = Ledger(job.result_dir) if os.environ.get("EDT_LEDGER") else None
        self.replicas, self._warned = digest.Replicas(segment), False
        ended: Any = job.registered.get("ended") or early_end()
        self.ended: dict[str, int] = ended.given["by script"]
        self.checkpoint_every_s = 60 * float(os.environ.get("EDT_CHECKPOINT_MINUTES") or CHECKPOINT_MINUTES)
        self.saved_at = time.monotonic() - checkpoint.age_s(job.result_dir)

    @property
    def last_position(self) -> int:
        """Of the whole training, as far as is known."""
        return self.ended["tick"] or self.shape.length

    def _prepare(self) -> None:
        super()._prepare()
        self.feed.prepare(self.segment.words[RING_WRITTEN])

    def _train(self) -> None:
        """All units that are left. Raises Reconfigured when the members change."""
        self._resume()
        while self.position < self.last_position:
            unit = self.shape.unit(self.position)
            if unit.kind == "step":
                self._step(unit)
            else:
                self._edge(unit)

    def _resume(self) -> None:
        """A generation has begun."""
        self.segment.set(self.worker_id, BUSY_POSITION, 0)
        self.compute.refuse_changes()
        if self.unsaved >= 0 and self.group.rank == 0:
            self._save_in_hook_again(self.shape.unit(self.unsaved))

    def _edge(self, unit: WorkItem) -> None:
        """The beginning of an epoch, or its end."""
        if unit.kind == "begin":
            self._begin_epoch(unit)
        else:
            self._end_epoch(unit)

    def _step(self, unit: WorkItem) -> None:
        doing = self._begin_step(unit)
        doing.metrics = [self._engine(doing, m) for m in doing.mine]
        self._sum(doing)
        self.whole = False
        doing.reduce.take_buffers()  # hooks of the optimizer may read them: an average of the model has its statistics, too
        self.compute.seed((unit.epoch, unit.index, 0), "optimizer")  # it, or a hook of it, may draw: noise, stochastic rounding
        self._optimize(doing)
        doing.reduce.check()
        self.exchange.drop()
        if not doing.reduce.several:
            self._read(doing)  # not before: a device has more to do by now, while this process waits for it
        if self.job.has_own_step:
            self.buffers.outdate_snapshot()
        self._end_step(doing)

    def _optimize(self, doing: Doing) -> None:
        """The optimizer's step, of all parameters or of those that are this worker's to step."""
        all_shares = doing.shared_out and self._step_share(doing)
        if all_shares:
            self.sharding.load_step(doing.unit.step)
        else:
            self.job.optimizer.step()

    def _step_share(self, doing: Doing) -> bool:
        """Step this worker's parameters, and wait for the others of its machine. False where somebody has died meanwhile: a share may be
        missing, and all gradients are here."""
        self.sharding.step(doing.group, doing.unit.step)
        try:
            doing.group.local_barrier()
        except (Reconfigured, emergency_checkpoint.Orphaned):  # what follows from it is for the next barrier, or the end of the step
            return False
        return True

    def _engine(self, doing: Doing, m: int) -> BatchMetrics:
        """Compute one engine, its gradients into their row."""
        task, batch = self._begin_engine(doing, m)
        metrics = self.compute.train(task.place, batch, doing.sizes[m], doing.sizes[m] / sum(doing.sizes))
        self._end_engine(doing, m)
        return metrics

    def _begin_epoch(self, unit: WorkItem) -> None:
        if unit.epoch and self.job.user_callbacks and self._agree_on_the_end(unit):
            return
        seed_everything(derive(self.shape.seed, unit.epoch, 0, 0, "begin"))
        self.job.model.train()
        self.whole = False
        self.sharding.open()
        with self._excused(), self.exactness.callbacks():
            self.hooks.epoch_begin(unit.epoch)
        self.compute.refuse_changes()
        self.exchange.refuse_changes(self.job.optimizer)
        self.buffers.snapshot()
        self._commit(self.position + 1)

    def _agree_on_the_end(self, unit: WorkItem) -> bool:
        """Whether a callback has ended the training with the epoch before. All must have heard it: where one goes on alone, nobody comes to
        an end. Here, where no state is half done, members may change over it."""
        self.replicas.tell(self.worker_id, self.group.next_parity, dict.fromkeys(digest.SECTIONS, self.ended["asked"]))
        agreed = self._sync()
        differ, groups = self.replicas.compare(self.group.record.members, self.group.parity)
        if differ and self.group.rank == 0:
            self._report(reports.Diverged(unit.step, ("stop_training",), tuple(map(tuple, groups))))
        if differ:
            raise Retired
        self._move_on(agreed)
        if self.ended["asked"]:
            self.ended["tick"] = self.position
        return bool(self.ended["asked"])

    def _end_epoch(self, unit: WorkItem) -> None:
        self._digest(unit)
        if self.job.validates(unit.epoch):
            self._validate(unit)
        if self.job.checkpoints(unit.epoch) and self.group.rank == 0:
            self._save(unit, f"model_epoch_{unit.epoch + 1}")
            if self.hooks.ends_epochs():
                self._written()
        self.exactness.look()
        agreed = self._sync()  # nobody goes on before the snapshot is there: else its taker's death would lose it
        seed_everything(derive(self.shape.seed, unit.epoch, 0, 0, "end"))
        self.whole = False
        self.sharding.open()
        with self._excused(), self.exactness.callbacks():
            self.hooks.epoch_end(unit.epoch, save_model=self.group.rank == 0)
        if self.hooks.ask_to_stop():
            self.ended["asked"] = 1
        self.compute.refuse_changes()
        self.exchange.refuse_changes(self.job.optimizer)
        self.buffers.snapshot()
        self._commit(self.position + 1)
        self._move_on(agreed)

    def _save_in_hook_again(self, unit: WorkItem) -> None:
        """In the place of a first member that died over it. This worker has had the hook once, as the others have: what it changes now must
        not count."""
        self.whole = False
        seed_everything(derive(self.shape.seed, unit.epoch, 0, 0, "end"))
        with self._excused(), capture.unchanged(self.job.live):
            self.hooks.epoch_end(unit.epoch, save_model=True)
        self.whole, self.unsaved = True, -1

    def _digest(self, unit: WorkItem) -> None:
        """Compare the state with the others' before it is validated and written, and have its digest journaled."""
        with self._excused():
            parts = self._tell_digest()
        self._sync()
        self._compare(unit.step)
        if self.group.rank == 0:
            self._report(reports.Digest(unit.step, unit.epoch + 1, digest.joined(parts)))

    def _validate(self, unit: WorkItem) -> None:
        """The model as it was before, whatever becomes of it; rank 0 reports the result."""
        modes = [module.training for module in self.job.model.modules()]
        self.job.model.eval()
        self.buffers.ensure_snapshot()
        try:
            with self.exactness.tests():
                vector = self._test(unit)
        finally:
            self.buffers.restore()
            for module, mode in zip(self.job.model.modules(), modes, strict=True):
                module.training = mode
        if self.group.rank == 0:
            self._report(reports.Tested(unit.step, unit.epoch + 1, tuple(vector)))
        self._tested = []  # they were this validation's; after going back to a checkpoint the next one would find old marks in them

    def _test(self, unit: WorkItem) -> list[float]:
        if self.job.test_function is None:
            return self.validation.share(unit, self.position, self.group, self._tested, lambda made: self._move_on(self._sync(made)))
        if self.group.rank:
            return []  # rank 0 has the result, nobody else needs it
        with self._excused():
            return self.validation.by_user(unit)

    def _finish(self) -> None:
        """The first member writes down the state, then the others go and give their slots back, while it writes the final model. Should it
        die over that, another worker takes up the state and does the rest."""
        if self.group.rank == 0 and self.position < self.shape.length:
            self._warn(STOPPED.format(self.stops_by, self.shape.step_at(self.position), self.shape.step_at(self.shape.length)))
        last = self.shape.unit(self.position - 1)
        is_written = last.kind == "end" and self.job.checkpoints(last.epoch) and not self.hooks.ends_epochs()
        if self.group.rank == 0 and not is_written:
            self._written()
            self._patiently(lambda: emergency_checkpoint.save(self.job, self.shape, self.segment, self.position, self.recent_reports))
        self._written()
        self._sync()
        if self.group.rank == 0:
            self._save(last, "model_epoch_final", engine=False)
            self._written()
            if self.job.save_to_onnx:
                self._save_example()
        with self._excused():
            self.hooks.end()
        if self.group.rank:
            self._take_leave(reports.Retired(self.worker_id, self.position), RETIRED)
        else:
            self._take_leave(reports.Done(self.position), CLOSED)

    def _take_leave(self, report: reports.Retired | reports.Done, word: int) -> None:
        """Not before the driver has read this and all that was said before."""
        self._report(report)
        while not self.segment.words[word]:
            self.segment.bells[self.worker_id].wait(SLICE_S)
            emergency_checkpoint.look(self.segment, self.context.driver)
        self.segment.set(self.worker_id, STATE, STATE_LEFT)

    def _save_example(self) -> None:
        """For the export, which is the driver's affair: whatever goes wrong with it costs a warning."""
        try:
            with self._excused():
                model_files.save_example(self.job, self.compute.example(model_files.EXAMPLES))
        except Exception as error:
            self._warn(f"no example of the inputs could be kept for the export: {type(error).__name__}: {error}")


def run(job: Job, context: WorkerContext, lengths: tuple[int, int]) -> None:
    """The whole life of a worker process that has settled in its place. Reports an error with its traceback; raises it too. What follows
    from its end is decided by the driver (see `failures`)."""
    try:
        shape = job.shape(*lengths)
        segment = Segment(context.segment_fd, job.layout(shape))
        worker = Worker(job, shape, context, segment)
        try:
            worker.run()
        finally:
            worker.exchange.leave()
            worker.feed.close()
    except BaseException as error:
        fail(context, error)


def fail(context: WorkerContext, error: BaseException) -> NoReturn:
    import traceback

    if not context.intact():
        traceback.print_exc()
        raise SystemExit(failure_causes.DISCONNECTED)
    lacks = failure_causes.is_lack_of_memory(error)
    try:
        report = reports.Dying(
            context.worker_id,
            traceback="".join(traceback.format_exception(error)),
            summary="".join(traceback.format_exception_only(error)).partition("\n")[0] + advice.after(error),
            final=isinstance(error, RuntimeFailure),  # our own word on the script
            no_room=storage.lacks_room(error, Path(os.environ.get("RESULT_DIR", "."))),
        )
        context.reports.send(report)
    except MemoryError:
        lacks = True
    if lacks:
        traceback.print_exception(error)
        raise SystemExit(failure_causes.EXHAUSTED)
    raise error
