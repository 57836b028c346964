"""Calls a user's logger callback in the form it was written for.

Three forms exist, told apart by the names of the parameters: (loss, acc, completed_batch, worker) with accuracy in percent;
(metrics, completed_batch, epoch, worker); and (metrics, iteration, epoch, workers). The base class is not needed, nor any method.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

# Set while a driver logger is told what an earlier driver of the run has told its own already: what is appended to files is there.
replaying = False


class Logger:
    """A user's logger callback behind one interface. Errors of the callback pass through."""

    def __init__(self, callback: object) -> None:
        self._train = _Hook(getattr(callback, "log_train_metrics", None))
        self._test = _Hook(getattr(callback, "log_test_metrics", None))
        self._begin, self._end = getattr(callback, "on_train_begin", None), getattr(callback, "on_train_end", None)

    def begin(self) -> None:
        """Calls `on_train_begin`, if the callback has it."""
        if self._begin is not None:
            self._begin()

    def end(self) -> None:
        """Calls `on_train_end`, if the callback has it."""
        if self._end is not None:
            self._end()

    def train(self, metrics: Mapping[str, float], iteration: int, epoch: int, workers: int) -> None:
        """`metrics` with accuracy as a fraction; `epoch` counts from 1."""
        self._train(metrics, iteration, (epoch, workers), workers)

    def test(self, metrics: Mapping[str, float], iteration: int, epoch: int) -> None:
        """`metrics`: means over the test set, accuracy as a fraction; `epoch` counts from 1."""
        self._test(metrics, iteration, (epoch,), 0)


class _Hook:
    def __init__(self, method: Callable[..., Any] | None) -> None:
        self._method = method
        self._first_form, self._takes = False, 0
        if method is not None:
            parameters = list(inspect.signature(method).parameters.values())
            self._first_form = bool(parameters) and parameters[0].name == "loss"
            free = any(p.kind is p.VAR_POSITIONAL for p in parameters)
            self._takes = 99 if free else sum(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in parameters)

    def __call__(self, metrics: Mapping[str, float], iteration: int, rest: tuple[int, ...], worker: int) -> None:
        if self._method is None:
            return
        arguments: tuple[Any, ...] = (dict(metrics), iteration, *rest)
        if self._first_form:
            arguments = (metrics.get("loss", 0.0), 100 * metrics.get("accuracy", 0.0), iteration, worker)
        self._method(*arguments[: self._takes])
