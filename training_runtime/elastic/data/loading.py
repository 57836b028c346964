"""The batches of one worker, loaded ahead of their use where that helps.

What a batch holds is a function of its place alone: its samples, and the seed that every generator gets before they are loaded. So it does
not matter who loads it, or when, or whether it has been loaded before. The worker says which batches it needs next; those are asked for
from its loaders (see `loaders`). After a change of members it needs others: what was loaded and is still needed is used, only the rest is
dropped. Loaders are started when waiting for data is found to cost time, one by one, up to the script's `num_dataloader_threads`.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal

import torch
from torch.utils.data import TensorDataset, default_collate

from training_runtime.elastic import tree
from training_runtime.elastic.data import script_sampler, streams
from training_runtime.elastic.data.cpu_usage import Processors
from training_runtime.elastic.data.loader_processes import Loader, LoaderFailed, Nursery
from training_runtime.elastic.data.order import Order
from training_runtime.elastic.data.sampler import RunPlan, WorkItem, derive, seed_everything
from training_runtime.elastic.job import Job
from training_runtime.elastic.processes import hidden_gpus

JUDGED = 16  # batches after which the time is looked at that went into waiting for them
WORTH = 0.05  # the part of the time from which on another loader is worth its process

Key = tuple[str, tuple[int, int, int]]


@dataclass(frozen=True)
class Task:
    """One batch. `place`: (epoch, step of the epoch, engine), or (epoch, test batch, 0); `purpose` is part of its seed."""

    purpose: Literal["load", "test load"]
    place: tuple[int, int, int]
    indices: tuple[int, ...]

    @property
    def key(self) -> Key:
        return self.purpose, self.place


class Feed:
    """The batches of one worker. Created before the worker has started a thread or a device, because loaders are forked from its state."""

    def __init__(self, job: Job, shape: RunPlan, *, devices: bool, warn: Callable[[str], None]) -> None:
        self._job, self._shape, self._devices, self._warn = job, shape, devices, warn
        self._orders: dict[int, Order | script_sampler.Drawn | streams.InOrder] = {}
        self._stream = job.train_set if isinstance(job.train_set, streams.Stream) else None
        alone = self._stream is not None or _in_memory(job) or not job.loader_threads
        self._nursery = None if alone else Nursery(lambda task: load_task(job, task))
        self._loaders: list[Loader] = []
        self._ready: dict[Key, Any] = {}
        self._count, self._since, self._waited_s = 0, 0.0, 0.0
        self._own_s = self._own_cpu_s = 0.0
        self._processors = Processors()

    def close(self) -> None:
        """End the loaders."""
        for loader in self._loaders:
            loader.close()
        if self._nursery is not None:
            self._nursery.close()
        self._nursery, self._loaders, self._ready = None, [], {}

    # -- what is needed

    def engine(self, unit: WorkItem, m: int) -> Task:
        """The task of engine m's batch in a step."""
        return Task("load", (unit.epoch, unit.index, m), tuple(self._order(unit.epoch)[self._shape.span(unit.index, m)]))

    def prepare(self, step: int) -> None:
        """Prepare for `step`, which others have done, before this worker is a member: ordering a million samples takes longer than many
        steps."""
        self._order(min(step // self._shape.steps_per_epoch, self._shape.epochs - 1))

    def _order(self, epoch: int) -> Order | script_sampler.Drawn | streams.InOrder:
        if epoch not in self._orders:
            self._turn_to(epoch)
        return self._orders[epoch]

    def _turn_to(self, epoch: int) -> None:
        self._orders = {e: order for e, order in self._orders.items() if e == epoch - 1}
        before = self._orders.get(epoch - 1)
        if isinstance(before, script_sampler.Drawn):
            script_sampler.again(self._job.sampler, len(self._job.train_set), epoch - 1, before, seed=self._job.seed)
        self._orders[epoch] = self._job.order(self._shape, epoch)

    def test(self, epoch: int, batch: int) -> Task:
        return Task("test load", (epoch, batch, 0), tuple(self._shape.test_span(batch)))

    def following(self, position: int, rank: int, workers: int, *, after: int = -1) -> Iterator[Task]:
        """The tasks that `rank` needs, in order, starting with the unit after `position`; of that unit only the engines after `after`."""
        for t in range(position, self._shape.length):
            unit = self._shape.unit(t)
            if unit.kind == "step":
                mine = tree.share(rank, workers, len(self._shape.sizes(unit.index)))
                yield from (self.engine(unit, m) for m in mine if t > position or m > after)
            elif unit.kind == "end" and self._job.validates(unit.epoch) and self._job.test_function is None:
                yield from (self.test(unit.epoch, j) for j in range(rank, self._shape.test_batches, workers))

    # -- what is behind us, of a stream

    def approach(self, step: int) -> None:
        """Before this worker is a member: others have done `step`."""
        if self._stream is not None:
            self._stream.approach(self._shape.samples_before(step))

    def settle(self, step: int) -> None:
        """`step` is done."""
        if self._stream is not None:
            self._stream.settle(self._shape.samples_before(step))

    def total(self) -> int:
        """The sum over what was read of a stream, by which workers whose streams differ are known."""
        return self._stream.position.total if self._stream is not None else 0

    # -- what is there

    def batch(self, task: Task, following: Iterable[Task], *, workers: int) -> Any:
        """The batch of `task`, on the CPU. `following` are those needed after it, in order."""
        if self._nursery is None:
            ready = self._ready.pop(task.key, None)
            return load_task(self._job, task, devices=self._devices) if ready is None else ready
        began = time.monotonic()
        wanted = list(islice(following, 2 * len(self._loaders)))
        try:
            self._fetch()
            keys = {task.key, *(each.key for each in wanted)}
            self._ready = {key: batch for key, batch in self._ready.items() if key in keys}
            self._ask(wanted, task.key)
            batch = self._get_batch(task)
        except LoaderFailed as error:
            self._give_up(error)
            return load_task(self._job, task, devices=self._devices)
        self._judge(began, time.monotonic(), workers)
        return batch

    def ahead(self, following: Iterator[Task]) -> None:
        """Load the first of `following` while a device computes, if there is never a loader to do it."""
        if self._nursery is None and self._stream is None and (task := next(following, None)) is not None and task.key not in self._ready:
            self._ready = {task.key: load_task(self._job, task, devices=self._devices)}

    def _fetch(self) -> None:
        """Collect the batches that loaders have finished."""
        poll = select.poll()
        for loader in self._loaders:
            poll.register(loader.channel, select.POLLIN)
        arrived = {fd for fd, _ in poll.poll(0)} if self._loaders else set()
        for loader in self._loaders:
            if loader.channel.fileno() in arrived:
                self._fetch_from(loader)

    def _fetch_from(self, loader: Loader) -> None:
        task, batch = loader.fetch()
        self._ready[task.key] = batch

    def _ask(self, wanted: list[Task], current: Key) -> None:
        """Request the batches not requested yet, each from the least busy loader."""
        known = {current, *self._ready, *(task.key for loader in self._loaders for task in loader.tasks)}
        for task in wanted:
            idle = min(self._loaders, key=lambda loader: len(loader.tasks))
            if len(idle.tasks) == 2:
                return
            if task.key not in known:
                idle.ask(task)

    def _get_batch(self, task: Task) -> Any:
        for loader in self._loaders:
            while any(each.key == task.key for each in loader.tasks):
                self._fetch_from(loader)
        if task.key in self._ready:
            return self._ready.pop(task.key)
        began, used = time.monotonic(), time.thread_time()
        batch = load_task(self._job, task, devices=self._devices)
        self._own_s += time.monotonic() - began
        self._own_cpu_s += time.thread_time() - used
        return batch

    def _judge(self, began: float, ended: float, workers: int) -> None:
        """Decide from time to time whether to start another loader."""
        assert self._nursery is not None
        self._waited_s += ended - began
        self._count += 1
        if self._count % JUDGED:
            return None
        waited, self._waited_s = self._waited_s / (ended - self._since), 0.0
        if self._since and another(
            len(self._loaders),
            self._job.loader_threads,
            waited=waited,
            computes=self._own_cpu_s > self._own_s / 2,
            spare=self._spare(workers),
            workers=workers,
        ):
            try:
                self._loaders.append(self._nursery.loader())
            except OSError as error:
                return self._give_up(error)
        self._since = ended
        return None

    def _spare(self, workers: int) -> int:
        """The number of idle processors: not used by this run's threads or by other processes. The use by its own loaders does not
        count."""
        others = self._processors.busy() - workers * len(self._loaders)
        return round(self._processors.count - max(workers * torch.get_num_threads(), others))

    def _give_up(self, error: Exception) -> None:
        self._warn(f"a batch could not be loaded ahead ({error}); this worker loads its batches itself from now on")
        self.close()


def another(have: int, most: int, *, waited: float, computes: bool, spare: int, workers: int) -> bool:
    """Whether a worker with this many loaders should get one more: it spends too much of its time waiting for data, and the
    loader will not take a processor from a worker. Loading that `computes` needs one of the `spare` processors, which the workers share;
    loading that waits for a disk does not."""
    if have >= most or waited < WORTH:
        return False
    return not computes or have < spare // workers


def load_task(job: Job, task: Task, *, devices: bool = False) -> Any:
    """Load a batch from its seed: the same in any process."""
    seed_everything(derive(job.seed, *task.place, task.purpose), devices=devices)
    data = job.train_set if task.purpose == "load" else job.test_set
    if isinstance(data, streams.Stream):
        data = data.of_epoch(task.place[0] if task.purpose == "load" else 0)
    with hidden_gpus.on_processor():
        return load(data, task.indices, job.collate)


def load(data: Any, indices: Iterable[int], collate: Any) -> Any:
    """A batch of the samples `indices`, put together as a DataLoader would."""
    if collate is None and type(data) is TensorDataset:
        chosen = torch.as_tensor(indices)
        return [t[chosen] for t in data.tensors]  # the same values as item by item, without the items
    samples = data.__getitems__(list(indices)) if hasattr(data, "__getitems__") else [data[i] for i in indices]
    return (collate or default_collate)(samples)


def _in_memory(job: Job) -> bool:
    """Whether loading is a copy within memory, which no loader can do faster."""
    return job.collate is None and type(job.train_set) is TensorDataset
