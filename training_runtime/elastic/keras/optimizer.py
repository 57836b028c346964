"""A Keras optimizer as the torch optimizer that the engine steps. The step is Keras' own, on the gradients that the engine has added up.

Its variables (moments, its count of steps, the learning rate) are the state of the first parameter, by their paths. Who puts a state back
puts it into Keras' variables.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from training_runtime.errors import UserError

CHANGED = (
    "layers were made trainable during the training: make all of them trainable before FabricModel is made, and set trainable = False in "
    "on_train_begin for those that are not to be trained yet"
)


class KerasOptimizer(torch.optim.Optimizer):
    """`variables` are trained; `others` are weights that are not, and must stay so."""

    __slots__ = ("_others", "_trained", "keras_optimizer")  # and no attributes, which would be captured with the state

    def __init__(self, keras_optimizer: Any, variables: list[Any], others: list[Any]) -> None:
        # Keras has all of its variables where the model is, its count of steps too: what torch calls capturable.
        super().__init__([v.value for v in variables], {"capturable": True})
        self.keras_optimizer, self._trained, self._others = keras_optimizer, variables, others
        self.state = _State(keras_optimizer, variables[0].value)  # type: ignore[assignment]

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override] # noqa: ARG002 - the engine gives none
        if any(v.value.requires_grad for v in self._others):
            raise UserError(CHANGED)
        grads = [v.value.grad for v in self._trained]
        if any(grad is not None for grad in grads):
            self.keras_optimizer.apply(grads, self._trained)


class _State(dict[torch.Tensor, Mapping[str, Any]]):
    """What Keras' variables hold, under the one parameter `place`."""

    def __init__(self, keras_optimizer: Any, place: torch.Tensor) -> None:
        super().__init__()
        self._values = {f"{i} {v.path}": v.value for i, v in enumerate(keras_optimizer.variables)}
        super().__setitem__(place, dict(self._values))

    def __setitem__(self, place: torch.Tensor, found: Mapping[str, Any]) -> None:
        with torch.no_grad():
            for name, value in self._values.items():
                if value.device != found[name].device:
                    value.data = found[name].detach()
                elif value is not found[name]:
                    value.copy_(found[name])
        super().__setitem__(place, dict(self._values))
