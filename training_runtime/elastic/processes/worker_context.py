"""What a worker process is started with: its id, its slot and device, and the descriptors it inherited."""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from training_runtime import console
from training_runtime.elastic.processes import process_handles
from training_runtime.elastic.processes.commands import Fork
from training_runtime.elastic.processes.gpu_names import gpu_name
from training_runtime.elastic.processes.report_socket import Inbox, Outbox
from training_runtime.elastic.processes.reports import Report

DYING_S = 0.1
OOM_SCORE = 600  # more than the driver and the fork server have
_TRIM_THRESHOLD, _MMAP_MAX = -1, -4  # of mallopt(3)


@dataclass(frozen=True)
class WorkerContext:
    """`worker_id`: which words and semaphore of the segment are its own. `slot` is the studio's id of the slot, `index` its place on the
    machine (the GPU's number). `begin`: with the engine checkpoint of this position; 0: anew; -1: with nothing, others have the state.
    `after`: the last generation published before this worker was started; only a later one can mean it. `workers`: how many there are to be
    then. `driver`: its pidfd. `inbox`: what the driver has not read, for when it never will."""

    worker_id: int
    slot: int
    index: int
    kind: str
    begin: int
    after: int
    workers: int
    segment_fd: int
    state_fd: int
    snapshot_fd: int
    wake_fd: int
    driver: int
    reports: Outbox
    inbox: Inbox
    _held: dict[int, tuple[int, int]] = field(default_factory=dict)

    def settle(self, result_dir: Path, *, in_studio: bool) -> None:
        """Make this process a worker: its one GPU, its thread count, its own log. Before anything touches a device."""
        os.environ["CUDA_VISIBLE_DEVICES"] = visible_gpu(self.kind, self.index, in_studio=in_studio)
        self._held.update({fd: _identity(fd) for fd in self._descriptors()})
        with suppress(OSError):  # of a run's processes the kernel should kill a worker first: its death costs least
            Path("/proc/self/oom_score_adj").write_text(str(OOM_SCORE))
        self.set_threads()
        if os.environ.get("EDT_KEEP_FREED_MEMORY", "1") != "0":
            keep_freed_memory()
        folder = result_dir / "log" / f"worker-{self.slot}"
        folder.mkdir(parents=True, exist_ok=True)
        os.environ["LOG_DIR"] = str(folder)  # where a logger of the script writes; the driver's has a folder of its own
        if in_studio:  # elsewhere all workers share one terminal
            console.print_to(folder / "console.log", mode=0o644)

    def set_threads(self) -> None:
        """As many as a slot has."""
        torch.set_num_threads(int(os.environ.get("EDT_THREADS_PER_SLOT", "1")))

    def _descriptors(self) -> tuple[int, ...]:
        memfds = self.segment_fd, self.state_fd, self.snapshot_fd
        return *memfds, self.wake_fd, self.driver, self.reports.fileno(), self.inbox.fileno()

    def intact(self) -> bool:
        """Whether all that this worker inherited is still open: user code that tidies up may close what it does not know."""
        try:
            return all(_identity(fd) == was for fd, was in self._held.items())
        except OSError:
            return False

    def unread(self) -> list[Report]:
        """Take out the reports that no driver will read any more; none while it lives. One that is being killed has closed its sockets, by
        which its death is noticed, a moment before it has ended. What could not even be sent is nobody else's in any case."""
        return [*(self.inbox.receive() if process_handles.wait(self.driver, DYING_S) else ()), *self.reports.unsent]

    @property
    def on_device(self) -> bool:
        """Whether it computes on a device of its own, beside the processor and away from its memory."""
        return self.kind != "cpu"

    def device(self) -> torch.device:
        return torch.device("cuda:0" if self.kind == "gpu" else "cpu")


def visible_gpu(kind: str, index: int, *, in_studio: bool) -> str:
    """What CUDA_VISIBLE_DEVICES says in a worker: the GPU of its slot, as the studio names it (see `gpu_names`), or by its place among
    those that a person left us; none where the slot has none."""
    if kind != "gpu":
        return ""
    if in_studio:
        return gpu_name(index)
    seen = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    return seen.split(",")[index].strip() if seen else str(index)


def context_of(command: Fork, **ends: Any) -> WorkerContext:
    """From the driver's command and what the process has inherited."""
    about = {name: value for name, value in vars(command).items() if name != "do"}
    return WorkerContext(**about, **ends)


def _identity(fd: int) -> tuple[int, int]:
    found = os.fstat(fd)
    return found.st_dev, found.st_ino


def keep_freed_memory() -> None:
    """Have malloc keep large blocks for the next step instead of returning them to the kernel.

    Each backward pass allocates and frees every gradient. What came fresh from the kernel is paid for page by page: without this 16 M
    parameters cost 65,000 page faults and 30 % of the processor time of a step. glibc only; elsewhere nothing happens.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_MAX, 0)
        mallopt(_TRIM_THRESHOLD, 1 << 30)


def return_freed_memory() -> None:
    """To the kernel, once, after something large was freed for good that `keep_freed_memory` would keep. What the next step needs is paid
    for again. glibc only; elsewhere nothing happens."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
