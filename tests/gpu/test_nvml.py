"""What NVIDIA's library tells of a GPU that this process uses."""

from __future__ import annotations

import os
import time

import torch

from training_runtime import processor
from training_runtime.host.meter.utilization import nvidia

GIB = 1 << 30


def test_how_busy_it_is_its_memory_and_its_processes_are_known() -> None:
    use, health = nvidia()
    held = torch.ones(GIB // 4, device="cuda")
    end = time.monotonic() + 30
    while True:  # a share of the last second or so
        for _ in range(200):
            held.add_(1)
        torch.cuda.synchronize()
        seen = use(0)
        assert seen is not None
        if seen.share > 0:
            break
        assert time.monotonic() < end, seen
    assert seen.share <= 1
    assert seen.device_bytes is not None
    assert seen.memory_bytes is not None
    assert GIB < seen.memory_bytes < seen.device_bytes
    (own,) = (each for each in seen.processes if each.pid == os.getpid())
    assert own.used_bytes is not None
    assert GIB < own.used_bytes <= seen.memory_bytes
    (found,) = (each for each in health() if each.gpu == 0)
    assert (found.uncorrected_errors, found.xid) == (0, 0)


def test_the_kernel_and_the_library_name_the_same_gpus() -> None:
    found = processor.gpu_list()
    assert [gpu.uuid for gpu in found] == [f"GPU-{torch.cuda.get_device_properties(i).uuid}" for i in range(torch.cuda.device_count())]
    assert [gpu.model for gpu in found] == [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
