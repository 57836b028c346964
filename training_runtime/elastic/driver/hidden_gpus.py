"""What torch is to say in the driver of an elastic run, which sees no GPU though its workers compute on one."""

from __future__ import annotations

import torch

from training_runtime import processor


def let_scalers_be_enabled() -> None:
    """A GradScaler that a script makes before the training would switch itself off for good, for want of a GPU, and the workers on GPUs
    would train without it. Nothing of it is on a device before it scales its first loss."""
    if processor.gpus():
        torch.cuda.amp.common.amp_definitely_not_available = lambda: False
