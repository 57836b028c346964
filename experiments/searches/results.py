"""What a trial's metric came to: the best value of its curve; or, for a search by WMLA's interface, of RESULT_DIR/val_dict_list.json, which
its script writes: a list with an object for each validation."""

from __future__ import annotations

import json
import math

from experiments.files import runfiles
from experiments.models import MetricSeries, TrainingRun
from experiments.searches.wishes import Wishes

FILE = "val_dict_list.json"
MOST_BYTES = 1 << 20  # it is read here, in no box: some ten thousand validations
NOT_IN_FILE = "None of its trials wrote a finite {0} to RESULT_DIR/val_dict_list.json."
NO_CURVE = "None of its trials has a curve {0} with a finite value; the last one has {1}."
NO_CURVES = "None of its trials has a curve {0} with a finite value: the last one has no curves at all."
MOST_NAMED = 8


def result(run: TrainingRun, wanted: Wishes) -> float | None:
    """None where it came to none."""
    return _of_curve(run, wanted) if wanted.from_curves else _of_file(run, wanted)


def why_none(last: TrainingRun, wanted: Wishes) -> str:
    """What to say where no trial came to a result. `last`: the run of the last one."""
    if not wanted.from_curves:
        return NOT_IN_FILE.format(wanted.metric)
    there = [f"{group} {name}" for group, name in MetricSeries.objects.filter(run=last).values_list("group", "name")[:MOST_NAMED]]
    return NO_CURVE.format(wanted.metric, ", ".join(there)) if there else NO_CURVES.format(wanted.metric)


def _of_curve(run: TrainingRun, wanted: Wishes) -> float | None:
    group, _, name = wanted.metric.partition(" ")
    best = "greatest" if wanted.maximize else "least"
    return MetricSeries.objects.filter(run=run, group=group, name=name).values_list(best, flat=True).first()


def _of_file(run: TrainingRun, wanted: Wishes) -> float | None:
    found, size = runfiles.read(run, FILE, begin=0, limit_bytes=MOST_BYTES)
    try:
        rows = json.loads(found) if size <= MOST_BYTES else []
    except (ValueError, RecursionError):
        return None
    values = [each.get(wanted.metric) for each in rows if isinstance(each, dict)] if isinstance(rows, list) else []
    numbers = [float(each) for each in values if isinstance(each, int | float) and not isinstance(each, bool) and math.isfinite(each)]
    return (max if wanted.maximize else min)(numbers, default=None)
