"""The loss of a Keras model: what its `compute_loss` says, with all that layers add to it (regularizers, add_loss)."""

from __future__ import annotations

from typing import Any

import torch

from training_runtime.elastic.keras.module import KerasModule


class KerasLoss:
    """Of the outputs that the module has just given. The model is compiled with the loss."""

    __slots__ = ("__name__", "_module")

    def __init__(self, module: KerasModule) -> None:
        self._module, self.__name__ = module, "loss"

    def __call__(self, outputs: Any, targets: Any) -> torch.Tensor:
        module = self._module
        loss: torch.Tensor = module.keras_model.compute_loss(x=module.inputs, y=targets, y_pred=outputs)
        return loss
