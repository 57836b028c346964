"""A Keras model on Keras' torch backend as the module that the engine trains.

Keras keeps all variables as torch parameters, those that are not trained too. Here they are what the engine takes them for: weights are
parameters, also frozen ones; what a layer keeps up itself (the statistics of a batch normalization, the state of its random generators) are
buffers, which follow engine 0. The tensors are Keras' own, so whoever holds the model sees what is trained.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import keras
import torch
from keras.src.random.seed_generator import global_seed_generator
from torch import nn

_SEEDS = 1 << 31
# What every layer has; the rest of its numbers are the script's: the rate of a dropout, a counter.
_OF_EVERY_LAYER = frozenset({"training", "built", "autocast", "supports_jit", "compiled", "stop_training", "steps_per_execution"})


class KerasModule(nn.Module):
    """`keras_model` must be built. The names in `state_dict` are the paths of Keras' variables."""

    keras_model: Any

    def __init__(self, keras_model: Any) -> None:
        super().__init__()
        vars(self)["keras_model"] = keras_model  # not as a part: its parameters are registered here
        self.layers = _Layers(keras_model)
        self.inputs: Any = None  # of the last call
        names = _Names()
        weights = self.layers.weights()
        self.variables = [*weights, *(v for v in keras_model.variables if not any(v is w for w in weights))]
        self._follow = [v for v in self.variables[len(weights) :]]
        for v in weights:
            self.register_parameter(names(v.path), v.value)
        self._buffer_names = [names(v.path) for v in self._follow]
        for name, v in zip(self._buffer_names, self._follow, strict=True):
            self._buffers[name] = v.value  # a Parameter, which register_buffer would take for one
        for module in keras_model.modules():  # torch's own modules among the layers
            for name, buffer in module._buffers.items():
                if buffer is not None:
                    self._buffers[names(name)] = buffer

    def forward(self, inputs: Any) -> Any:
        model = self.keras_model
        self.inputs = inputs
        if not torch.compiler.is_compiling():  # an export has nothing to draw
            self._seed_generators()
        return model(inputs, training=self.training) if model._call_has_training_arg else model(inputs)

    def _seed_generators(self) -> None:
        """Keras' random generators start anew from torch's, which is seeded for the part of the batch that is computed."""
        states = [generator.state for generator in self.layers.generators()] + [global_seed_generator().state]
        drawn = torch.randint(_SEEDS, (len(states),)).tolist()
        with torch.no_grad():
            for state, seed in zip(states, drawn, strict=True):
                state.value.copy_(torch.tensor([seed, 0]))

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> KerasModule:
        """To a device, and Keras with it."""
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for name, v in zip(self._buffer_names, self._follow, strict=True):
            v.value.data = self._buffers[name]
            self._buffers[name] = v.value
        device = next((str(v.value.device) for v in self.variables), "cpu")
        keras.device(device).__enter__()  # for the rest of this process: what it computes with is there
        return self

    def get_extra_state(self) -> dict[str, Any]:
        """What layers keep outside of variables."""
        return {"trainable": [v.trainable for v in self.variables], "layers": self.layers.numbers()}

    def set_extra_state(self, state: Any) -> None:
        self.layers.put_numbers(state["layers"])
        for v, flag in zip(self.variables, state["trainable"], strict=True):
            if v.trainable != flag:
                v.trainable = flag


class _Layers:
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

    def numbers(self) -> list[dict[str, Any]]:
        return [_numbers(layer) for layer in self._all]

    def put_numbers(self, found: list[dict[str, Any]]) -> None:
        for layer, values in zip(self._all, found, strict=True):
            vars(layer).update(values)


def _numbers(layer: Any) -> dict[str, Any]:
    own = {name: value for name, value in vars(layer).items() if not name.startswith("_") and name not in _OF_EVERY_LAYER}
    return {"_trainable": layer._trainable} | {name: value for name, value in own.items() if type(value) in (bool, int, float)}


class _Names:
    """Names for the paths of variables: without dots, each once."""

    def __init__(self) -> None:
        self._given: set[str] = set()

    def __call__(self, path: str) -> str:
        plain = name = path.replace(".", "_")
        count = 1
        while name in self._given or hasattr(nn.Module, name):
            count += 1
            name = f"{plain}:{count}"
        self._given.add(name)
        return name
