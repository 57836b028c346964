"""A script's model, loss, optimizer and metrics of one framework or another: checked when FabricModel is made, and made into what the
engine trains when its train() is called.
"""

from __future__ import annotations

import contextlib
import os
import random
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import torch
from torch import nn

from training_runtime.elastic.data import batched
from training_runtime.elastic.data.loading import load
from training_runtime.elastic.data.sampler import derive, seed_everything
from training_runtime.elastic.keras import kind
from training_runtime.elastic.keras.kind import Kind
from training_runtime.elastic.training_components import TrainingComponents
from training_runtime.errors import UserError
from training_runtime.fabric import trainable

OLD_KERAS = (
    "the model was made by Keras 2 (tf_keras, or a TensorFlow before 2.16), which is not supported: use Keras 3, as it is installed here, "
    "and leave TF_USE_LEGACY_KERAS out"
)
TORCH_ONLY = "{} is for PyTorch models: leave it out with a Keras model, whose loss and layers do the same in compute_loss and call"


class ModelArguments(Protocol):
    """What FabricModel was given."""

    model: Any
    datasets_function: Callable[[], Any] | None
    loss_function: Any
    optimizer: Any
    metrics: list[Any] | None
    user_callbacks: list[Any]
    fn_step_train: Any
    fn_test: Any
    fn_batch_collate: Callable[[list[Any]], Any] | None
    keras_custom_objects: dict[str, Any] | None


def backend_of(given: ModelArguments) -> Kind:
    """Which it is, in the words of FABRIC_BACKEND, which says so from now on. Raises UserError for what cannot be trained."""
    if kind.is_old_keras(given.model):
        raise UserError(OLD_KERAS)
    found = kind.of(given.model)
    if not callable(given.datasets_function):
        raise UserError(f"datasets_function must be callable, not {type(given.datasets_function).__name__}")
    if found == "pytorch":
        _check_torch(given)
    else:
        _check_keras(given)
    os.environ["FABRIC_BACKEND"] = found
    return found


def _check_torch(given: ModelArguments) -> None:
    if not isinstance(given.model, nn.Module):
        raise UserError(f"model must be a torch.nn.Module or a Keras model, not {type(given.model).__name__}")
    if not isinstance(given.optimizer, torch.optim.Optimizer):
        raise UserError(f"optimizer must be a torch.optim instance, not {type(given.optimizer).__name__}")
    if not callable(given.loss_function):
        raise UserError(f"loss_function must be callable, not {type(given.loss_function).__name__}")
    for metric in given.metrics or ():
        if not callable(metric):
            raise UserError(f"metrics must be functions (outputs, targets) -> number, not {metric!r}")
    if given.keras_custom_objects is not None:
        warnings.warn("keras_custom_objects has no meaning for a PyTorch model and is ignored", stacklevel=4)


def _check_keras(given: ModelArguments) -> None:
    from training_runtime.elastic.keras import making

    for name in ("fn_step_train", "fn_test"):
        if getattr(given, name) is not None:
            raise UserError(TORCH_ONLY.format(name))
    making.check(given.model, given.loss_function, given.optimizer, given.user_callbacks)


def training_components(given: ModelArguments, backend: Kind, *, seed: int, batch_size: int) -> TrainingComponents:
    """What the engine trains, of what FabricModel was given: as it is for torch; of a Keras model a torch module, loss and optimizer that
    stand for it, which takes one batch of `batch_size` samples to build. UserError where it cannot be trained. `seed`: of the datasets
    function's random numbers."""
    if backend == "pytorch":
        trainable.check(given.model, [given.optimizer])
        return TrainingComponents(given.model, given.loss_function, given.optimizer, given.metrics)
    from training_runtime.elastic.keras import making

    return making.training_components(
        given.model,
        given.loss_function,
        given.optimizer,
        given.metrics,
        given.keras_custom_objects or {},
        example=lambda collate: _example(given, seed, batch_size, collate),
    )


def _example(given: ModelArguments, seed: int, batch_size: int, collate: Any) -> Any:
    """Inputs of the first samples, for which the datasets function is called once more than otherwise."""
    assert given.datasets_function is not None
    with _apart():
        seed_everything(derive(seed, 0, 0, 0, "datasets"))
        found = given.datasets_function()
        train = batched.by_sample(found[0] if isinstance(found, (tuple, list)) else found, "train")
        batch = load(train, range(min(batch_size, len(train))), given.fn_batch_collate or collate)
    return batch[0]


@contextlib.contextmanager
def _apart() -> Iterator[None]:
    """What is drawn inside is not drawn from the script's own random numbers."""
    numpy: Any = sys.modules.get("numpy")
    kept = random.getstate(), torch.get_rng_state(), numpy.random.get_state() if numpy else None
    try:
        yield
    finally:
        random.setstate(kept[0])
        torch.set_rng_state(kept[1])
        if numpy:
            numpy.random.set_state(kept[2])
