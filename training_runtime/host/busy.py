"""How long the slots of a run were at work: processor time of the worker on a CPU slot, what the driver of the device says on a GPU slot.

Read from the kernel and from NVIDIA's library, sampled by the host's loop; what a run says of itself is not believed. It decides nothing.
"""

from __future__ import annotations

import ctypes
import logging
import os
import time
from collections.abc import Callable, Iterable

from training_runtime.host import processes
from training_runtime.host.live import LiveRun
from training_runtime.protocol import SlotRef, Worker

log = logging.getLogger(__name__)
SAMPLE_S = 1.0
_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")

# The share of a GPU's recent time in which it computed, by its number; None where nobody can tell.
GpuShare = Callable[[int], float | None]


class Meter:
    """Adds to `LiveRun.busy_s`. A slot is busy for at most as long as it is held, however many threads its worker has.

    A worker that an earlier host has started counts from now on. All times are seconds after boot.
    """

    def __init__(self, gpu_share: GpuShare) -> None:
        self._gpu_share = gpu_share
        self._began = boot_s()
        self._sampled = self._began
        self._last: dict[Worker, tuple[float, float]] = {}  # when it was looked at, processor seconds until then

    def sample_if_due(self, runs: Iterable[LiveRun]) -> None:
        if boot_s() - self._sampled >= SAMPLE_S:
            self.sample(runs)

    def sample(self, runs: Iterable[LiveRun]) -> None:
        """Take the time since each worker was last looked at into account."""
        now = self._sampled = boot_s()
        workers: dict[Worker, tuple[float, float]] = {}
        for run in runs:
            run.slots |= {slot.id: slot for slot in run.members or ()}
            for worker in run.workers:
                self._look(run, worker, now, into=workers)
        self._last = workers

    def _look(self, run: LiveRun, worker: Worker, now: float, *, into: dict[Worker, tuple[float, float]]) -> None:
        slot, used = run.slots.get(worker.slot), processes.processor_s(worker.pid, worker.start_ticks)
        if slot is None or used is None:
            return  # an earlier host's, of which the studio has not spoken yet; or it has ended since
        started = worker.start_ticks / _TICKS_A_SECOND
        since, before = self._last.get(worker, (started, 0.0) if started >= self._began else (now, used))
        into[worker] = (now, used)
        work = self._work(slot, used - before, now - since)
        run.busy_s = None if work is None or run.busy_s is None else run.busy_s + work

    def _work(self, slot: SlotRef, used: float, passed: float) -> float | None:
        """How much of the `passed` seconds the slot was at work; None where that cannot be known."""
        if slot.device == "cpu":
            return max(0.0, min(used, passed))
        share = self._gpu_share(slot.index)
        return None if share is None else share * passed


def boot_s() -> float:
    """The clock of processes' start times."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class _Utilization(ctypes.Structure):
    _fields_ = [("gpu", ctypes.c_uint), ("memory", ctypes.c_uint)]


def nvidia_share() -> GpuShare:
    """Asks NVIDIA's management library, which comes with the driver: the share of the last second or so in which a kernel ran.

    Devices are told apart by their minor numbers, as in `node_facts`. Without the library nothing is known.
    """
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
        handles = _devices(library)
    except OSError as error:
        log.info("how busy GPUs are cannot be known: %s", error)
        return lambda _index: None

    def share(index: int) -> float | None:
        found = _Utilization()
        if index not in handles or library.nvmlDeviceGetUtilizationRates(handles[index], ctypes.byref(found)):
            return None
        return min(1.0, float(found.gpu) / 100)

    return share


def _devices(library: ctypes.CDLL) -> dict[int, ctypes.c_void_p]:
    """Handles by minor number. Raises OSError where the library cannot speak to the driver."""
    count = ctypes.c_uint()
    if library.nvmlInit_v2() or library.nvmlDeviceGetCount_v2(ctypes.byref(count)):
        raise OSError("NVIDIA's management library does not answer")
    handles: dict[int, ctypes.c_void_p] = {}
    for index in range(count.value):
        handle, minor = ctypes.c_void_p(), ctypes.c_uint()
        failed = library.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle))
        if not failed and not library.nvmlDeviceGetMinorNumber(handle, ctypes.byref(minor)):
            handles[minor.value] = handle
    return handles
