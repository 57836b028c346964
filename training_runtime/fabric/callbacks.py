"""Base classes for a script's callbacks. None is needed: any object with some of the methods will do."""

from __future__ import annotations

from typing import Any


class LoggerCallback:
    """Told about metrics, on the driver (averages of the epoch so far) or on a worker (those of its own batches)."""

    def log_train_metrics(self, metrics: dict[str, float], iteration: int, epoch: int, workers: int) -> None:
        """After a step. `metrics`: "loss", "accuracy" as a fraction and the script's own, by name. `iteration`: batches so far, of all
        engines on the driver, of its own on a worker. `epoch` counts from 1; `workers`: how many computed the step. What it raises is a
        warning of the run."""

    def log_test_metrics(self, metrics: dict[str, float], iteration: int, epoch: int) -> None:
        """On the driver after a validation, with the means over the test set and `iteration` 0; on a worker after each test batch that it
        has computed, with that batch's figures and the count of such batches."""

    def on_train_begin(self) -> None:
        """Once in each process, before anything is logged."""

    def on_train_end(self) -> None:
        """Once in each process, after all is logged; on the driver not where the training has failed."""


class Callback:
    """Runs on every worker alike. `params` holds 'epochs' and 'optimizer' (the one that really steps), `model` the worker's model. Where
    one sets `stop_training` to True the training ends with the epoch: all workers alike."""

    params: dict[str, Any] | None = None
    model: Any = None
    stop_training: bool = False

    def on_train_begin(self) -> None:
        """Before this worker's first step, with `params` and `model` set; also in a worker that joins later, before it takes the others'
        state. What a hook raises fails the run."""

    def on_train_end(self) -> None:
        """When this worker is done with the training. Only the first worker finds the final model written."""

    def on_epoch_begin(self, epoch: int) -> None:
        """Before the first step of an epoch. `epoch` counts from 0. It may change the optimizer, as schedules do: all workers alike."""

    def on_epoch_end(self, epoch: int, save_model: bool = False) -> None:
        """After the validation and the files of an epoch, which counts from 0. `save_model` is True on one worker: what writes files should
        do so there."""
