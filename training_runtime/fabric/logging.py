"""Two lines that give a script charts: `import edt` and `edt.log(loss=0.3, step=10)`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from training_runtime.fabric.emetrics import EMetrics

_steps: dict[str, int] = {}
_lock = threading.Lock()
_take: Callable[[str, int | None, Mapping[str, float]], None] | None = None


def send_to(take: Callable[[str, int | None, Mapping[str, float]], None]) -> None:
    """From now on `take(group, step, figures)` has what is logged in this process: a worker that runs the body of a loop."""
    global _take
    _take = take


def log(values: Mapping[str, Any] | None = None, /, *, step: int | None = None, group: str = "train", **more: Any) -> None:
    """Figures of one step, named by keywords or in a mapping; tensors of one number are taken too.

    `step`: counted from 1 by the calls of the group where it is not said; in the body of `edt.elastic` it is the step's number, and the
    figures are recorded once, although each worker logs them. `group`: "train", or anything else for a test. Raises TypeError or
    ValueError where a figure is no number.
    """
    figures = {str(name): float(value) for name, value in {**(values or {}), **more}.items()}
    if _take is not None:
        return _take(group, step, figures)
    with _lock:
        _steps[group] = int(step) if step is not None else _steps.get(group, 0) + 1
        with EMetrics.open() as file:
            file.record(group, _steps[group], figures)
    return None
