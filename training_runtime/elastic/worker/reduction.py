"""How the gradients and buffers of a step's engines come together.

By what way gradients meet those of other workers is one choice for the whole run (`exchange_of`): through the memory that a machine's
workers share (`comm.all_reduce`), or through a torch.distributed group (`comm.collective_reduce`). Both give the same bits. What of it a
step needs is chosen at its beginning (`reduce_of`), by how many workers and engines it has.
"""

from __future__ import annotations

import torch

from training_runtime.elastic.comm.all_reduce import Exchange
from training_runtime.elastic.comm.collective_reduce import CollectiveReduce
from training_runtime.elastic.comm.group import Group
from training_runtime.elastic.comm.segment import Segment
from training_runtime.elastic.job import COLLECTIVE, Job
from training_runtime.elastic.multinode import payloads, rendezvous
from training_runtime.elastic.processes.worker_context import WorkerContext
from training_runtime.elastic.worker.buffers import SharedBuffers

LOOPBACK = "127.0.0.1"


def exchange_of(job: Job, segment: Segment, context: WorkerContext) -> Exchange:
    """As the run's `reduce` says."""
    device, own_step = context.device(), job.train_function is not None
    if job.config.reduce != COLLECTIVE:
        return Exchange(segment, job.trained, device, on_device=context.on_device, others=job.untrained, own_step=own_step)
    address = rendezvous.own_address(job.result_dir) if job.config.machines > 1 else LOOPBACK
    return CollectiveReduce(segment, job.trained, device, others=job.untrained, own_step=own_step, address=address)


class OwnGradients:
    """The only worker has the only engine: what it computes is where it belongs."""

    several = False  # whether other workers take part

    def __init__(self, exchange: Exchange, buffers: SharedBuffers, group: Group, engines: range, count: int, parity: int) -> None:
        """`engines`: those of this worker, out of `count`."""
        self._exchange, self._buffers, self._group = exchange, buffers, group
        self._mine, self._engines, self._parity = engines, count, parity

    def begin(self) -> None:
        """Before the first engine."""

    def begin_engine(self, engine: int) -> None:
        """From now on gradients are its own."""

    def end_engine(self, engine: int, *, scale: float | None) -> None:
        """It is computed. `scale`: of its gradients, where the loss could not be multiplied."""

    def stage(self) -> int:
        """Before the first barrier; what machines other than this one need of it."""
        return payloads.NOTHING

    def add_cross_rank(self) -> None:
        """Between the first barrier and the second, which is in here."""

    def set_grads(self, optimizer: torch.optim.Optimizer) -> None:  # noqa: ARG002  (others need it)
        """The sum over all engines, in the place of this worker's gradients."""
        self._exchange.set_own_grads()

    def check(self) -> None:
        """After the optimizer's step. Raises UserError where it has changed what is not its own."""

    def take_buffers(self) -> None:
        """Before the optimizer's step: those that the next step begins with."""
        self._buffers.advance_alone()


class LocalReduce(OwnGradients):
    """The only worker has all engines, and adds up their gradients alone. Its buffers are those of engine 0."""

    def begin(self) -> None:
        self._buffers.ensure_snapshot()

    def begin_engine(self, engine: int) -> None:
        self._exchange.begin(engine, self._mine, self._engines)

    def end_engine(self, engine: int, *, scale: float | None) -> None:
        if engine == 0:
            self._buffers.broadcast(self._parity, alone=not self.several)
        self._exchange.end(engine, self._mine, self._engines, scale=scale)

    def set_grads(self, optimizer: torch.optim.Optimizer) -> None:
        self._exchange.set_grads(self._group.size, self._engines, optimizer)

    def take_buffers(self) -> None:
        self._buffers.receive_broadcast(self._parity, alone=not self.several)


class SharedMemoryReduce(LocalReduce):
    """Several workers, each with its engines: what one cannot add up alone is added up in shared memory, a shard by each."""

    several = True

    def stage(self) -> int:
        self._exchange.stage_parts(self._engines)
        return payloads.parts(self._engines, self._parity)

    def add_cross_rank(self) -> None:
        self._exchange.add_cross_rank(self._group.rank, self._group.size, self._engines)
        self._group.barrier(payload=payloads.SUM)

    def check(self) -> None:
        self._exchange.check()


class GroupReduce(SharedMemoryReduce):
    """The same through a torch.distributed group, to which buckets were sent while the gradients were computed."""

    def stage(self) -> int:
        self._exchange.stage_parts(self._engines)
        return payloads.figures(self._engines, self._parity)

    def add_cross_rank(self) -> None:
        self._exchange.add_cross_rank(self._group.rank, self._group.size, self._engines)
        self._group.barrier(payload=payloads.NOTHING)


def reduce_of(
    exchange: Exchange, buffers: SharedBuffers, group: Group, engines: range, count: int, parity: int, *, alone: bool
) -> OwnGradients:
    """For one step. `alone`: the only worker has the only engine, and nothing is between its gradients and the optimizer."""
    if group.size > 1:
        kind: type[OwnGradients] = SharedMemoryReduce if exchange.through_segment else GroupReduce
    else:
        kind = OwnGradients if alone else LocalReduce
    return kind(exchange, buffers, group, engines, count, parity)
