"""What a trial's metric came to: the best value of it in RESULT_DIR/val_dict_list.json, which its script writes: a list with an object for
each validation, as WMLA has it."""

from __future__ import annotations

import json
import math

from experiments.files import runfiles
from experiments.models import TrainingRun

FILE = "val_dict_list.json"
MOST_BYTES = 1 << 20  # it is read here, in no box: some ten thousand validations


def result(run: TrainingRun, metric: str, *, maximize: bool) -> float | None:
    """None where there is no such file, or no finite number of the metric in it."""
    found, size = runfiles.read(run, FILE, begin=0, limit_bytes=MOST_BYTES)
    try:
        rows = json.loads(found) if size <= MOST_BYTES else []
    except (ValueError, RecursionError):
        return None
    values = [each.get(metric) for each in rows if isinstance(each, dict)] if isinstance(rows, list) else []
    numbers = [float(each) for each in values if isinstance(each, int | float) and not isinstance(each, bool) and math.isfinite(each)]
    return (max if maximize else min)(numbers, default=None)
