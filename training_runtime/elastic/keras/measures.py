"""Keras' metrics, whose variables count. Keras adds them up where several devices compute parts of a batch; so does the engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import keras
import numpy as np
from keras import ops

from training_runtime.errors import UserError

MOST = 4000  # numbers of all metrics together; of each step they are kept until the driver has read them
_ACCURACY = ("accuracy", "acc")


class KerasMeasures:
    """Strings, functions (y_true, y_pred) and instances of keras.metrics.Metric, as in `compile`. `output`: what the model gives, of which
    shape and dtype are looked at; None where it gives several."""

    def __init__(self, metrics: Sequence[Any], output: Any) -> None:
        self._all = [_made(each) for each in metrics]
        self.names = tuple(str(each.name) for each in self._all)
        for each in self._all:
            _build(each, output)
        self._shapes = [[(tuple(v.shape), str(v.dtype)) for v in each.variables] for each in self._all]
        self.width = sum(prod(shape) for shapes in self._shapes for shape, _ in shapes)
        if self.width > MOST:
            raise UserError(
                f"the metrics count {self.width} numbers a step, at most {MOST} are possible: leave out those with many classes"
            )
        self.values([0.0] * self.width)  # says what is wrong with one before anything is trained

    def sums(self, outputs: Any, targets: Any) -> list[float]:
        found: list[float] = []
        for metric, shapes in zip(self._all, self._shapes, strict=True):
            zeros = [ops.zeros(shape, dtype) for shape, dtype in shapes]
            for value in metric.stateless_update_state(zeros, targets, outputs):
                found += np.asarray(ops.convert_to_numpy(value), dtype=np.float64).reshape(-1).tolist()
        return found

    def values(self, sums: Sequence[float]) -> list[float]:
        found, at = [], 0
        for metric, shapes in zip(self._all, self._shapes, strict=True):
            variables = []
            for shape, dtype in shapes:
                part = np.asarray(sums[at : at + prod(shape)], dtype=np.float64).reshape(shape)
                variables.append(ops.convert_to_tensor(part, dtype=dtype))
                at += prod(shape)
            found.append(_number(metric, metric.stateless_result(variables)))
        return found


class _Accuracy(keras.metrics.Metric):  # type: ignore[misc]
    """The one that goes with the shapes of outputs and targets, as in `compile`."""

    def __init__(self, name: str) -> None:
        super().__init__(name=name)
        self.total = self.add_variable((), "zeros", name="total")
        self.count = self.add_variable((), "zeros", name="count")

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:  # noqa: ARG002
        right = ops.cast(_matching(y_true, y_pred), self.dtype)
        self.total.assign_add(ops.sum(right))
        self.count.assign_add(ops.cast(ops.size(right), self.dtype))

    def result(self) -> Any:
        return ops.divide_no_nan(self.total, self.count)


def _matching(y_true: Any, y_pred: Any) -> Any:
    """What is right of the outputs."""
    shape, true_shape = tuple(y_pred.shape), tuple(y_true.shape)
    if shape[-1] == 1:
        true = y_true if len(true_shape) == len(shape) else ops.expand_dims(y_true, -1)
        return keras.metrics.binary_accuracy(true, y_pred)
    if len(true_shape) < len(shape) or true_shape[-1] == 1:
        return keras.metrics.sparse_categorical_accuracy(y_true, y_pred)
    return keras.metrics.categorical_accuracy(y_true, y_pred)


def _made(metric: Any) -> Any:
    if isinstance(metric, str) and metric.lower() in _ACCURACY:
        return _Accuracy(metric)
    if isinstance(metric, Mapping):
        raise UserError("metrics must be a list: metrics for each output by name are not supported; give functions of (y_true, y_pred)")
    try:
        found = keras.metrics.get(metric)
    except (ValueError, TypeError) as error:
        raise UserError(f"metrics: {error}") from None
    if isinstance(found, keras.metrics.Metric):
        return found
    if not callable(found):
        raise UserError(f"metrics must be names, functions (y_true, y_pred) or instances of keras.metrics.Metric, not {metric!r}")
    name = metric if isinstance(metric, str) else getattr(found, "__name__", type(found).__name__)
    return keras.metrics.MeanMetricWrapper(found, name=name)


def _build(metric: Any, output: Any) -> None:
    """Some make their variables for the first outputs that they see: for one sample of zeros. Raises UserError for one that is not made of
    sums."""
    if output is not None and (not metric.variables or getattr(metric, "_built", True) is False):
        shape = tuple(output.shape[1:])
        predicted = ops.zeros((1, *shape), output.dtype)
        for targets in (predicted, ops.zeros((1,), "int32")):
            try:
                metric.update_state(targets, predicted)
            except Exception:  # noqa: S112 - it wants others
                continue
            break
        metric.reset_state()
    if not metric.variables or getattr(metric, "_built", True) is False:
        raise UserError(f"the metric {metric.name} keeps nothing in variables before it sees data: make them in its __init__")
    start = metric.stateless_reset_state()
    if any(v.aggregation != "sum" for v in metric.variables) or any(np.any(ops.convert_to_numpy(v)) for v in start):
        raise UserError(
            f"the metric {metric.name} cannot be added up over the parts of a batch: its variables must be zero after reset_state, and its "
            "update_state must add to them"
        )


def _number(metric: Any, result: Any) -> float:
    if isinstance(result, Mapping) or np.size(ops.convert_to_numpy(result)) != 1:
        raise UserError(f"the metric {metric.name} gives several numbers: give one that gives a single number, as with average='macro'")
    return float(ops.convert_to_numpy(result).reshape(()))
