"""A training whose steps are the body of a loop in the script: `for step in edt.elastic(...)`.

A worker comes to the loop at the state of the step that it begins with (see `becoming`), and runs the body once a step. The inner loop,
over the batches of this worker's parts, is where everybody meets: before it ends, the gradients of all parts are added up, and where a
worker dies meanwhile it goes on with that one's parts. What follows in the body needs nobody, and is run by all workers on the same state.
So no line of the body outside of the inner loop is ever run twice for a step.
"""

from __future__ import annotations

import dis
import inspect
import os
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NoReturn

import torch

from training_runtime.elastic.comm.group import Reconfigured
from training_runtime.elastic.comm.segment import EXCUSED, RING_WRITTEN, GenerationRecord, Segment
from training_runtime.elastic.data.sampler import RunPlan, WorkItem
from training_runtime.elastic.data.streams import Stream
from training_runtime.elastic.job import Job
from training_runtime.elastic.processes import becoming, reports
from training_runtime.elastic.processes.worker_context import WorkerContext
from training_runtime.elastic.state import capture
from training_runtime.elastic.state.registered import Registered, early_end
from training_runtime.elastic.worker.compute import BatchMetrics, Compute
from training_runtime.elastic.worker.loop_step import NO_UPDATE, OUTSIDE, TOO_EARLY, Batch, Step
from training_runtime.elastic.worker.loop_watch import LoopWatch
from training_runtime.elastic.worker.main import Worker, fail
from training_runtime.elastic.worker.stepping import Doing
from training_runtime.errors import UserError

LEFT = (
    "the loop over the steps was left before its end (break, return or sys.exit), which workers that join later would know nothing of: end "
    "it by step.stop(), after which one more step is done, or say by `epochs` how long the training lasts"
)
CAUGHT = (
    "an exception in the loop over the steps was caught outside of it, where workers have nothing to do: catch it in the body or not at all"
)
NO_RESULT = "evaluate(batch) must return the loss, or a dict with {}, not {}"
ASKED = 1  # a column of the engines' metric vectors, in which loops have no accuracy: whether the worker was asked to end the training
BEGINS = "step"  # the purpose of what is drawn before the first batch


class LoopCompute(Compute):
    """What is computed where no loop of the script's is."""

    def test(self, place: tuple[int, int, int], batch: Any, count: int) -> BatchMetrics:
        assert self.job.evaluate is not None
        names = self.job.metric_names()
        with torch.no_grad():
            data = self.begin(place, batch, "test")
            found = self.job.evaluate(Batch(data, place[1], count))
            if isinstance(found, torch.Tensor) or not isinstance(found, Mapping):
                found = {"loss": found}
            try:
                loss, *others = [float(found[name]) for name in names]
            except (KeyError, TypeError, ValueError):
                said = f"a dict with {', '.join(map(str, found))}"
                raise UserError(NO_RESULT.format(", ".join(names), said)) from None
        return BatchMetrics(count, 0, loss, tuple((value, 1) for value in others))

    def begin(self, place: tuple[int, int, int], batch: Any, purpose: str = "forward") -> Any:
        """A batch on the device, all generators where they stand for it."""
        data = self._move(batch)
        self.seed(place, purpose)
        return data


class LoopWorker(Worker):
    """A worker whose steps are passes of the script's loop."""

    computes = LoopCompute
    stops_by = "step.stop()"
    compute: LoopCompute

    def __init__(self, job: Job, shape: RunPlan, context: WorkerContext, segment: Segment) -> None:
        super().__init__(job, shape, context, segment)
        self.warm_up = None  # the body cannot be run ahead
        self.exchange.refused, self.exchange.copies = OUTSIDE, True  # the body may clip what it finds
        self.optimizers: tuple[torch.optim.Optimizer, ...] = getattr(job.optimizer, "optimizers", (job.optimizer,))
        self.evaluated: dict[str, float] = job.registered["evaluated"].given["means"]  # type: ignore[attr-defined]
        self._lines: list[reports.LoggedLine] = []
        self._logged = reports.Logged(0, ())
        self.watch = LoopWatch(job, self.exactness.tell)
        self._number = 0  # of the step whose body is run

    def _is_alone(self, _sizes: tuple[int, ...]) -> bool:
        return False  # gradients are put together the same way whoever does it: the body may drop them between two backward passes

    def steps(self) -> Iterator[Step]:
        """The passes of the loop. At the end of the training this worker has done what is to be done then."""
        self._begin()
        with self._ending():
            change: Reconfigured | None = Reconfigured(self._await_first(), abort=False)
            while True:
                try:
                    if change is not None:
                        to, change = change, None
                        self._go_to(to)
                    if self.position >= self.last_position:
                        return self._finish()
                    unit = self.shape.unit(self.position)
                    if unit.kind == "step":
                        yield from self._pass(unit)
                    else:
                        self._edge(unit)
                except Reconfigured as members:
                    change = members

    def _go_to(self, to: Reconfigured) -> None:
        self._enter(to.generation, abort=to.abort)
        self.pull = None
        self._resume()

    def _prepare(self) -> None:
        super()._prepare()
        self.feed.approach(max(self.shape.step_at(max(self.position, 0)), self.segment.words[RING_WRITTEN]))

    def _hand_over(self, top: int, sources: list[int], record: GenerationRecord, positions: Mapping[int, int]) -> int:
        if self.worker_id == sources[0]:
            self._tell_logged()  # in the place of a first member that has left, or died over it
        return super()._hand_over(top, sources, record, positions)

    def _pass(self, unit: WorkItem) -> Iterator[Step]:
        """One pass of the body."""
        step = Step(self, self._begin_step(unit))
        self._lines, self._number = [], unit.step
        self.seed(unit, BEGINS)
        self.segment.set(self.worker_id, EXCUSED, 1)
        self.watch.begin_step(is_last_of_epoch=step.is_last_of_epoch)
        yield step
        self.watch.end_step()
        if not step._updated:
            self.refuse(NO_UPDATE if step._summed else TOO_EARLY.format("update()"))
        self.segment.set(self.worker_id, EXCUSED, 0)
        self.compute.refuse_changes()  # before anybody may get, or write down, a state that says nothing of it
        self.exchange.refuse_changes(self.job.optimizer)
        self.exchange.drop()
        self._logged = reports.Logged(unit.step, tuple(self._lines))
        if step._kept is not None:
            step._kept.__exit__(None, None, None)
            self.buffers.snapshot()
            self.whole = True
            return
        self.buffers.snapshot()
        if self.group.rank == 0:
            self._tell_logged()
        self._look_for_the_end(step)
        self._end_step(step._doing)

    def _look_for_the_end(self, step: Step) -> None:
        """Where one of the workers has asked for it in the step before, as this step's metric vectors say to all of them, it is here."""
        doing = step._doing
        if self.segment.metrics[doing.parity, : len(doing.sizes), ASKED].any():
            self.ended.update(asked=1, tick=self.position + 1 + step.is_last_of_epoch)
        elif step._stops:
            self.ended["asked"] = 1

    def parts(self, step: Step) -> Iterator[Batch]:
        """The batches of this worker's parts, and those of who dies; then the sum over all parts. Where this worker is needed no more its
        process ends in here: the rest of the body is not its to run."""
        self.watch.begin_batches()
        self.segment.set(self.worker_id, EXCUSED, 0)
        with self._or_exit():
            while not step._summed:
                try:
                    yield from self._own_parts(step)
                    self._sum(step._doing)
                    step._summed = True
                except Reconfigured as change:
                    step._summed = self._go_on(step, change)
            doing = step._doing
            if step._kept is None:
                if not doing.reduce.several:
                    self._read(doing)
                doing.reduce.take_buffers()
            self.whole = False
            self.watch.end_batches()
            self.seed(doing.unit, "optimizer")
            self.segment.set(self.worker_id, EXCUSED, 1)

    def _own_parts(self, step: Step) -> Iterator[Batch]:
        doing = step._doing
        doing.metrics = []
        for m in doing.mine:
            task, batch = self._begin_engine(doing, m)
            data = self.compute.begin(task.place, batch)
            step._open(m)
            yield Batch(data, m, doing.sizes[m])
            doing.metrics.append(step._shut())
            self._end_engine(doing, m)

    def _go_on(self, step: Step, change: Reconfigured) -> bool:
        """A member died: the step is done by those who are left. True where one of them had it done already. Then this worker has the
        state after the step; its body runs to its end, and what that does to the state is taken back."""
        position = self.position
        while True:
            try:
                self._enter(change.generation, abort=change.abort)
                break
            except Reconfigured as again:
                change = again
        step._part = -1
        if self.position == position:
            step._doing = self._begin_step(step._doing.unit)
            return False
        step._kept = capture.unchanged(self.job.live)
        step._kept.__enter__()
        for p in self.job.trained:
            p.grad = torch.zeros_like(p)
        return True

    @contextmanager
    def _or_exit(self) -> Iterator[None]:
        """As `_ending`, inside of the script's body."""
        going = False
        try:
            with self._ending():
                yield
                going = True
        except Exception as error:
            self._conclude(error)
        if not going:
            self.exit()

    def seed(self, unit: WorkItem, purpose: str) -> None:
        self.compute.seed((unit.epoch, unit.index, 0), purpose)

    def means(self, doing: Doing) -> dict[str, float]:
        sums = self.segment.metrics[doing.parity, : len(doing.sizes)].sum(0).tolist()
        return self.job.means(sums)

    def _test(self, unit: WorkItem) -> list[float]:
        vector = super()._test(unit)
        self.evaluated.update(self.job.means(vector))
        return vector

    # -- what the body logs

    def log(self, group: str, step: int | None, figures: Mapping[str, float]) -> None:
        """Recorded when the step is done, once, whoever computes it."""
        at = self._number if step is None else step
        self._lines.append(reports.LoggedLine("train" if group.startswith("train") else "test", int(at), dict(figures)))

    def _tell_logged(self) -> None:
        if self._logged.lines:
            self._report(self._logged)

    # -- the end

    def refuse(self, sentence: str) -> NoReturn:
        """Misuse ends the run, whatever the body would catch."""
        try:
            raise UserError(sentence)
        except UserError as error:
            self._conclude(error)

    def conclude(self, error: BaseException | None) -> NoReturn:
        """The script has ended in this process: by an exception in the body, or because that was left."""
        if error is None:
            error = UserError(CAUGHT)
        elif isinstance(error, SystemExit):
            error = UserError(LEFT)
        if isinstance(error, Exception) and not isinstance(error, UserError):
            self._leave_state()
        self._conclude(error)

    def _conclude(self, error: BaseException) -> NoReturn:
        code = 1
        try:
            fail(self.context, error)
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else 1
        except BaseException:
            traceback.print_exc()
        self.exit(code)

    def exit(self, code: int = 0) -> NoReturn:
        try:
            self.exchange.leave()
            self.feed.close()
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(code)


def own_state(dataset: object) -> dict[str, Registered]:
    """What a loop's workers know besides the script's own: figures of the last evaluation, whether and after which position the script has
    ended the training, and where they are in a stream."""
    found = {"evaluated": Registered({"means": {}}), "ended": early_end()}
    return found | ({"stream": Registered({"position": dataset.position})} if isinstance(dataset, Stream) else {})


def begin(_job: Job, context: WorkerContext, lengths: tuple[int, int]) -> None:
    """How a forked worker goes on."""
    raise becoming.Becomes(context, lengths)


def work(job: Job, context: WorkerContext, lengths: tuple[int, int]) -> Iterator[LoopWorker | Step]:
    """The rest of this process: the worker, then its steps. It does not come to an end, the process does."""
    try:
        shape = job.shape(*lengths)
        worker = LoopWorker(job, shape, context, Segment(context.segment_fd, job.layout(shape)))
    except BaseException as error:
        fail(context, error)
    becoming.concluded_by(worker.conclude)
    yield worker
    try:
        yield from worker.steps()
    except GeneratorExit:
        if _is_left():
            worker.refuse(LEFT)
        raise  # an exception is on its way through the script, and is reported where that ends
    except BaseException as error:
        worker._conclude(error)
    worker.exit()


def _is_left() -> bool:
    """Whether the loop around this generator, which is being closed, was left by `break` or `return`: the interpreter then drops what it
    has gone through by an instruction of its own, which an exception is never raised by."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_flags & inspect.CO_GENERATOR:
        frame = frame.f_back
    return dis.opname[frame.f_code.co_code[frame.f_lasti]] in ("POP_TOP", "POP_ITER")
