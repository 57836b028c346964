"""ELog: writes readable train and test lines to `stdout` in LOG_DIR, in the form that the original's samples write and its notebooks
parse.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any, TextIO

from training_runtime.fabric import dispatch


class ELog:
    """`log = ELog.open(); log.recordTrain("Train", 4, 1, 0.5, 0.9, worker=0); log.close()`"""

    def __init__(self, sub_id: str | None, file: TextIO) -> None:
        self._sub_id, self._file = sub_id, file

    @staticmethod
    def open(subId: str | None = None, f: TextIO | None = None) -> ELog:
        """Appends to `f`, or to `stdout` in LOG_DIR (in /tmp without it), whose folder is made. `subId` is taken for the sake of scripts
        and not written."""
        if f is None:
            path = Path(os.environ.get("LOG_DIR", "/tmp")) / "stdout"  # noqa: S108
            path.parent.mkdir(parents=True, exist_ok=True)
            f = open(path, "a")  # noqa: SIM115 - closed by close()
        return ELog(subId, f)

    def __enter__(self) -> ELog:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the file, also one that `open` was given."""
        self._file.close()

    def recordText(self, text: str) -> None:
        """A line with the local time before it, written at once. Nothing while a driver that took the run up tells a logger what an earlier
        one has logged already."""
        if dispatch.replaying:
            return
        self._file.write(f"[{time.strftime('%Y-%m-%d %H:%M:%S')}] {text}\n")
        self._file.flush()

    def recordTrain(self, title: str, iteration: int, global_steps: int, loss: Any, accuracy: Any, worker: int = 0) -> None:  # noqa: ARG002 - samples pass it
        """A line of a training step. `loss` and `accuracy` are anything that float() takes; `worker` is not written."""
        shown = f"Iteration: {iteration},\tLoss: {float(loss):.5f},\tAccuracy: {float(accuracy):.5f}"
        self.recordText(f"{title},\tTimestamp: {_now_ms()},\tGlobal steps: {global_steps},\t{shown}")

    def recordTest(self, title: str, loss: Any, accuracy: Any, worker: int = 0) -> None:  # noqa: ARG002 - samples pass it
        """A line of a validation; as `recordTrain`."""
        self.recordText(f"{title},\tTimestamp: {_now_ms()},\tLoss: {float(loss):.5f},\tAccuracy: {float(accuracy):.5f}")


def _now_ms() -> int:
    return int(time.time() * 1000)
