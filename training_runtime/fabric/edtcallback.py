"""EDTLoggerCallback: a driver logger that writes what samples of the original have theirs write, for a script that brings none along: lines
of ELog and EMetrics in LOG_DIR, and the training losses as `val_dict_list.json` in RESULT_DIR.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from training_runtime.fabric.callbacks import LoggerCallback
from training_runtime.fabric.elog import ELog
from training_runtime.fabric.emetrics import EMetrics


class EDTLoggerCallback(LoggerCallback):
    """`FabricModel(model, get_datasets, loss, optimizer, driver_logger=EDTLoggerCallback())`"""

    def __init__(self) -> None:
        self._steps = 0
        self._epochs: dict[int, float] = {}

    def log_train_metrics(self, metrics: dict[str, float], iteration: int, epoch: int, workers: int) -> None:
        """A line each in ELog's and EMetrics' files. `metrics` has "loss", and "accuracy" as a fraction where it is measured."""
        self._steps += 1
        self._epochs[epoch] = metrics["loss"]
        with ELog.open() as log:
            log.recordTrain("Train", iteration, self._steps, metrics["loss"], metrics.get("accuracy", 0.0), workers)
        with EMetrics.open() as file:
            file.record(EMetrics.TRAIN_GROUP, iteration, metrics)

    def log_test_metrics(self, metrics: dict[str, float], iteration: int, epoch: int) -> None:  # noqa: ARG002 - called with it
        """The same of a validation. EMetrics' line has `iteration`, or the count of logged steps where that is 0."""
        with ELog.open() as log:
            log.recordTest("Test", metrics["loss"], metrics.get("accuracy", 0.0))
        with EMetrics.open() as file:
            file.record(EMetrics.TEST_GROUP, iteration or self._steps, metrics)

    def on_train_end(self) -> None:
        """Writes `val_dict_list.json` in RESULT_DIR: [{"steps": epoch, "loss": the last mean training loss of that epoch}, ...]. KeyError
        without RESULT_DIR."""
        found = [{"steps": epoch, "loss": loss} for epoch, loss in sorted(self._epochs.items())]
        Path(os.environ["RESULT_DIR"], "val_dict_list.json").write_text(json.dumps(found))
