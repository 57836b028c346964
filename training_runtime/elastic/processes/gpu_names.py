"""What CUDA_VISIBLE_DEVICES calls the GPU of a slot. Standard library only."""

from __future__ import annotations

import os

from training_runtime.variables import GPU_UUIDS


def gpu_name(number: int) -> str:
    """Of the GPU with this number on the machine, in a process of a studio. Its UUID where a run can open the GPUs of its slots alone: CUDA
    then numbers those, and by another order whenever a slot comes or goes."""
    uuids = os.environ.get(GPU_UUIDS, "").split(",")
    return uuids[number] if number < len(uuids) and uuids[number] else str(number)
