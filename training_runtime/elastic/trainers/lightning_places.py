"""Where a training of Lightning's writes: one that goes on does so in the same places.

Lightning counts them anew in each process (`lightning_logs/version_1`): the figures of one training lay in several folders, and a
`ModelCheckpoint` that finds itself in another one forgets which models were the best. What a script has named is left as it is, but for
`CSVLogger`'s table, which Lightning would begin anew.
"""

from __future__ import annotations

import csv
import io
import sys
from pathlib import Path
from typing import Any

from training_runtime.elastic.state import durable
from training_runtime.elastic.trainers.continuing import say

COUNTED = ("TensorBoardLogger", "CSVLogger")  # that number their folders
TABLE, CHECKPOINTS = "CSVLogger", "ModelCheckpoint"


def of(trainer: Any) -> dict[str, Any]:
    """Where it writes, as JSON: the version of each logger, the folder of each callback that saves, and the step that loggers are at.
    Nothing of a Lightning that has no such step."""
    step = getattr(trainer.fit_loop.epoch_loop, "_batches_that_stepped", None)
    if not isinstance(step, int) or not hasattr(trainer, "loggers"):
        return {}
    return {
        "versions": [_counted(each) for each in trainer.loggers],
        "folders": [str(each.dirpath or "") for each in _saving(trainer)],
        "logged": step,
    }


def go_on(trainer: Any, places: dict[str, Any]) -> None:
    """Before the training: in these, as far as its loggers and callbacks are the ones that there were."""
    for callback, folder in zip(_saving(trainer), places.get("folders", ()), strict=False):
        callback.dirpath = callback.dirpath or folder or None
    for logger, version in zip(trainer.loggers, places.get("versions", ()), strict=False):
        if version is not None and _is(logger, *COUNTED) and logger._version is None:
            logger._version = version
        if _is(logger, TABLE) and logger._experiment is None:
            try:
                _go_on_with_table(logger, places["logged"])
            except Exception as error:  # of a table that somebody has changed, say
                say(f"The table in {logger.log_dir} could not be gone on with: {type(error).__name__}: {error}")


def _saving(trainer: Any) -> list[Any]:
    return [each for each in trainer.callbacks if _is(each, CHECKPOINTS)]


def _counted(logger: Any) -> int | str | None:
    version = logger.version if _is(logger, *COUNTED) else None
    return version if isinstance(version, int | str) else None


def _is(one: Any, *names: str) -> bool:
    return any(kind.__name__ in names for kind in type(one).__mro__)


def _go_on_with_table(logger: Any, step: int) -> None:
    """Its rows up to this step stay, and its columns."""
    path = Path(logger.log_dir, "metrics.csv")
    kind = next(each for each in type(logger).__mro__ if each.__name__ == TABLE)
    writer: Any = getattr(sys.modules[kind.__module__], "ExperimentWriter", None)
    if not path.is_file() or not hasattr(writer, "_record_new_keys"):  # of an older Lightning, which has all rows in memory
        return
    table = csv.DictReader(io.StringIO(path.read_text()))
    rows, columns = list(table), list(table.fieldnames or ())
    deletes, writer._check_log_dir_exists = writer._check_log_dir_exists, _leave
    try:
        began = logger.experiment
    finally:
        writer._check_log_dir_exists = deletes
    if not hasattr(began, "metrics_keys"):  # of another worker, which writes nothing
        return
    began.metrics_keys = columns
    kept = [row for row in rows if not (row.get("step") or "").isdecimal() or int(row["step"]) <= step]
    if len(kept) < len(rows):
        text = io.StringIO(newline="")
        out = csv.DictWriter(text, columns)
        out.writeheader()
        out.writerows(kept)
        durable.write(path, lambda file: file.write(text.getvalue().encode()))


def _leave(_writer: Any) -> None:
    pass
