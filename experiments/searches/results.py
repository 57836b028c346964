"""What a trial's metric came to: the best value of its curve; or, for a search by WMLA's interface, of RESULT_DIR/val_dict_list.json, which
its script writes: a list with an object for each validation."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

from django.db.models import Count, Max, Min

from experiments.files import runfiles
from experiments.models import Metric, MetricSeries, SearchTrial, TrainingRun
from experiments.searches import choosing, falling_behind
from experiments.searches.curve_names import curve_of
from experiments.searches.falling_behind import Course, Epochs
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


def best(trials: Sequence[SearchTrial], wanted: Wishes) -> SearchTrial | None:
    """None while none has come to a result."""
    place = choosing.best(wanted, [choosing.Tried(each.values, each.settled, each.result) for each in trials])
    return None if place is None else trials[place]


def curve(run: TrainingRun, wanted: Wishes) -> MetricSeries | None:
    """The one that is meant, if the run has it."""
    there = {(each.group, each.name): each for each in MetricSeries.objects.filter(run=run)}
    found = curve_of(wanted.metric, there)
    return there[found] if found else None


def course(run: TrainingRun, wanted: Wishes, *, by_epoch: bool | None = None) -> Course:
    """How the run has come to what it has, so far."""
    points = Metric.objects.filter(series=curve(run, wanted), value__isnull=False)
    rows = points.values("epoch").annotate(best=(Max if wanted.maximize else Min)("value"), count=Count("pk")).order_by("epoch")
    epochs = list(rows.values_list("best", "count")[: falling_behind.MOST_POINTS])
    first = [value for value in points.order_by("step").values_list("value", flat=True)[: falling_behind.MOST_POINTS] if value is not None]
    found = Epochs([best for best, _ in epochs], max((count for _, count in epochs), default=0), first)
    return falling_behind.course(found, maximize=wanted.maximize, by_epoch=by_epoch, has_ended=not run.is_live())


def why_none(last: TrainingRun, wanted: Wishes) -> str:
    """What to say where no trial came to a result. `last`: the run of the last one."""
    if not wanted.from_curves:
        return NOT_IN_FILE.format(wanted.metric)
    there = [f"{group} {name}" for group, name in MetricSeries.objects.filter(run=last).values_list("group", "name")[:MOST_NAMED]]
    return NO_CURVE.format(wanted.metric, ", ".join(there)) if there else NO_CURVES.format(wanted.metric)


def _of_curve(run: TrainingRun, wanted: Wishes) -> float | None:
    found = curve(run, wanted)
    return None if found is None else found.greatest if wanted.maximize else found.least


def _of_file(run: TrainingRun, wanted: Wishes) -> float | None:
    found, size = runfiles.read(run, FILE, begin=0, limit_bytes=MOST_BYTES)
    try:
        rows = json.loads(found) if size <= MOST_BYTES else []
    except (ValueError, RecursionError):
        return None
    values = [each.get(wanted.metric) for each in rows if isinstance(each, dict)] if isinstance(rows, list) else []
    numbers = [number for each in values if (number := _number(each)) is not None]
    return (max if wanted.maximize else min)(numbers, default=None)


def _number(said: object) -> float | None:
    """None for what is no finite number."""
    try:
        found = float(said) if isinstance(said, int | float) and not isinstance(said, bool) else math.nan
    except OverflowError:  # JSON has whole numbers of any length
        return None
    return found if math.isfinite(found) else None
