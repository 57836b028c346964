"""Tensors that a script holds beside its model, and that belong where the model is: an average of its weights, a second model.

A script's process sees no GPU, so all that it has made before the training is on the processor. A script that is written for any device
would have put these where its model is, and counts on it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import nn

from training_runtime.elastic.state.transfer import replace


def tensors_beside(held: Iterable[tuple[object, Mapping[str, Any]]], parameters: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    """Of objects with what is in each: the tensors of modules; and of whoever has one for each of the model's `parameters`, by their
    shapes, those. Others stay on the processor, where a script counts classes, say, whose number is the shape of a bias."""
    shapes = Counter(p.shape for p in parameters)
    beside: list[torch.Tensor] = []
    for value, content in held:
        tensors: list[torch.Tensor] = []
        replace(content, tensors.append)
        if isinstance(value, nn.Module):
            beside += tensors
        elif shapes and not shapes - Counter(t.shape for t in tensors):
            beside += [t for t in tensors if t.shape in shapes]
    return list({id(t): t for t in beside}.values())
