"""Makes the parts that the engine trains of what a script gives with a Keras model: names or objects of Keras for loss, optimizer and
metrics, as `compile` takes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import torch

from training_runtime.elastic.keras import callbacks as user_callbacks
from training_runtime.elastic.keras.layers import Layers
from training_runtime.elastic.keras.losses import KerasLoss
from training_runtime.elastic.keras.measures import KerasMeasures
from training_runtime.elastic.keras.module import KerasModule
from training_runtime.elastic.keras.optimizer import KerasOptimizer
from training_runtime.elastic.training_components import TrainingComponents
from training_runtime.errors import UserError

OWN_STEP = (
    "the model has a {} of its own, which would not be used: the engine computes the parts of a batch itself. Put what it does into call, "
    "compute_loss or the optimizer, or train a PyTorch model with fn_step_train"
)
NO_BACKEND = (
    "the model was made by Keras on its {} backend; models are trained on torch and tensorflow: set KERAS_BACKEND to torch in the "
    "run's environment variables, or in the script before keras is imported"
)
NO_SCALER = "a loss that is scaled (mixed_float16, loss_scale_factor) is not supported, as steps could be skipped: use mixed_bfloat16"
_STEPS = ("train_step", "test_step")
_BY_SHAPE = ("crossentropy", "ce")  # names of losses that go by the shapes of what they are given


def check(model: Any, loss: Any, optimizer: Any, callbacks: Sequence[Any]) -> None:
    """What can be seen at once. Raises UserError."""
    if keras.backend.backend() not in ("torch", "tensorflow"):
        raise UserError(NO_BACKEND.format(keras.backend.backend()))
    for name in _STEPS:
        if not getattr(type(model), name).__module__.startswith("keras.src."):
            raise UserError(OWN_STEP.format(name))
    if loss is None and not _has_own_loss(model):
        raise UserError(
            "loss_function is missing: give a name such as 'sparse_categorical_crossentropy', a function (y_true, y_pred) or a loss"
        )
    if isinstance(optimizer, torch.optim.Optimizer) or not (isinstance(optimizer, (str, dict)) or hasattr(optimizer, "apply_gradients")):
        raise UserError(f"the optimizer of a Keras model must be a name such as 'adam' or one of keras.optimizers, not {optimizer!r}")
    user_callbacks.check(callbacks)


def training_components(
    model: Any, loss: Any, optimizer: Any, metrics: Sequence[Any] | None, custom: Mapping[str, Any], *, example: Callable[[Any], Any]
) -> TrainingComponents:
    """`example`: inputs of a batch that a function has put together, for a model that does not know yet what it is given. `custom`: the
    script's own classes and functions, by the names that it gives for them."""
    with keras.saving.custom_object_scope(dict(custom)):
        outputs = getattr(model, "outputs", None)
        if any(not layer.built for layer in model._flatten_layers()):
            outputs = build(model, example(_collate()))
        loss, optimizer, metrics = (_named(each, custom) for each in (loss, optimizer, metrics))
        compiled(model, loss, optimizer, metrics)
        if not any(v.trainable for v in Layers(model).weights()):
            raise UserError("the model has nothing to train: it has no weights, or all of its layers have trainable = False")
        if not model.optimizer.built:
            model.optimizer.build([v for v in Layers(model).weights() if v.trainable])
        measures = None if metrics is None else KerasMeasures(metrics, _single(outputs))
        return _on_tensorflow(model, measures) if keras.backend.backend() == "tensorflow" else _on_torch(model, measures)


def _on_torch(model: Any, measures: KerasMeasures | None) -> TrainingComponents:
    module = KerasModule(model)
    return TrainingComponents(
        model=module,
        loss=KerasLoss(module),
        optimizer=KerasOptimizer(model.optimizer, module),
        measures=measures,
        script_objects=(model, model.optimizer),
        files={".keras": model.save},
    )


def _on_tensorflow(model: Any, measures: KerasMeasures | None) -> TrainingComponents:
    from training_runtime.elastic.keras import tensorflow

    module = tensorflow.TensorFlowModule(model)
    return TrainingComponents(
        model=module,
        loss=tensorflow.TensorFlowLoss(module),
        optimizer=tensorflow.TensorFlowOptimizer(model.optimizer, module),
        measures=measures,
        script_objects=(model, model.optimizer),
        sync_script_objects=module.sync_keras_model,
        files={".keras": model.save},
        collate=_collate(),
        no_onnx=tensorflow.NO_ONNX,
    )


def _collate() -> Any:
    """What puts samples together where the script has nothing for that: TensorFlow's tensors are not torch's affair."""
    if keras.backend.backend() != "tensorflow":
        return None
    from training_runtime.elastic.keras import tensorflow

    return tensorflow.collate


def build(model: Any, inputs: Any) -> Any:
    """Have it make its weights. What it gives."""
    with torch.no_grad():
        return model(keras.tree.map_structure(np.asarray, inputs))


def compiled(model: Any, loss: Any, optimizer: Any, metrics: Sequence[Any] | None) -> None:
    try:
        if isinstance(loss, str) and loss.lower() not in _BY_SHAPE:
            keras.losses.get(loss)  # which compile looks for later
        model.compile(optimizer=optimizer, loss=loss, metrics=None if metrics is None else list(metrics), jit_compile=False)
    except (ValueError, TypeError) as error:  # a name that Keras does not know
        raise UserError(f"Keras does not take the optimizer, loss or metrics: {error}") from None
    scaled = isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer)
    if scaled or model.optimizer.loss_scale_factor is not None:
        raise UserError(NO_SCALER)


def _named(given: Any, custom: Mapping[str, Any]) -> Any:
    """With what stands for the names that are the script's own."""

    def resolve_custom(each: Any) -> Any:
        if not isinstance(each, str) or each not in custom:
            return each
        return custom[each]() if isinstance(custom[each], type) else custom[each]

    return keras.tree.map_structure(resolve_custom, given)


def _has_own_loss(model: Any) -> bool:
    return not type(model).compute_loss.__module__.startswith("keras.src.")


def _single(outputs: Any) -> Any:
    """What the model gives, where that is one tensor."""
    if isinstance(outputs, (list, tuple)):
        return outputs[0] if len(outputs) == 1 else None
    return outputs if hasattr(outputs, "shape") else None
