"""A worker process as its driver knows it: a row of the worker table."""

from __future__ import annotations

from dataclasses import dataclass

from training_runtime.elastic.driver import membership
from training_runtime.protocol import SlotRef


@dataclass
class WorkerProcess:
    """A worker process on a machine, 0 being the driver's. `gone`: reaped; `dead`: gone while it was needed. `ticks` is its start time
    there (see `start_ticks`)."""

    worker_id: int
    slot: SlotRef
    machine: int
    state: membership.State
    pid: int = 0
    ticks: int = 0
    dead: bool = False
    gone: bool = False
    killed: bool = False
    ready_at: float = 0.0
