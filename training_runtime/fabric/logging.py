"""Two lines that give a script charts: `import edt` and `edt.log(loss=0.3, step=10)`."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from training_runtime.fabric.emetrics import EMetrics

_steps: dict[str, int] = {}
_lock = threading.Lock()


def log(values: Mapping[str, Any] | None = None, /, *, step: int | None = None, group: str = "train", **more: Any) -> None:
    """Figures of one step, named by keywords or in a mapping; tensors of one number are taken too.

    `step`: counted from 1 by the calls of the group where it is not said. `group`: "train", or anything else for a test. Raises
    TypeError or ValueError where a figure is no number.
    """
    figures = {str(name): float(value) for name, value in {**(values or {}), **more}.items()}
    with _lock:
        _steps[group] = int(step) if step is not None else _steps.get(group, 0) + 1
        with EMetrics.open() as file:
            file.record(group, _steps[group], figures)
