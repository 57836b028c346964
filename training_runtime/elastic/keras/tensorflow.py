"""A model of Keras' TensorFlow backend as the module and the optimizer that the engine trains with.

TensorFlow has memory of its own, so torch's tensors are copies of its variables. The engine changes its copies (a state that was handed
over, buffers that are rewound): they are written to the variables before anything is computed. TensorFlow changes its variables (a step of
the optimizer, the statistics of a layer, what a callback does): they are read afterwards. Gradients come of a GradientTape, one for each
part of a batch. Computes on the processor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import tensorflow as tf
import torch
from keras import tree
from torch import nn
from torch.utils.data import default_collate

from training_runtime.elastic.keras import seeding
from training_runtime.elastic.keras.module import KerasModule
from training_runtime.elastic.keras.optimizer import BoundState, KerasOptimizer

NO_ONNX = "models of TensorFlow are not exported here: load the .keras file with KERAS_BACKEND=torch and call its export()"
_SEEDS = 1 << 31


class TensorFlowModule(KerasModule):
    """`outputs` and `tape` are those of the last call."""

    def __init__(self, keras_model: Any) -> None:
        tf.config.experimental.enable_op_determinism()
        seeding.watch()
        super().__init__(keras_model)
        self.outputs: Any = None
        self.tape: Any = None
        self._copies = _Copies([*self.weights, *self.kept_up], [*self.parameters(), *self.buffers()])
        self.read()

    def _parameter(self, variable: Any) -> nn.Parameter:
        return nn.Parameter(_tensor(variable), requires_grad=bool(variable.trainable))

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> TensorFlowModule:  # noqa: ARG002 - as torch has it
        """It stays where it is."""
        return self

    def write(self) -> None:
        """What has changed in torch's tensors is written to the variables."""
        self._copies.write()

    def read(self, *, weights: bool = True) -> None:
        """What the variables hold is read into torch's tensors."""
        self._copies.read(0 if weights else len(self.weights))
        for v, p in zip(self.weights, self.parameters(), strict=True):
            p.requires_grad_(bool(v.trainable))

    @contextmanager
    def sync_keras_model(self) -> Iterator[None]:
        """Around what the script does with the Keras model."""
        self.write()
        yield
        self.read()

    def forward(self, inputs: Any) -> Any:
        self.write()
        self.inputs = tree.map_structure(_array, inputs)
        self.seed_generators()
        seeding.seed(int(torch.randint(_SEEDS, ())))
        if not torch.is_grad_enabled():
            self.outputs = self.call(self.inputs)
        else:
            with tf.GradientTape() as self.tape:
                self.outputs = self.call(self.inputs)
        if self.training:
            self.read(weights=False)
        return tree.map_structure(_tensor, self.outputs)

    def load_state_dict(self, *args: Any, **kwargs: Any) -> Any:
        found = super().load_state_dict(*args, **kwargs)
        self.write()
        return found


class _Copies:
    """Torch's tensors of TensorFlow's variables, and how often each has been changed. That concerns this process alone: numbers that the
    module has itself would go to others."""

    def __init__(self, variables: Sequence[Any], tensors: Sequence[torch.Tensor]) -> None:
        self._pairs = list(zip(variables, tensors, strict=True))
        self._versions = [-1] * len(self._pairs)

    def write(self) -> None:
        for i, (v, t) in enumerate(self._pairs):
            if t._version != self._versions[i]:
                v.assign(t.detach().numpy())
                self._versions[i] = t._version

    @torch.no_grad()
    def read(self, first: int) -> None:
        for i, (v, t) in enumerate(self._pairs[first:], first):
            t.copy_(_tensor(v))
            self._versions[i] = t._version


class TensorFlowLoss:
    """Of the outputs that the module has just given; its backward pass hands over what the tape says."""

    __slots__ = ("__name__", "_module")

    def __init__(self, module: TensorFlowModule) -> None:
        self._module, self.__name__ = module, "loss"

    def __call__(self, _outputs: Any, targets: Any) -> torch.Tensor:
        module = self._module
        model, given = module.keras_model, {"x": module.inputs, "y": tree.map_structure(_array, targets), "y_pred": module.outputs}
        if not torch.is_grad_enabled():
            return _tensor(model.compute_loss(**given))
        trained = [(v, p) for v, p in zip(module.weights, module.parameters(), strict=True) if v.trainable]
        with module.tape:
            loss = model.compute_loss(**given)
        grads = module.tape.gradient(loss, [v.value for v, _ in trained])
        module.tape = None
        used = [(_tensor(tf.convert_to_tensor(grad)), p) for grad, (_, p) in zip(grads, trained, strict=True) if grad is not None]
        handed: torch.Tensor = _HandOver.apply(  # type: ignore[no-untyped-call]
            _tensor(loss), [grad for grad, _ in used], *(p for _, p in used)
        )
        return handed


class _HandOver(torch.autograd.Function):
    """The loss, whose gradients are known already."""

    @staticmethod
    def forward(ctx: Any, loss: torch.Tensor, grads: Sequence[torch.Tensor], *_parameters: torch.Tensor) -> torch.Tensor:
        ctx.grads = grads
        return loss

    @staticmethod
    def backward(ctx: Any, scale: torch.Tensor) -> Any:
        return (None, None, *(grad * scale for grad in ctx.grads))


class TensorFlowOptimizer(KerasOptimizer):
    __slots__ = ("_module",)

    def __init__(self, keras_optimizer: Any, module: TensorFlowModule) -> None:
        super().__init__(keras_optimizer, module)
        self._module = module

    def _bound(self, keras_optimizer: Any) -> BoundState:
        return BoundState(
            self._parameters[0], keras_optimizer.variables, read=_tensor, write=lambda v, t: v.assign(t.detach().cpu().numpy())
        )

    def apply(self, grads: Sequence[torch.Tensor | None]) -> None:
        self._module.write()
        self.keras_optimizer.apply([None if grad is None else tf.convert_to_tensor(grad.numpy()) for grad in grads], self._trained)
        self._module.read()


def collate(samples: list[Any]) -> Any:
    """As torch does it, where samples may hold TensorFlow's tensors."""
    return default_collate([tree.map_structure(lambda leaf: leaf.numpy() if tf.is_tensor(leaf) else leaf, sample) for sample in samples])


def _tensor(value: Any) -> torch.Tensor:
    """A copy."""
    found = np.array(value.numpy() if hasattr(value, "numpy") else value)
    return torch.from_numpy(found.astype(np.int64) if found.dtype == np.uint32 else found)


def _array(value: Any) -> Any:
    return tf.convert_to_tensor(value.numpy() if isinstance(value, torch.Tensor) else value)
