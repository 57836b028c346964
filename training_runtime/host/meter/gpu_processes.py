"""Which processes have memory on a GPU, asked of NVIDIA's management library, and of which runs they are. Decides nothing."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from training_runtime.gpu_memory import GpuMemoryHolder, GpuProcess, holders
from training_runtime.host import processes
from training_runtime.host.meter.nvml import answer
from training_runtime.host.runs.live import LiveRun

DEVICES = "/dev/nvidia"  # with what follows in the name of each


def processes_on(nvml: Any, handle: Any) -> tuple[GpuProcess, ...]:
    """Those that compute there, as far as the library tells; their numbers are the driver's, which in a container are other processes'."""
    found = answer(nvml, "nvmlDeviceGetComputeRunningProcesses", handle) or ()
    return tuple(GpuProcess(each.pid, each.usedGpuMemory) for each in found)


def holders_of(found: Sequence[GpuProcess], runs: Sequence[LiveRun]) -> tuple[GpuMemoryHolder, ...]:
    """Whose they are. A number of the driver's is believed where the process of that number here has a GPU open."""
    seen = [each.pid for each in found if _has_a_gpu_open(each.pid)]
    table = processes.table() if seen else {}
    begun = [run for run in runs if run.pid] if seen else []
    of_runs = {process.pid: run.run for run in begun for process in processes.of_run(run.traces(), table)}
    return holders(found, of_runs, {pid: processes.name(pid) for pid in seen})


def _has_a_gpu_open(pid: int) -> bool:
    with contextlib.suppress(OSError):
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                if str(entry.readlink()).startswith(DEVICES):
                    return True
    return False
