"""What the engine trains, made of what a script gives to FabricModel: a torch module, a loss of (outputs, targets) and a torch optimizer,
whatever framework they stand for. And what of it others see: callbacks, who looks for files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from training_runtime.elastic.measures import Measures

Metric = Callable[[Any, Any], Any]


@dataclass(frozen=True)
class TrainingComponents:
    """`metrics` None: accuracy is found out where the task is a classification; `measures` instead where they are sums. `script_objects`:
    model and optimizer as the script's callbacks know them, and `sync_script_objects` is around whatever uses these. `files`: ending
    -> writes the model to a path that ends so, beside the .pth files. `collate`: where the script has none. `no_onnx`: why it is not
    exported."""

    model: nn.Module
    loss: Callable[[Any, Any], torch.Tensor]
    optimizer: torch.optim.Optimizer
    metrics: Sequence[Metric] | None = None
    measures: Measures | None = None
    script_objects: tuple[Any, Any] | None = None
    sync_script_objects: Callable[[], AbstractContextManager[None]] = nullcontext
    files: Mapping[str, Callable[[Path], None]] = field(default_factory=dict)
    collate: Callable[[list[Any]], Any] | None = None
    no_onnx: str = ""
