"""A Keras model as the module that the engine trains.

Weights are parameters, also frozen ones; what a layer keeps up itself (the statistics of a batch normalization, the state of its random
generators) are buffers, which follow engine 0. On Keras' torch backend the tensors are Keras' own, so whoever holds the model sees what is
trained; TensorFlow's are copied (see `tensorflow`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import torch
from keras.src.random.seed_generator import global_seed_generator
from torch import nn

from training_runtime.elastic.keras.layers import Layers, Names
from training_runtime.errors import UserError

_SEEDS = 1 << 31
STOPS = "stop_training was set, which ends nothing here: the number of epochs is fixed; leave it out, and stop the run by hand instead"
MORE = (
    "the model got other variables while it was training, which a worker that joins could not know: make all of them when its layers are "
    "built, and call each layer in the first batch"
)


class KerasModule(nn.Module):
    """`keras_model` must be built. The names in `state_dict` are the paths of Keras' variables."""

    keras_model: Any

    def __init__(self, keras_model: Any) -> None:
        super().__init__()
        vars(self)["keras_model"] = keras_model  # not as a part: its parameters are registered here
        self.layers = Layers(keras_model)
        self.inputs: Any = None  # of the last call
        self._count = len(keras_model.variables)
        names = Names(nn.Module)
        self.weights = self.layers.weights()
        self.kept_up = [v for v in keras_model.variables if not any(v is w for w in self.weights)]
        for v in self.weights:
            self.register_parameter(names(v.path), self._parameter(v))
        for v in self.kept_up:
            self._buffers[names(v.path)] = self._parameter(v)  # which register_buffer would take for a parameter
        for name, buffer in self.layers.torch_buffers():
            self._buffers[names(name)] = buffer

    def _parameter(self, variable: Any) -> nn.Parameter:
        """The tensor that stands for a variable."""
        found: nn.Parameter = variable.value
        return found

    def forward(self, inputs: Any) -> Any:
        self.inputs = inputs
        if not torch.compiler.is_compiling():  # an export has nothing to draw
            self.seed_generators()
        return self.call(inputs)

    def call(self, inputs: Any) -> Any:
        model = self.keras_model
        return model(inputs, training=self.training) if model._call_has_training_arg else model(inputs)

    def seed_generators(self) -> None:
        """Keras' random generators start anew from torch's, which is seeded for the part of the batch that is computed."""
        states = [generator.state for generator in self.layers.generators()] + [global_seed_generator().state]
        for state, seed in zip(states, torch.randint(_SEEDS, (len(states),)).tolist(), strict=True):
            state.assign([seed, 0])

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> KerasModule:
        """To a device, and Keras with it."""
        own = dict(self.named_buffers())
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for name, buffer in own.items():  # torch has put others in their place
            buffer.data = self.get_buffer(name)
            self._buffers[name] = buffer
        keras.device(str(self.weights[0].value.device)).__enter__()  # for the rest of this process: what it computes with is there
        return self

    def train(self, mode: bool = True) -> KerasModule:
        if len(self.keras_model.variables) != self._count:
            raise UserError(MORE)
        if getattr(self.keras_model, "stop_training", False):
            raise UserError(STOPS)
        super().train(mode)
        return self

    def get_extra_state(self) -> dict[str, Any]:
        """What layers keep outside of variables."""
        return {"trainable": [v.trainable for v in self.weights], "layers": self.layers.numbers()}

    def set_extra_state(self, state: Any) -> None:
        self.layers.put_numbers(state["layers"])
        for v, flag in zip(self.weights, state["trainable"], strict=True):
            if v.trainable != flag:
                v.trainable = flag
