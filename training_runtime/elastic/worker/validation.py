"""Validation at the end of an epoch: fixed batches shared out over the workers, or the script's own function on one of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

import torch

from training_runtime.elastic.comm.group import Group
from training_runtime.elastic.comm.segment import Segment
from training_runtime.elastic.data.loading import Feed, Task
from training_runtime.elastic.data.sampler import WorkItem
from training_runtime.elastic.multinode import payloads
from training_runtime.elastic.worker import heartbeat
from training_runtime.elastic.worker.callbacks import WorkerHooks
from training_runtime.elastic.worker.compute import Compute


class Validation:
    """One worker's part in it. The metric vector of every test batch goes into the segment's table, and a mark beside it. `on_device`: a
    device computes beside the processor. `restore` puts buffers back: some models change them in evaluation, too (observers of
    quantization), and no batch may depend on which this worker has tested before."""

    def __init__(
        self, compute: Compute, feed: Feed, segment: Segment, hooks: WorkerHooks, *, restore: Callable[[], None], on_device: bool
    ) -> None:
        self._compute, self._feed, self._segment, self._hooks, self._on_device = compute, feed, segment, hooks, on_device
        self._restore = restore

    def share(self, unit: WorkItem, position: int, group: Group, marks: list[int], meet: Callable[[int], None]) -> list[float]:
        """Each round every worker takes one test batch that was not done when the generation began (its mark is not among `marks`);
        the table is complete after the last round. `meet` waits for the others, and says what is given to other machines; what it raises
        when the members change passes through.
        Returns the sum of all vectors, in their order."""
        epoch, feed = unit.epoch, self._feed
        pending = [j for j in range(self._compute.shape.test_batches) if not marks or marks[j] != epoch + 1]
        for first in range(0, len(pending), group.size):
            mine = pending[first + group.rank :: group.size]
            if mine:
                later = chain((feed.test(epoch, j) for j in mine[1:]), feed.following(position + 1, group.rank, group.size))
                self._batch(feed.test(epoch, mine[0]), later, group.size)
            meet(payloads.test(mine[0]) if mine else 0)
        return list(self._segment.tests.sum(0).tolist())

    def _batch(self, task: Task, later: Iterator[Task], workers: int) -> None:
        epoch, batch, _ = task.place
        self._restore()
        metrics = self._compute.test(task.place, self._feed.batch(task, later, workers=workers), len(task.indices))
        if self._on_device:
            self._feed.ahead(later)
        vector = metrics.vector()
        self._segment.tests[batch] = torch.tensor(vector, dtype=torch.float64)
        self._segment.tested[batch] = epoch + 1
        self._hooks.tested(vector, epoch)
        heartbeat.beat()

    def by_user(self, unit: WorkItem) -> list[float]:
        """The script's fn_test sees all test batches, so one worker runs it and the others wait."""
        tasks = [self._feed.test(unit.epoch, j) for j in range(self._compute.shape.test_batches)]

        def batches() -> Iterator[Any]:
            for j, task in enumerate(tasks):
                heartbeat.beat()
                yield self._feed.batch(task, tasks[j + 1 :], workers=1)

        vector = self._compute.test_by_user(unit.epoch, batches)
        self._hooks.tested(vector, unit.epoch)
        return vector
