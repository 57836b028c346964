"""Which processes have memory on a GPU, asked of NVIDIA's management library (NVML), and of which runs they are. Decides nothing.

Names and numbers are those of nvml.h. It was not seen on a GPU yet.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from training_runtime.gpu_memory import GpuMemoryHolder, GpuProcess, holders
from training_runtime.host import processes
from training_runtime.host.runs.live import LiveRun

_LIST = "nvmlDeviceGetComputeRunningProcesses"
DEVICES = "/dev/nvidia"  # with what follows in the name of each
_TOO_SMALL = 7  # NVML_ERROR_INSUFFICIENT_SIZE
_UNKNOWN = 2**64 - 1  # NVML_VALUE_NOT_AVAILABLE
_FEW, _MANY = 64, 4096


class ProcessInfo(ctypes.Structure):
    """nvmlProcessInfo_t, the same since NVML 11.1 (`_v2`)."""

    _fields_ = [
        ("pid", ctypes.c_uint),
        ("used_bytes", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    ]


def processes_on(library: Any, handle: ctypes.c_void_p) -> tuple[GpuProcess, ...]:
    """Those that compute there, as far as the library tells; their numbers are the driver's, which in a container are other processes'."""
    ask = getattr(library, f"{_LIST}_v3", None) or getattr(library, f"{_LIST}_v2", None)
    if ask is None:
        return ()
    for room in (_FEW, _MANY):
        count, found = ctypes.c_uint(room), (ProcessInfo * room)()
        failed = ask(handle, ctypes.byref(count), found)
        if not failed:
            return tuple(GpuProcess(each.pid, None if each.used_bytes == _UNKNOWN else each.used_bytes) for each in found[: count.value])
        if failed != _TOO_SMALL:
            break
    return ()


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
