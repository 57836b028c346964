"""What a machine computes with, as far as the bits of a result depend on it."""

from __future__ import annotations

import torch

from training_runtime.processor import gpus, processor


def same_build() -> dict[str, object]:
    """What has to be the same on all machines of a run for the same bits. Can be written as JSON."""
    return {"torch": torch.__version__, "processor": processor(), "GPUs": sorted(set(gpus()))}
