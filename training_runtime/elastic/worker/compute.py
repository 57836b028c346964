"""One engine's part of a step, and one test batch: forward, backward, metrics. All randomness is seeded by what is computed, not by
where.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch._dynamo.eval_frame import OptimizedModule
from torch.optim.optimizer import register_optimizer_step_pre_hook

from training_runtime.elastic.data.loading import Task, load_task
from training_runtime.elastic.data.sampler import RunPlan, derive, seed_everything
from training_runtime.elastic.job import Job
from training_runtime.elastic.worker import heartbeat
from training_runtime.errors import UserError

STEPS = (
    "fn_step_train called step() of {}. It computes one of the {} parts of a step, on one of the workers: what it changes there, the "
    "others do not have. Call backward() alone, and give FabricModel one optimizer that holds all parameters, in groups where they differ; "
    "or write the step as a loop over edt.elastic(...), which takes several optimizers (a GAN's, say)"
)


class Compute:
    """The user's model on one device."""

    def __init__(self, job: Job, shape: RunPlan, device: torch.device) -> None:
        self.job, self.shape, self.device = job, shape, device
        self._measures = True
        self._modules: list[tuple[str, type]] = []
        self._parameters: list[torch.Tensor] = []
        if isinstance(job.loss, torch.nn.Module):
            job.loss.to(device)
        self.compiled = is_compiled(job.model)
        if self.compiled:
            self._settle_compiler()
        if device.type != "cpu":
            be_deterministic()

    def _settle_compiler(self) -> None:
        # Else what is compiled for a batch size would depend on the sizes that this very process has seen before.
        torch._dynamo.config.automatic_dynamic_shapes = False
        if self.device.type == "cpu" and "TORCHINDUCTOR_COMPILE_THREADS" not in os.environ:
            from torch._inductor import config

            config.compile_threads = torch.get_num_threads()  # a slot's share; more would start a pool of processes in each worker

    def warm_up(self) -> None:
        """Compute a batch of every size to come, for which torch.compile may take minutes and a GPU a second: before the others wait for it
        in a step. Leaves gradients behind, and changed buffers. Metrics and fn_test are not called: they may count their calls."""
        job, shape, modes = self.job, self.shape, [module.training for module in self.job.model.modules()]
        self._measures = False
        job.model.train()
        for count in sorted({*shape.sizes(0), *shape.sizes(shape.steps_per_epoch - 1)}):
            job.optimizer.zero_grad()
            self.train((0, 0, 0), load_task(job, _first(job.train_set, "load", count)), count, 1.0)
            heartbeat.beat()
        job.model.eval()
        for count in sorted({len(shape.test_span(j)) for j in (0, shape.test_batches - 1) if shape.test_batches}):
            self.test((0, 0, 0), load_task(job, _first(job.test_set, "test load", count)), count)
        for module, mode in zip(job.model.modules(), modes, strict=True):
            module.training = mode
        self._measures = True

    def refuse_changes(self) -> None:
        """Raises UserError where the model has other modules or parameters than when this was first asked: a worker that joins has those
        that the script makes."""
        modules = [(name, type(module)) for name, module in self.job.model.named_modules()]
        self._modules = self._modules or modules
        if modules != self._modules:
            raise UserError(
                "the model got other modules while it was training, which a worker that joins could not know: make all of them before "
                "train() and choose between them by an attribute of the module, or make the change in on_train_begin"
            )
        parameters: list[torch.Tensor] = list(self.job.model.parameters())
        self._parameters = self._parameters or parameters
        if {id(p) for p in parameters} != {id(p) for p in self._parameters}:
            raise UserError(
                "the model got other parameters while it was training, which neither the optimizer nor a worker that joins could know: "
                "change those that it has in place, as with torch.no_grad(): p.copy_(...)"
            )

    def train(self, place: tuple[int, int, int], batch: Any, count: int, weight: float) -> BatchMetrics:
        """Forward and backward of engine m of `place` = (epoch, step, m) on a batch of `count` samples; gradients stand in `.grad`,
        multiplied by `weight` (the engine's part of the global batch)."""
        job = self.job
        inputs, targets = self._move(_pair(batch))
        self.seed(place, "forward")
        if job.train_function is not None:
            return self._train_by_user(inputs, targets, count)
        outputs = job.model(inputs)
        loss = job.loss(outputs, targets)
        (loss * weight).backward()  # type: ignore[no-untyped-call]
        with torch.no_grad():
            return self._batch_metrics(loss.detach().clone(), outputs, targets, count)

    def test(self, place: tuple[int, int, int], batch: Any, count: int) -> BatchMetrics:
        """What comes of one test batch."""
        with torch.no_grad():
            inputs, targets = self._for_test(place, batch)
            outputs = self.job.model(inputs)
            return self._batch_metrics(self.job.loss(outputs, targets), outputs, targets, count)

    def _for_test(self, place: tuple[int, int, int], batch: Any) -> tuple[Any, Any]:
        inputs, targets = self._move(_pair(batch))
        self.seed(place, "test")
        return inputs, targets

    def test_by_user(self, epoch: int, batches: Callable[[], Iterator[Any]]) -> list[float]:
        """fn_test(model, test_iter, fn_args) -> the loss over all test batches, a number. Its metric columns; there is no accuracy."""
        assert self.job.test_function is not None

        def on_device() -> Iterator[Any]:
            return (self._for_test((epoch, j, 0), batch) for j, batch in enumerate(batches()))

        with torch.no_grad():
            loss = self.job.test_function(self.job.model, TestBatches(self.job, self.shape, on_device), {})
        try:
            return [self.shape.test_samples, 0, float(loss) * self.shape.test_samples]
        except (TypeError, ValueError):
            raise UserError(f"fn_test must return the loss over all test batches, a number, not {type(loss).__name__}") from None

    def example(self, count: int) -> Any:
        """The inputs of a batch of the first `count` training samples, again from the first where there are fewer."""
        return _pair(load_task(self.job, _first(self.job.train_set, "load", count)))[0]

    def seed(self, place: tuple[int, int, int], purpose: str) -> None:
        """Set every generator to where it stands for `purpose` at `place`, whoever computes that."""
        seed_everything(derive(self.job.seed, *place, purpose), devices=self.device.type != "cpu")

    def _move(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return value if value.device == self.device else value.to(self.device)
        if isinstance(value, dict):
            return {k: self._move(v) for k, v in value.items()}
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return type(value)(*(self._move(v) for v in value))
        return type(value)(self._move(v) for v in value) if isinstance(value, (list, tuple)) else value

    def _batch_metrics(self, loss: Any, outputs: Any, targets: Any, count: int) -> BatchMetrics:
        if self.job.measures is not None:
            counted = self.job.measures.sums(outputs, targets) if self._measures else [0.0] * self.job.measures.width
            return BatchMetrics(count, 0, loss, (), tuple(counted))
        if self.job.metrics is not None:
            return BatchMetrics(count, 0, loss, tuple((value, 1) for value in self._measured(outputs, targets)))
        right = hits(outputs, targets)
        return BatchMetrics(count, 0 if right is None else count, loss, ((0.0, 1) if right is None else right,))

    def _measured(self, outputs: Any, targets: Any) -> list[float]:
        """What the script's metrics say."""
        metrics = self.job.metrics or ()
        return [float(metric(outputs, targets)) if self._measures else 0.0 for metric in metrics]

    def _train_by_user(self, inputs: Any, targets: Any, count: int) -> BatchMetrics:
        """fn_step_train(model, data, eva, train_loader, fn_args) -> (accuracy in percent, loss); it calls backward() itself, so its
        gradients are weighted afterwards (see Exchange.end). Where the script has metrics they are taken whenever it calls `eva`."""
        model: Any = self.job.model
        model.get_optimizer, model.get_loss_function = lambda: self.job.optimizer, lambda: self.job.loss
        measured: list[list[float]] = []

        def eva(outputs: Any, labels: Any) -> float:
            measured.append(self._measured(outputs, labels))
            return _percent(outputs, labels)

        assert self.job.train_function is not None
        with self._refuse_steps():
            accuracy, loss = self.job.train_function(model, (inputs, targets), eva, None, {})
        if self.job.metrics is None:
            return BatchMetrics(count, count, float(loss), ((float(accuracy), 100),))
        means = [sum(each) / len(measured) for each in zip(*measured, strict=True)] or [math.nan] * len(self.job.metrics)
        return BatchMetrics(count, 0, float(loss), tuple((mean, 1) for mean in means))

    @contextmanager
    def _refuse_steps(self) -> Iterator[None]:
        """Inside, UserError for an optimizer that steps by itself, where a step has several parts."""

        def refuse(optimizer: torch.optim.Optimizer, _args: Any, _kwargs: Any) -> None:
            raise UserError(STEPS.format(type(optimizer).__name__, self.job.engines))

        hook = register_optimizer_step_pre_hook(refuse) if self.job.engines > 1 else None
        try:
            yield
        finally:
            if hook is not None:
                hook.remove()


def is_compiled(model: torch.nn.Module) -> bool:
    """Whether torch.compile has a part in it."""
    return any(isinstance(m, OptimizedModule) or m._compiled_call_impl is not None for m in model.modules())


def _first(data: Any, purpose: Literal["load", "test load"], count: int) -> Task:
    return Task(purpose, (0, 0, 0), tuple(i % len(data) for i in range(count)))


def be_deterministic() -> None:
    """Have a device compute the same bits each time, where torch has a way to: some of its fastest kernels add in any order. Whoever would
    rather have those sets EDT_DETERMINISTIC=0, and gives up that results do not depend on who computed them."""
    if os.environ.get("EDT_DETERMINISTIC") == "0":
        return
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when cuBLAS starts, which it has not yet
    torch.backends.cudnn.benchmark = False  # it would choose by the clock
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined] # all that is computed with has been written to


class TestBatches:
    """What fn_test goes through as through a DataLoader: (inputs, targets) on the worker's device. (Not a pytest class.)"""

    __test__ = False

    def __init__(self, job: Job, shape: RunPlan, batches: Callable[[], Iterator[Any]]) -> None:
        self.dataset, self.batch_size = job.test_set, job.batch_size
        self._count, self._batches = shape.test_batches, batches

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Any]:
        return self._batches()


def _pair(batch: Any) -> tuple[Any, Any]:
    if not isinstance(batch, (tuple, list)) or len(batch) != 2:
        held = f"{type(batch).__name__} of {len(batch)}" if hasattr(batch, "__len__") else type(batch).__name__
        raise TypeError(f"a batch must be (inputs, targets); the dataset and fn_batch_collate gave {held}")
    return batch[0], batch[1]


@dataclass(frozen=True, slots=True)
class BatchMetrics:
    """What came of one batch, still where it was computed: to read it is to wait for the device. What the script's own functions return is
    read at once, since they may go on to change it. Of the mean `loss` and of each metric (a value, and what it is to be divided by) the
    sums over `samples` are told; `with_accuracy` of them have one. `counted` are sums already (see `measures`)."""

    samples: int
    with_accuracy: int
    loss: Any
    metrics: tuple[tuple[Any, int], ...]
    counted: tuple[float, ...] = ()

    def vector(self) -> list[float]:
        """The metric columns: samples, samples with accuracy, loss sum, metric sums."""
        sums = (float(each) / of * self.samples for each, of in ((self.loss, 1), *self.metrics))
        return [self.samples, self.with_accuracy, *sums, *self.counted]


def hits(outputs: Any, targets: Any) -> tuple[torch.Tensor, int] | None:
    """How many classes are right, of how many, where outputs are scores [N, C, ...] and targets integer classes [N, ...]; None where they
    are not."""
    if not (isinstance(outputs, torch.Tensor) and isinstance(targets, torch.Tensor)):
        return None
    if outputs.dim() < 2 or not outputs.is_floating_point() or targets.is_floating_point() or targets.is_complex():
        return None
    if targets.shape != outputs.shape[:1] + outputs.shape[2:] or not targets.numel():
        return None
    return (outputs.max(1).indices == targets).sum(), targets.numel()  # argmax() takes more than twice as long on processors


def _percent(outputs: Any, targets: Any) -> float:
    right, of = hits(outputs, targets) or (0, 1)
    return 100 * float(right) / of
