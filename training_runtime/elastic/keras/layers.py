"""What is in a Keras model besides its call: weights, generators, and the numbers that its layers keep."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import nn

# What every layer has; the rest of its numbers are the script's: the rate of a dropout, a counter.
_OF_EVERY_LAYER = frozenset({"training", "built", "autocast", "supports_jit", "compiled", "stop_training", "steps_per_execution"})


class Layers:
    """The layers of a model, itself among them; each once."""

    def __init__(self, model: Any) -> None:
        self._all = list({id(layer): layer for layer in model._flatten_layers(include_self=True, recursive=True)}.values())

    def weights(self) -> list[Any]:
        """The variables that were made to be trained, also where they are frozen now."""
        found = {id(v): v for layer in self._all for v in layer._trainable_variables}
        return list(found.values())

    def generators(self) -> Iterator[Any]:
        for layer in self._all:
            yield from layer._seed_generators

    def torch_buffers(self) -> Iterator[tuple[str, Any]]:
        """Those of torch's own modules among the layers, each once."""
        seen = set[int]()
        for layer in self._all:
            for module in layer.modules() if isinstance(layer, nn.Module) else ():
                for name, buffer in module._buffers.items():
                    if buffer is not None and id(buffer) not in seen:
                        seen.add(id(buffer))
                        yield f"{layer.path}/{name}", buffer

    def numbers(self) -> list[dict[str, Any]]:
        return [_numbers(layer) for layer in self._all]

    def put_numbers(self, found: list[dict[str, Any]]) -> None:
        for layer, values in zip(self._all, found, strict=True):
            vars(layer).update(values)


def _numbers(layer: Any) -> dict[str, Any]:
    own = {name: value for name, value in vars(layer).items() if not name.startswith("_") and name not in _OF_EVERY_LAYER}
    return {"_trainable": layer._trainable} | {name: value for name, value in own.items() if type(value) in (bool, int, float)}


class Names:
    """Names for the paths of variables: without dots, each once, and none of `taken`."""

    def __init__(self, taken: type) -> None:
        self._taken = taken
        self._given: set[str] = set()

    def __call__(self, path: str) -> str:
        plain = name = path.replace(".", "_")
        count = 1
        while name in self._given or hasattr(self._taken, name):
            count += 1
            name = f"{plain}:{count}"
        self._given.add(name)
        return name
