"""Where a worker sits: its seat in the arena, its slot and device, and the descriptors it inherited."""

from __future__ import annotations

import os
import socket
import sys
from dataclasses import dataclass
from pathlib import Path

import torch

from training_runtime.elastic.job import Job


@dataclass(frozen=True)
class Place:
    """`slot` is the studio's id of the slot, `index` its place on the machine (the GPU's number). `resume`: begin with the engine
    checkpoint. `after`: the last generation published before this worker was started; only a later one can mean it."""

    seat: int
    slot: int
    index: int
    kind: str
    resume: bool
    after: int
    arena_fd: int
    state_fd: int
    wake_fd: int
    reports: socket.socket

    def settle(self, job: Job) -> None:
        """Make this process a worker: its one GPU, its thread count, its own log. Before anything touches a device."""
        if self.kind == "gpu":
            os.environ["CUDA_VISIBLE_DEVICES"] = str(self.index)
        torch.set_num_threads(int(os.environ.get("EDT_THREADS_PER_SLOT", "1")))
        if job.in_studio:
            self._log_to(job.result_dir / "log" / f"worker-{self.slot}")

    def _log_to(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        os.environ["LOG_DIR"] = str(folder)
        fd = os.open(folder / "console.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        sys.stdout.flush()
        sys.stderr.flush()
        os.dup2(fd, 1)
        os.dup2(fd, 2)
        os.close(fd)

    def device(self) -> torch.device:
        return torch.device("cuda:0" if self.kind == "gpu" else "cpu")
