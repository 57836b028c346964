"""What the body of the script's loop has in its hands: the step, and the batches of it (see `loop`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, NoReturn, Protocol

import torch

from training_runtime.elastic.comm.all_reduce import Exchange
from training_runtime.elastic.data.sampler import RunPlan, WorkItem
from training_runtime.elastic.job import Job
from training_runtime.elastic.worker.compute import BatchMetrics
from training_runtime.elastic.worker.stepping import Doing

OUTSIDE = "gradients came from elsewhere than step.backward(loss): call it in the place of loss.backward(), it weights the loss by its part"
NO_BATCH = "step.{} belongs into the loop over the step's batches: for batch in step: step.backward(loss_fn(model(batch.x), batch.y))"
NO_BACKWARD = "no step.backward(loss) was called for a batch: each one must have its part in the step"
NO_UPDATE = "step.update() was not called: it belongs behind the loop over the step's batches, once in each step"
TOO_EARLY = "step.{} belongs behind the loop over the step's batches, which must have come to its end (no break in it)"
NOT_ITS_OWN = "step.update() was given an optimizer that edt.elastic() was not: give it all of them there"
NO_NUMBER = "step.backward(loss): the loss must be a tensor of one number, the mean over the batch, not {}"
NOT_MEASURED = "step.measure() must be called for each batch with {}, as edt.elastic(metrics=...) has named them, not with {}"


@dataclass(frozen=True)
class Batch:
    """The samples of one part of a step, as they were collated, on the worker's device. `x` and `y` where they are (inputs, targets); it
    can be taken apart like what it holds: `x, y = batch`."""

    data: Any
    part: int
    samples: int

    @property
    def x(self) -> Any:
        return self.data[0]

    @property
    def y(self) -> Any:
        return self.data[1]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.data)

    def __getitem__(self, key: Any) -> Any:
        return self.data[key]

    def __len__(self) -> int:
        return self.samples


class Runs(Protocol):
    """The worker that runs the body."""

    job: Job
    shape: RunPlan
    exchange: Exchange
    evaluated: dict[str, float]
    ended: dict[str, int]
    optimizers: tuple[torch.optim.Optimizer, ...]

    def parts(self, step: Step) -> Iterator[Batch]: ...
    def means(self, doing: Doing) -> dict[str, float]: ...
    def seed(self, unit: WorkItem, purpose: str) -> None: ...
    def refuse(self, sentence: str) -> NoReturn: ...


@dataclass
class Step:
    """One step of the training: what a pass of the loop's body has to do with. `number` counts from 1, `epoch` and `index` (of the step
    within it) from 0."""

    _worker: Runs = field(repr=False)
    _doing: Doing = field(repr=False)
    _part: int = -1  # whose batch is being computed
    _loss: Any = None
    _measured: dict[str, float] = field(default_factory=dict)
    _summed: bool = False  # behind the inner loop
    _updated: bool = False
    _stops: bool = False
    _kept: AbstractContextManager[None] | None = None  # holds the state after this step, which others have done without this worker

    @property
    def number(self) -> int:
        return self._doing.unit.step

    @property
    def epoch(self) -> int:
        return self._doing.unit.epoch

    @property
    def index(self) -> int:
        return self._doing.unit.index

    @property
    def steps_per_epoch(self) -> int:
        return self._worker.shape.steps_per_epoch

    @property
    def steps(self) -> int:
        """Of the whole training."""
        return self._worker.shape.epochs * self.steps_per_epoch

    @property
    def is_last_of_epoch(self) -> bool:
        return self.index == self.steps_per_epoch - 1

    @property
    def evaluated(self) -> Mapping[str, float]:
        """What the last evaluation came to, by name; nothing before the first."""
        return dict(self._worker.evaluated)

    @property
    def means(self) -> dict[str, float]:
        """Behind the loop over the batches: the loss and whatever was measured, over all samples of the step."""
        if not self._summed:
            self._worker.refuse(TOO_EARLY.format("mean_loss"))
        return self._worker.means(self._doing)

    @property
    def mean_loss(self) -> float:
        """Behind the loop over the batches: the mean over all samples of the step, the same on every worker."""
        return self.means["loss"]

    def __iter__(self) -> Iterator[Batch]:
        """The batches of this worker's parts. In the end the gradients of all parts are in `.grad`, the mean over the step."""
        if self._summed:
            self._worker.refuse("the loop over the step's batches can be run once in a step")
        return self._worker.parts(self)

    def backward(self, loss: torch.Tensor, *, scaler: Any = None, **how: Any) -> None:
        """In the place of `loss.backward(**how)`. `loss`: the mean over the batch; of several calls for a batch the sum counts. `scaler`: a
        torch.amp.GradScaler."""
        worker = self._worker
        if self._part < 0:
            worker.refuse(NO_BATCH.format("backward(loss)"))
        if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
            worker.refuse(NO_NUMBER.format(f"one of shape {tuple(loss.shape)}" if isinstance(loss, torch.Tensor) else type(loss).__name__))
        found = loss.detach().clone()
        self._loss = found if self._loss is None else self._loss + found
        weighted = loss * (self._doing.sizes[self._part] / sum(self._doing.sizes))
        worker.exchange.refused = ""
        try:
            (weighted if scaler is None else scaler.scale(weighted)).backward(**how)
        finally:
            worker.exchange.refused = OUTSIDE

    def measure(self, **values: Any) -> None:
        """Figures of the batch besides the loss, each a mean over it, under the names that `metrics` has."""
        if self._part < 0:
            self._worker.refuse(NO_BATCH.format("measure()"))
        self._measured |= {name: float(value) for name, value in values.items()}

    def update(self, *optimizers: torch.optim.Optimizer, scaler: Any = None) -> None:
        """Step all optimizers, or these. `scaler`: the GradScaler that backward() had; it is updated too."""
        worker = self._worker
        if not self._summed:
            worker.refuse(TOO_EARLY.format("update()"))
        if any(each not in worker.optimizers for each in optimizers):
            worker.refuse(NOT_ITS_OWN)
        self._updated = True
        worker.seed(self._doing.unit, "optimizer")  # it, or a hook of it, may draw
        if self._kept is not None:  # the others have done it, and this worker has what came of it
            return
        for each in optimizers or worker.optimizers:
            if scaler is None:
                each.step()
            else:
                scaler.step(each)
        if scaler is not None:
            scaler.update()

    def stop(self) -> None:
        """End the training after the next step, in which the workers agree on it: also where only one of them has asked (by its clock)."""
        if self._part >= 0:
            self._worker.refuse(TOO_EARLY.format("stop()"))
        self._stops = True

    # -- the worker's

    def _open(self, part: int) -> None:
        self._part, self._loss, self._measured = part, None, {}

    def _shut(self) -> BatchMetrics:
        """What came of the part."""
        names = self._worker.job.metric_names()[1:]
        if self._loss is None:
            self._worker.refuse(NO_BACKWARD)
        if set(self._measured) != set(names):
            self._worker.refuse(NOT_MEASURED.format(", ".join(names) or "nothing", ", ".join(self._measured) or "nothing"))
        part, self._part = self._part, -1
        return BatchMetrics(
            self._doing.sizes[part], self._worker.ended["asked"], self._loss, tuple((self._measured[name], 1) for name in names)
        )
