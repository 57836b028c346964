"""By what way a worker's gradients meet those of the others: through the memory that a machine's workers share (`comm.all_reduce`), or
through a torch.distributed group (`comm.collective_reduce`). Both give the same bits; which is used is one choice for the whole run."""

from __future__ import annotations

from training_runtime.elastic.comm.all_reduce import Exchange
from training_runtime.elastic.comm.collective_reduce import CollectiveReduce
from training_runtime.elastic.comm.segment import Segment
from training_runtime.elastic.job import COLLECTIVE, Job
from training_runtime.elastic.multinode import rendezvous
from training_runtime.elastic.processes.worker_context import WorkerContext

LOOPBACK = "127.0.0.1"


def exchange_of(job: Job, segment: Segment, context: WorkerContext) -> Exchange:
    """As the run's `reduce` says."""
    device, own_step = context.device(), job.train_function is not None
    if job.config.reduce != COLLECTIVE:
        return Exchange(segment, job.trained, device, on_device=context.on_device, others=job.untrained, own_step=own_step)
    address = rendezvous.own_address(job.result_dir) if job.config.machines > 1 else LOOPBACK
    return CollectiveReduce(segment, job.trained, device, others=job.untrained, own_step=own_step, address=address)
