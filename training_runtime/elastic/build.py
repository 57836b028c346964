"""What a machine computes with, as far as the bits of a result depend on it."""

from __future__ import annotations

import sys

import torch

from training_runtime.elastic.keras import kind
from training_runtime.processor import gpus, processor


def same_build() -> dict[str, object]:
    """What has to be the same on all machines of a run for the same bits, once its script has made its model. Can be written as JSON."""
    found: dict[str, object] = {"torch": torch.__version__, "processor": processor(), "GPUs": sorted(set(gpus()))}
    others = [name for name in ("keras", "tensorflow") if name in sys.modules and (name == "keras" or kind.is_tensorflow_imported())]
    return found | {name: str(sys.modules[name].__version__) for name in others}
