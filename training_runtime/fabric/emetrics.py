"""EMetrics: writes `evaluation-metrics.txt` in LOG_DIR, one JSON object a line, in the form that notebooks and clients of the
original read.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from training_runtime.fabric import dispatch


class EMetrics:
    """`with EMetrics.open() as m: m.record(EMetrics.TRAIN_GROUP, 12, {"loss": 0.5})`"""

    TEST_GROUP = "test"
    TRAIN_GROUP = "train"

    def __init__(self, sub_id: str | None, path: Path) -> None:
        self._sub_id, self._index = sub_id or os.environ.get("SUBID"), 0
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = open(path, "a")  # noqa: SIM115 - closed by close()

    @staticmethod
    def open(subId: str | None = None) -> EMetrics:
        """Appends to `evaluation-metrics.txt` in LOG_DIR (in /tmp without it). `subId`, else the variable SUBID, is in the "meta" of each
        line."""
        return EMetrics(subId, Path(os.environ.get("LOG_DIR", "/tmp")) / "evaluation-metrics.txt")  # noqa: S108

    def __enter__(self) -> EMetrics:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the file; nothing can be recorded any more."""
        self._file.close()

    def record(self, group: str, iteration: int, values: dict[str, Any]) -> None:
        """Append `values` of `group` at `iteration`."""
        if dispatch.replaying:
            return
        self._index += 1
        now_ms = int(time.time() * 1000)
        meta: dict[str, Any] = {"training_id": os.environ.get("TRAINING_ID", ""), "time": now_ms, "rindex": self._index}
        if self._sub_id:
            meta["subid"] = self._sub_id
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now_ms / 1000)) + f".{now_ms % 1000:03d}Z"
        record = {
            "meta": meta,
            "grouplabel": group,
            "etimes": {"iteration": _typed(iteration), "time_stamp": {"type": 4, "value": stamp}},
            "values": {name: _typed(value) for name, value in values.items()},
        }
        self._file.write(json.dumps(record) + "\n")
        self._file.flush()


def _typed(value: Any) -> dict[str, Any]:
    """1 text, 2 whole number, 3 number."""
    kind = 2 if isinstance(value, int) else 3 if isinstance(value, float) else 1
    return {"type": kind, "value": str(value)}
