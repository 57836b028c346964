"""A Keras optimizer as the torch optimizer that the engine steps. The step is Keras' own, on the gradients that the engine has added up.

Its variables (moments, its count of steps, the learning rate) are the state of the first parameter, by their paths. Who puts a state back
puts it into Keras' variables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from typing import Any

import torch

from training_runtime.elastic.keras.module import KerasModule
from training_runtime.errors import UserError

CHANGED = (
    "layers were made trainable during the training: make all of them trainable before FabricModel is made, and set trainable = False in "
    "on_train_begin for those that are not to be trained yet"
)


class KerasOptimizer(torch.optim.Optimizer):
    """Trains those weights of the module that are trainable now; the others must stay as they are."""

    __slots__ = ("_others", "_parameters", "_trained", "keras_optimizer")  # and no attributes, which would be captured with the state

    def __init__(self, keras_optimizer: Any, module: KerasModule) -> None:
        by_weight = list(zip(module.weights, module.parameters(), strict=True))
        self._parameters = [p for v, p in by_weight if v.trainable]
        # Keras has all of its variables where the model is, its count of steps too: what torch calls capturable.
        super().__init__(self._parameters, {"capturable": True})
        self._trained = [v for v in module.weights if v.trainable]
        self._others = [v for v in module.weights if not v.trainable]
        self.keras_optimizer = keras_optimizer
        self.state = self._bound(keras_optimizer)  # type: ignore[assignment]

    def _bound(self, keras_optimizer: Any) -> BoundState:
        return BoundState(self._parameters[0], keras_optimizer.variables, read=lambda v: v.value, write=_write)

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override] # noqa: ARG002 - the engine gives none
        if any(v.trainable for v in self._others):
            raise UserError(CHANGED)
        grads = [p.grad for p in self._parameters]
        if any(grad is not None for grad in grads):
            self.apply(grads)

    def apply(self, grads: Sequence[torch.Tensor | None]) -> None:
        self.keras_optimizer.apply(grads, self._trained)


class BoundState(MutableMapping[torch.Tensor, Mapping[str, Any]]):
    """What variables hold, under the one parameter `place`: who reads it reads them, who puts something in its place writes them."""

    def __init__(
        self,
        place: torch.Tensor,
        variables: Sequence[Any],
        *,
        read: Callable[[Any], torch.Tensor],
        write: Callable[[Any, torch.Tensor], None],
    ) -> None:
        self._place, self._read, self._write = place, read, write
        self._variables = {f"{i} {v.path}": v for i, v in enumerate(variables)}

    def __getitem__(self, place: torch.Tensor) -> Mapping[str, Any]:
        if place is not self._place:
            raise KeyError
        return {name: self._read(v) for name, v in self._variables.items()}

    def __setitem__(self, place: torch.Tensor, found: Mapping[str, Any]) -> None:
        assert place is self._place
        with torch.no_grad():
            for name, v in self._variables.items():
                self._write(v, found[name])

    def __delitem__(self, place: torch.Tensor) -> None:
        """It holds something as long as the variables are there."""

    def __iter__(self) -> Iterator[torch.Tensor]:
        return iter((self._place,))

    def __len__(self) -> int:
        return 1


def _write(variable: Any, found: torch.Tensor) -> None:
    value = variable.value
    if value.device != found.device:
        value.data = found.detach()
    elif value is not found:
        value.copy_(found)
