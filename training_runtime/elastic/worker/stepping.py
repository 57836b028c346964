"""A step from its beginning to its end, for whoever computes what is in it: the engine itself, as FabricModel has it (see `worker`), or the
body of a loop in the script (see `loop`).

Each of this worker's engines is begun and ended; then the sum over all engines is made, after which nothing has to be asked of anybody
until the step is at its end.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from training_runtime.elastic import tree
from training_runtime.elastic.comm.group import Group, Reconfigured
from training_runtime.elastic.comm.segment import BUSY_POSITION, STATE_BYTES
from training_runtime.elastic.data.loading import Feed, Task
from training_runtime.elastic.data.sampler import WorkItem
from training_runtime.elastic.processes import reports
from training_runtime.elastic.state import capture, checkpoint, digest, model_files, snapshot, transfer
from training_runtime.elastic.state.snapshot import Order
from training_runtime.elastic.worker import heartbeat
from training_runtime.elastic.worker.compute import BatchMetrics, Compute
from training_runtime.elastic.worker.ledger import Ledger
from training_runtime.elastic.worker.lifecycle import Lifecycle, Retired
from training_runtime.elastic.worker.reduction import OwnGradients, reduce_of


@dataclass
class Doing:
    """A step under way. `sizes`: samples of each engine; `mine`: the engines of this worker; `reduce`: how what they come to is put
    together. `agreed`: the newest generation that all members know of; `vectors`: what came of the own engines."""

    unit: WorkItem
    group: Group
    sizes: tuple[int, ...]
    mine: range
    reduce: OwnGradients
    compared: bool
    started: float
    metrics: list[BatchMetrics] = field(default_factory=list)
    vectors: list[list[float]] = field(default_factory=list)
    agreed: int = 0
    shared_out: bool = False  # whether each member on this machine steps some of the parameters only

    @property
    def parity(self) -> int:
        return self.unit.step % 2


class Stepping(Lifecycle):
    """What a step is made of."""

    feed: Feed
    compute: Compute
    ledger: Ledger | None
    replicas: digest.Replicas
    checkpoint_every_s: float
    saved_at: float
    _warned = False

    def _begin_step(self, unit: WorkItem) -> Doing:
        started, group = time.monotonic(), self.group
        self.segment.set(self.worker_id, BUSY_POSITION, self.position + 1)
        sizes = self.shape.sizes(unit.index)
        mine = tree.share(group.rank, group.size, len(sizes))
        reduce = reduce_of(self.exchange, self.buffers, group, mine, len(sizes), unit.step % 2, alone=self._is_alone(sizes))
        reduce.begin()
        compared = group.size > 1 and self.replicas.is_due(unit.index)
        if compared:
            self._tell_digest()
        return Doing(unit, group, sizes, mine, reduce, compared, started)

    def _is_alone(self, sizes: tuple[int, ...]) -> bool:
        return len(sizes) == 1 and self.group.size == 1

    def _begin_engine(self, doing: Doing, m: int) -> tuple[Task, Any]:
        """What engine m has to compute; from now on gradients are its own."""
        if m != doing.mine.start:
            self.buffers.restore()
        doing.reduce.begin_engine(m)
        task, group = self.feed.engine(doing.unit, m), self.group
        return task, self.feed.batch(task, self.feed.following(self.position, group.rank, group.size, after=m), workers=group.size)

    def _end_engine(self, doing: Doing, m: int) -> None:
        """It is computed: its gradients are in their row."""
        unit, sizes = doing.unit, doing.sizes
        if self.ledger is not None:
            self.ledger.engine(unit.step, unit.epoch + 1, m, self.feed.engine(unit, m).indices)
        doing.reduce.end_engine(m, scale=sizes[m] / sum(sizes) if self.job.train_function else None)
        heartbeat.beat()

    def _sum(self, doing: Doing) -> None:
        """The sum over all engines, in the place of this worker's gradients. Raises Reconfigured where a member died meanwhile, or where
        this worker is none any more."""
        group, reduce = doing.group, doing.reduce
        if self.context.on_device:
            self.feed.ahead(self.feed.following(self.position + 1, group.rank, group.size))
        if reduce.several:
            self._read(doing)
            self.sharding.offer(group, doing.unit.step)
        doing.agreed = self._sync(reduce.stage())
        if doing.agreed > group.number:
            self.exchange.meet(self.segment.generation(doing.agreed), self.worker_id)
        if doing.compared:
            self._compare(doing.unit.step - 1)
        reduce.add_cross_rank()
        if reduce.several:
            self._leave_before(doing.agreed)
            all_stay = self._stay(group.local, doing.agreed)  # else a share would be written by one whom nobody waits for
            doing.shared_out = all_stay and self.sharding.applies(group, doing.unit.step, self.exchange.used)
        reduce.set_grads(self.job.optimizer)

    def _end_step(self, doing: Doing) -> None:
        """All of it is in the state. Raises Reconfigured where the members change."""
        unit, group = doing.unit, doing.group
        self.feed.settle(unit.step)
        self.unsaved = -1  # the first member came to the barrier, so it has done that
        self._commit(self.position + 1)
        if self.ledger is not None:
            self.ledger.committed(unit.step)
        if group.rank == 0:
            self._announce_size()
            self._record(unit, group, time.monotonic() - doing.started)
        with self._excused():
            self.hooks.trained(doing.vectors, unit.epoch, group.size)
        self._save_by_time(unit)
        self._move_on(doing.agreed)

    def _leave_before(self, agreed: int) -> None:
        """Who does not go on with the others takes no part in the rest of the step: nobody waits for it any more, so the sums may be
        overwritten while it reads them."""
        if not self._stay((self.worker_id,), agreed):
            raise Reconfigured(agreed, abort=False)

    def _stay(self, worker_ids: Sequence[int], agreed: int) -> bool:
        """Whether these members go on with the others."""
        return agreed <= self.group.number or set(worker_ids) <= set(self.segment.generation(agreed).worker_ids)

    def _announce_size(self) -> None:
        """Tell newcomers how much room the state takes; once, after the first step has made the optimizer's part of it."""
        if not self.segment.words[STATE_BYTES]:
            self.segment.words[STATE_BYTES] = transfer.packed_bytes(capture.capture(self.job.live))

    def _read(self, doing: Doing) -> None:
        """What came of this worker's engines, also for whoever records the step."""
        doing.vectors = [each.vector() for each in doing.metrics]
        for m, vector in zip(doing.mine, doing.vectors, strict=True):
            self.segment.metrics[doing.parity, m] = torch.tensor(vector, dtype=torch.float64)

    def _tell_digest(self) -> dict[str, int]:
        live, numbers = self.job.live, self.buffers.numbers.values()
        parts = digest.sections(capture.contents(live), numbers=numbers, samples=self.feed.total(), held=capture.learnt(live))
        self.replicas.tell(self.worker_id, self.group.next_parity, parts)
        return parts

    def _compare(self, step: int) -> None:
        """After the barrier. Whoever differs from whom is the driver's to say; it ends the run."""
        if self.group.rank:
            return
        parts, groups = self.replicas.compare(self.group.record.members, self.group.parity)
        if parts == (digest.HELD,) and not self._warned:
            self._warned = True
            self._warn(digest.HOLD_OTHERS.format(step))
        elif parts and parts != (digest.HELD,):
            self._report(reports.Diverged(step, parts, tuple(map(tuple, groups))))
            raise Retired

    def _save_by_time(self, unit: WorkItem) -> None:
        """The same within a long epoch, for the case that all processes of the run die at once. The first member alone looks at its clock;
        nobody needs to agree: after a step all hold the same, and the others come to wait at the next barrier until there is a snapshot.
        Where the disk takes nothing, or is still at the last one, what was written before stays, and it is tried again when the time has
        passed."""
        now = time.monotonic()
        if self.group.rank or not self.checkpoint_every_s or now < self.saved_at + self.checkpoint_every_s or self.writer.is_busy:
            return
        with self._excused():
            self._save(unit, patient=False)

    def _save(self, unit: WorkItem, name: str = "", *, engine: bool = True, patient: bool = True) -> None:
        """Have the state as it is now written while the training goes on: files for people called `name`, if any, and what the run goes on
        from if all workers die. Of the end of an epoch it does that end again, to the same files."""
        self._written()
        others, size = self._patiently(lambda: model_files.save_others(self.job, name, self._warn)) if name else ((), 0)
        contents = model_files.contents(self.job, name) if name else {}
        order = Order(
            position=self.position,
            step=unit.step,
            epoch=unit.epoch + 1,
            shape=checkpoint.vars_of(self.shape, wide_sums=self.job.config.wide_sums),
            others=others,
            others_bytes=size,
            engine=engine,
            patient=patient,
        )
        with self._excused():
            snapshot.take_snapshot(self.context.snapshot_fd, self.job.live, order, contents)
        self.writer.begin(self.position)
        self.saved_at = time.monotonic()
