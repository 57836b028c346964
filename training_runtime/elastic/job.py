"""What the user handed to FabricModel and train(), with everything that follows from it. Made in the driver and inherited by fork server
and workers, or made anew by workers that run the script themselves.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import DataLoader

from training_runtime.elastic.comm import all_reduce, banks
from training_runtime.elastic.comm.segment import Layout
from training_runtime.elastic.data import batched, script_sampler, streams
from training_runtime.elastic.data.order import Order
from training_runtime.elastic.data.sampler import RunPlan, derive, seed_everything
from training_runtime.elastic.measures import Measures
from training_runtime.elastic.processes import hidden_gpus
from training_runtime.elastic.processes.script import Script
from training_runtime.elastic.processes.worker_context import WorkerContext
from training_runtime.elastic.state import capture, digest, optimizers, transfer
from training_runtime.elastic.training_components import Metric, TrainingComponents
from training_runtime.elastic.worker import buffers
from training_runtime.errors import UserError

LOADER = (
    "the {} dataset is a DataLoader, and FabricModel makes the batches itself: return its dataset, say batch_size to train() and give its "
    "collate_fn as fn_batch_collate. A loop over edt.elastic(...) takes DataLoaders, with their samplers"
)

SEGMENT, COLLECTIVE = "segment", "collective"


@dataclass(frozen=True)
class TrainConfig:
    """What a training is told from outside of the script. `max_workers`: that there may be on each of `machines`, leaving and coming ones
    included. `reduce`: by what way gradients meet, the same for all workers. `wide_sums`: those of half precision are added in float32;
    False: as a release did that did not, whose state the training goes on from."""

    engines: int
    seed: int
    result_dir: Path
    max_workers: int
    in_studio: bool
    machines: int = 1
    reduce: str = SEGMENT
    wide_sums: bool = True


@dataclass(frozen=True)
class RespawnSpec:
    """Workers run the script themselves: which call of train() they are for, `why`, and the `lengths` of both datasets."""

    script: Script
    call: int
    why: str = ""
    lengths: tuple[int, int] = (0, 0)


@dataclass
class Job:
    """The user's objects."""

    components: TrainingComponents
    datasets: Callable[[], Any]
    epochs: int
    batch_size: int
    config: TrainConfig
    collate: Callable[[list[Any]], Any] | None = None
    sampler: Any = None  # of the script's own (see `drawn`)
    train_function: Callable[..., Any] | None = None
    test_function: Callable[..., Any] | None = None
    worker_logger: object | None = None
    user_callbacks: Sequence[Any] = ()
    schedulers: Sequence[LRScheduler] = ()
    validation_freq: int = 1
    checkpoint_freq: int = 1
    loader_threads: int = 4
    save_to_onnx: bool = False
    shard_optimizer: bool = False  # each worker of a machine steps some of the parameters (see `worker.sharding`)
    shard_parameters: bool = False  # with it: they are in memory that the workers of a machine share
    respawn: RespawnSpec | None = None
    fallback: RespawnSpec | None = None  # what `respawn` is to be made of where the datasets function makes a fork unsafe
    train_set: Any = None
    test_set: Any = None
    trained: list[torch.Tensor] = field(default_factory=list)
    begin: Callable[[Job, WorkerContext, tuple[int, int]], None] | None = None  # how a forked worker goes on, where it does not by itself
    evaluate: Callable[[Any], Mapping[str, float]] | None = None  # of a test batch, where it is not by model and loss
    registered: Mapping[str, object] = field(default_factory=dict)  # what else learns, by name
    script: Mapping[str, Any] | None = None  # the script's names, where they are not those of its datasets function

    @property
    def model(self) -> nn.Module:
        return self.components.model

    @property
    def loss(self) -> Callable[[Any, Any], torch.Tensor]:
        return self.components.loss

    @property
    def optimizer(self) -> torch.optim.Optimizer:
        return self.components.optimizer

    @property
    def metrics(self) -> Sequence[Metric] | None:
        return self.components.metrics

    @property
    def measures(self) -> Measures | None:
        return self.components.measures

    @property
    def script_objects(self) -> tuple[Any, Any]:
        """Model and optimizer as the script knows them."""
        return self.components.script_objects or (self.model, self.optimizer)

    @property
    def engines(self) -> int:
        return self.config.engines

    @property
    def seed(self) -> int:
        return self.config.seed

    @property
    def result_dir(self) -> Path:
        return self.config.result_dir

    @property
    def rounds_often(self) -> bool:
        """Whether gradients of half precision that were added in their own dtype would be rounded more than once: one addition rounds
        once in any case, unless what it adds was weighted before."""
        return self.engines > (2 if self.train_function is None else 1)

    @property
    def has_own_step(self) -> bool:
        """Whether code of the script is run in the optimizer's step."""
        one = self.optimizer
        hooks = one._optimizer_step_pre_hooks or one._optimizer_step_post_hooks
        return bool(hooks) or not type(one).__module__.startswith("torch.optim")

    @property
    def in_studio(self) -> bool:
        return self.config.in_studio

    @property
    def live(self) -> capture.Live:
        """What learns during the training, wherever the script keeps it."""
        optimizer = self.optimizer
        stepped = (optimizer, *getattr(optimizer, "optimizers", ()))  # it may stand for several
        hooks = [hook for o in stepped for found in (o._optimizer_step_pre_hooks, o._optimizer_step_post_hooks) for hook in found.values()]
        called: dict[str, object] = {f"hook {i}": hook for i, hook in enumerate(hooks)}
        called |= {"step": self.train_function} | ({} if isinstance(self.loss, nn.Module) else {"loss": self.loss})
        return capture.Live(
            model=self.model,
            optimizer=optimizer,
            loss=self.loss if isinstance(self.loss, nn.Module) else None,
            callbacks=self.user_callbacks,
            schedulers=self.schedulers,
            shared={"train": self.train_set, "test": self.test_set, "logger": self.worker_logger, "loss": self.loss} | self._told_apart(),
            called=called | dict(self.registered),
            script=getattr(self.datasets, "__globals__", {}) if self.script is None else self.script,
        )

    def _told_apart(self) -> dict[str, object]:
        """What the script knows as its model and optimizer, where that is something else: others may hold it."""
        return (
            dict(zip(("told model", "told optimizer"), self.components.script_objects, strict=True))
            if self.components.script_objects
            else {}
        )

    @property
    def untrained(self) -> list[torch.Tensor]:
        """Parameters of the model that the optimizer does not hold."""
        return self.live.parameters()[len(self.trained) :]

    def prepare_datasets(self) -> tuple[int, int]:
        """`load_datasets`, from generators that stand where they stand for everybody who does it."""
        seed_everything(derive(self.seed, 0, 0, 0, "datasets"))
        return self.load_datasets()

    def measure(self) -> tuple[int, int]:
        """The lengths alone, where nobody else can tell them."""
        lengths = self.prepare_datasets()
        self.train_set = self.test_set = None
        return lengths

    def load_start(self, fd: int) -> bool:
        """Make model, optimizer and callbacks what they are in the packed state of memfd `fd`; False where that is another model's."""
        index = transfer.index_of(fd)
        live = self.live
        shapes = [leaf.shape for leaf in (*index["parameters"], *index["buffers"])]
        if shapes != [tuple(t.shape) for t in (*live.parameters(), *live.buffers())] or index["counts"] != live.counts():
            return False
        capture.restore(index, transfer.Landing(fd, 0), live)
        return True

    def load_datasets(self) -> tuple[int, int]:
        """Call the user's datasets function once; the lengths of both sets in samples. UserError where they cannot be used."""
        with hidden_gpus.on_processor():
            found = self.datasets()
        if not isinstance(found, (tuple, list)) or len(found) != 2:
            raise UserError(f"the datasets function must return (train_dataset, test_dataset), not {type(found).__name__}")
        self.train_set, self.test_set = (batched.by_sample(data, name) for data, name in zip(found, ("train", "test"), strict=True))
        for name, data in (("train", self.train_set), ("test", self.test_set)):
            if isinstance(data, DataLoader):
                raise UserError(LOADER.format(name))
            if data is not None and not isinstance(data, streams.Stream) and streams.is_stream(data):
                raise UserError(f"the {name} dataset ({type(data).__name__}) is a stream, which a loop over edt.elastic(...) can train on")
            if data is not None and not (hasattr(data, "__getitem__") and hasattr(data, "__len__")):
                raise UserError(f"the {name} dataset ({type(data).__name__}) must be map-style: it needs __getitem__ and __len__")
        for data in (self.train_set, self.test_set):
            if isinstance(data, streams.Stream):
                data.seed = self.seed
        hidden_gpus.keep_here((self.train_set, self.test_set, self.sampler, self.collate))
        return len(self.train_set if self.sampler is None else self.sampler), 0 if self.test_set is None else len(self.test_set)

    def shape(self, samples: int, test_samples: int) -> RunPlan:
        return RunPlan(samples, test_samples, self.batch_size, self.engines, self.epochs, self.seed)

    def order(self, shape: RunPlan, epoch: int) -> Order | script_sampler.Drawn | streams.InOrder:
        """What the training samples of `epoch` are taken in."""
        if isinstance(self.train_set, streams.Stream):
            return streams.InOrder()
        if self.sampler is None:
            return shape.order(epoch)
        return script_sampler.draw(self.sampler, len(self.train_set), epoch, seed=self.seed)

    def metric_names(self) -> tuple[str, ...]:
        if self.measures is not None:
            given = ["loss", *self.measures.names]
        elif self.metrics is None:
            return ("loss", "accuracy")
        else:
            given = ["loss", *(_name(m) for m in self.metrics)]
        counts = [given[: i + 1].count(name) for i, name in enumerate(given)]
        return tuple(f"{name}_{n}" if n > 1 else name for name, n in zip(given, counts, strict=True))  # two of one class are two metrics

    def layout(self, shape: RunPlan) -> Layout:
        """The segment that this job needs. Row columns: samples, one flag for accuracy, a sum for each metric (or what measures count)."""
        self.trained = optimizers.parameters(self.optimizer)
        sums = len(self.metric_names()) if self.measures is None else 1 + self.measures.width
        buffer_bytes = buffers.shared_bytes(self.live.modules())
        return Layout(
            max_workers=self.config.max_workers * self.config.machines,
            machines=self.config.machines,
            engines=self.engines,
            columns=2 + sums,
            parameters=len(self.trained),
            test_batches=shape.test_batches,
            buffer_bytes=buffer_bytes,
            flat_buffers=all_reduce.flat_buffers(self.trained, wide=self.config.wide_sums and self.rounds_often),
            bank_bytes=banks.bank_bytes(self.trained) if self.shard_optimizer else 0,
            parameter_rows=self.shard_optimizer + self.shard_parameters,
        )

    def means(self, vector: list[float]) -> dict[str, float]:
        """Metric columns summed over samples -> exact means; accuracy only where every part had one."""
        samples, flagged, *sums = vector
        names = self.metric_names()
        if self.measures is not None:
            return dict(zip(names, (sums[0] / samples, *self.measures.values(sums[1:])), strict=True))
        if self.metrics is None and flagged != samples:
            names = names[:1]
        return {name: total / samples for name, total in zip(names, sums, strict=False)}

    def validates(self, epoch: int) -> bool:
        """After `epoch` (from 0)."""
        return bool(self.test_set is not None and len(self.test_set) and self.validation_freq and (epoch + 1) % self.validation_freq == 0)

    def checkpoints(self, epoch: int) -> bool:
        return bool(self.checkpoint_freq and (epoch + 1) % self.checkpoint_freq == 0)


def schedulers_of(optimizer: torch.optim.Optimizer) -> list[LRScheduler]:
    """Every living scheduler of `optimizer`, which does not know them itself. In an order of what they are made of: processes that have run
    the same script must come to the same one, and the interpreter's depends on what its collector has seen."""
    living = [o for o in gc.get_objects() if issubclass(type(o), LRScheduler)]  # isinstance would ask each object in the process
    found = {id(scheduler): scheduler for scheduler in living if getattr(scheduler, "optimizer", None) is optimizer}
    return sorted(found.values(), key=_of_what_it_is_made)


def _of_what_it_is_made(scheduler: LRScheduler) -> tuple[str, int]:
    """The same in every process. Two that are made of the same are alike until one of them is stepped."""
    made = {name: value for name, value in vars(scheduler).items() if name != "optimizer"}
    return type(scheduler).__qualname__, digest.of(made)


def _name(metric: Metric) -> str:
    return str(getattr(metric, "__name__", type(metric).__name__))
