"""How long the slots of a run were at work, and what memory they take: that of the worker on a CPU slot with all processes that it has
started, and what the driver of the device says on a GPU slot.

Read from the kernel and from NVIDIA's library, sampled by the host's loop; what a run says of itself is not believed. It decides nothing.
"""

from __future__ import annotations

import logging
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from training_runtime.gpu_health import GpuHealth
from training_runtime.gpu_memory import GpuMemoryHolder, GpuProcess, crowding
from training_runtime.host import processes
from training_runtime.host.meter.gpu_errors import GpuErrors
from training_runtime.host.meter.gpu_processes import holders_of, processes_on
from training_runtime.host.meter.nvml import answer, open_library
from training_runtime.host.runs.live import LiveRun
from training_runtime.protocol import SlotRef, SlotSeen, Worker

log = logging.getLogger(__name__)
SAMPLE_S = 1.0
MEMORY_S = 3.0
_MOST_BELOW = 128  # processes of a worker that are looked at: each costs some 15 µs a second, and a script may start thousands
_MEMORY_COST = 100  # a worker's memory is looked at so seldom that this takes a hundredth of the time at most
_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class GpuUse:
    """The share of a GPU's recent time in which it computed, its memory that is in use, by whomever, and all it has; None where it does not
    say. `processes`: those that have some of it."""

    share: float
    memory_bytes: int | None
    device_bytes: int | None = None
    processes: tuple[GpuProcess, ...] = ()


# By the GPU's number; None where nobody can tell.
Gpu = Callable[[int], GpuUse | None]


@dataclass
class _Count:
    """Of one worker: since when it is counted, when it was looked at last, the processor seconds that it had used by then, and the sums."""

    since: float
    looked_at: float
    used: float
    busy_s: float = 0.0
    counted_s: float = 0.0

    def seen(self, slot: SlotRef, *, memory: int | None, device: int | None, holders: tuple[GpuMemoryHolder, ...]) -> SlotSeen:
        """Milliseconds are enough: it travels with every observation."""
        busy = round(self.busy_s, 3) if self.counted_s else None
        gpu = slot.index if slot.device == "gpu" else None
        return SlotSeen(slot.id, round(self.since, 3), busy, round(self.counted_s, 3), memory, device, gpu, holders)


class Meter:
    """Adds to `LiveRun.busy_s` and `counted_s`, and keeps `measured` up to date. A slot is busy for at most as long as it is held, however
    many threads its worker has.

    A worker that an earlier host has started counts from now on. All times are seconds after boot.
    """

    def __init__(self, gpu: Gpu, health: Callable[[], tuple[GpuHealth, ...]] = tuple) -> None:
        self._gpu, self.health = gpu, health
        self._runs: list[LiveRun] = []
        self._began = boot_s()
        self._sampled = self._began
        self._counts: dict[Worker, _Count] = {}
        self._below: dict[int, tuple[processes.Kin, ...]] = {}  # by worker's number, what it has started
        self._below_due = self._began
        self._memory: dict[Worker, tuple[float, int | None]] = {}  # when it is to be looked at again, bytes
        self._holders: dict[int, tuple[float, tuple[GpuMemoryHolder, ...]]] = {}  # the same by GPU, whose the processes on it are

    def sample_if_due(self, runs: Iterable[LiveRun], *, hurry: bool = False) -> None:
        if boot_s() - self._sampled >= SAMPLE_S:
            self.sample(runs, hurry=hurry)

    def sample(self, runs: Iterable[LiveRun], *, hurry: bool = False) -> None:
        """Take the time since each worker was last looked at into account. `hurry`: somebody waits, so memory is as last looked at."""
        now = self._sampled = boot_s()
        self._runs = list(runs)
        counts: dict[Worker, _Count] = {}
        for run in self._runs:
            run.slots |= {slot.id: slot for slot in run.members or ()}
            run.measured = {}
            _forget_left(run)
        if now >= self._below_due and not hurry:
            self._look_below()
        for run in self._runs:
            slots = Counter(worker.pid for worker in run.workers)
            for worker in run.workers:
                self._look(run, worker, now, slots=slots[worker.pid], into=counts, hurry=hurry)
        self._counts = counts
        self._memory = {worker: known for worker, known in self._memory.items() if worker in counts}

    def _look(self, run: LiveRun, worker: Worker, now: float, *, slots: int, into: dict[Worker, _Count], hurry: bool) -> None:
        """`slots`: of how many its process is the worker; what that takes is said of each in equal parts."""
        slot, used = run.slots.get(worker.slot), self._processor_s(worker)
        if slot is None or used is None:
            return  # an earlier host's, of which the studio has not spoken yet; or it has ended since
        count = into[worker] = self._counts.get(worker) or self._first(worker, now, used)
        held_s = now - count.looked_at
        work = max(0.0, min((used - count.used) / slots, held_s)) if slot.device == "cpu" else None
        memory, device = self._memory_of(worker, hurry=hurry) if slot.device == "cpu" else None, None
        memory = memory // slots if memory is not None else None
        holders: tuple[GpuMemoryHolder, ...] = ()
        if slot.device == "gpu" and (gpu := self._gpu(slot.index)) is not None:
            work, memory, device = gpu.share * held_s, gpu.memory_bytes, gpu.device_bytes
            holders = self._holders_of(slot.index, gpu, hurry=hurry)
            run.crowding[slot.index] = crowding(slot.index, holders, own=run.run, device_bytes=device)
        run.busy_s = None if work is None or run.busy_s is None else run.busy_s + work
        run.counted_s += 0.0 if work is None else held_s
        count.looked_at, count.used = now, used
        count.busy_s += work or 0.0
        count.counted_s += 0.0 if work is None else held_s
        run.measured[slot.id] = count.seen(slot, memory=memory, device=device, holders=holders)

    def _look_below(self) -> None:
        """Which processes workers on CPU slots have started: a look at all of the machine."""
        began = boot_s()
        workers = {each.pid for run in self._runs for each in run.workers if (slot := run.slots.get(each.slot)) and slot.device == "cpu"}
        found = processes.families(workers, processes.kin()) if workers else {}
        self._below = {pid: tuple(sorted(below, key=lambda each: each.start_ticks)[:_MOST_BELOW]) for pid, below in found.items()}
        self._below_due = boot_s() + max(MEMORY_S, _MEMORY_COST * (boot_s() - began))

    def _processor_s(self, worker: Worker) -> float | None:
        own = processes.processor_s(worker.pid, worker.start_ticks)
        below = self._below.get(worker.pid, ()) if own is not None else ()
        return None if own is None else own + sum(processes.processor_s(each.pid, each.start_ticks) or 0.0 for each in below)

    def _first(self, worker: Worker, now: float, used: float) -> _Count:
        started = worker.start_ticks / _TICKS_A_SECOND
        return _Count(started, started, 0.0) if started >= self._began else _Count(now, now, used)

    def _memory_of(self, worker: Worker, *, hurry: bool) -> int | None:
        """When last looked at, which is now if it is due."""
        now = boot_s()
        due, memory = self._memory.get(worker, (now, None))
        if now >= due and not hurry:
            memory = processes.memory_bytes(worker.pid)
            if memory is not None:
                below = [each.pid for each in self._below.get(worker.pid, ()) if processes.alive(each.pid, each.start_ticks)]
                memory += sum(processes.memory_bytes(pid) or 0 for pid in below)
            self._memory[worker] = (now + max(MEMORY_S, _MEMORY_COST * (boot_s() - now)), memory)
        return memory

    def _holders_of(self, index: int, gpu: GpuUse, *, hurry: bool) -> tuple[GpuMemoryHolder, ...]:
        """When last looked at, which is now if it is due: it takes a look at all processes of the machine."""
        now = boot_s()
        due, known = self._holders.get(index, (now, ()))
        if now >= due and not hurry:
            known = holders_of(gpu.processes, self._runs)
            self._holders[index] = (now + max(MEMORY_S, _MEMORY_COST * (boot_s() - now)), known)
        return known


def _forget_left(run: LiveRun) -> None:
    """Who had memory of GPUs that a run has no worker on any more; not once it has none at all, which may be for lack of memory."""
    if run.workers:
        gpus = {run.slots[worker.slot].index for worker in run.workers if worker.slot in run.slots}
        run.crowding = {index: said for index, said in run.crowding.items() if index in gpus}


def boot_s() -> float:
    """The clock of processes' start times."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def meter_of(gpus: Sequence[str]) -> Meter:
    """Of a machine with these GPUs."""
    return Meter(*nvidia()) if gpus else Meter(lambda _index: None)


def nvidia() -> tuple[Gpu, Callable[[], tuple[GpuHealth, ...]]]:
    """What tells of the use of GPUs, and of their health. Asks NVIDIA's management library: the share of the last second or so in which a
    kernel ran, the device's memory that is in use, and by which processes. Without the library nothing is known.
    """
    try:
        nvml, handles = open_library()
    except OSError as error:
        log.info("how busy GPUs are cannot be known: %s", error)
        return lambda _index: None, tuple

    def use(index: int) -> GpuUse | None:
        handle = handles.get(index)
        busy = answer(nvml, "nvmlDeviceGetUtilizationRates", handle) if handle is not None else None
        if busy is None:
            return None
        memory = answer(nvml, "nvmlDeviceGetMemoryInfo", handle)
        used, total = (None, None) if memory is None else (int(memory.used), int(memory.total))
        return GpuUse(min(1.0, float(busy.gpu) / 100), used, total, processes_on(nvml, handle))

    return use, GpuErrors(nvml, handles).look
