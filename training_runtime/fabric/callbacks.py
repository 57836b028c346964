"""Base classes for a script's callbacks. None is needed: any object with some of the methods will do."""

from __future__ import annotations

from typing import Any


class LoggerCallback:
    """Told about metrics, on the driver (averages of the epoch so far) or on a worker (those of its own batches)."""

    def log_train_metrics(self, metrics: dict[str, float], iteration: int, epoch: int, workers: int) -> None:
        pass

    def log_test_metrics(self, metrics: dict[str, float], iteration: int, epoch: int) -> None:
        pass

    def on_train_begin(self) -> None:
        pass

    def on_train_end(self) -> None:
        pass


class Callback:
    """Runs on every worker alike. `params` holds 'epochs' and 'optimizer' (the one that really steps), `model` the worker's model."""

    params: dict[str, Any] | None = None
    model: Any = None

    def on_train_begin(self) -> None:
        pass

    def on_train_end(self) -> None:
        pass

    def on_epoch_begin(self, epoch: int) -> None:
        pass

    def on_epoch_end(self, epoch: int, save_model: bool = False) -> None:
        pass
