"""How fast runs were on how many slots, and what they have yet to do: from their changes of members. Reads only."""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from itertools import pairwise
from typing import NamedTuple

from experiments.models import GenerationRecord, TrainingRun
from training_runtime.scheduling.simulation import Work

MOST_CHANGES = 20_000
LEAST_S = 1.0  # a stretch that is shorter says little of a speed
COLUMNS = ("run", "at", "step", "workers", "workers_before", "pause_ms")


class Membership(NamedTuple):
    """A generation, as much of it as a speed is made of: the columns COLUMNS."""

    run: int
    at: dt.datetime
    step: int
    workers: int
    workers_before: int
    pause_ms: float


def works(runs: Collection[TrainingRun], held: Mapping[int, int]) -> dict[int, Work]:
    """By run: the steps that it has yet to make and its steps a second by number of slots, as measured; where only its library's trainer
    knows how long it takes, seconds on the slots that it has (`held`: how many, by run). Nothing where nobody knows."""
    chosen = [run for run in runs if run.total_steps() and run.step_rate and run.workers]
    measured = rates(run.pk for run in chosen)
    told = [run for run in runs if not run.total_steps() and run.remaining_s() is not None]
    return {
        **{run.pk: Work(run.remaining_s(), {run.workers or held.get(run.pk) or run.min_slots: 1.0}) for run in told},
        **{
            run.pk: Work(float(max(0, (run.total_steps() or 0) - run.step)), {**measured[run.pk], run.workers: run.step_rate or 0.0})
            for run in chosen
        },
    }


def rates(runs: Iterable[int]) -> Mapping[int, dict[int, float]]:
    """Steps a second by number of workers, over all the time that each run had so many. Of a time that ended with the run suspended nobody
    knows when it ended, so that is left out."""
    found = GenerationRecord.objects.filter(run__in=list(runs)).order_by("run", "seq").values_list(*COLUMNS)[:MOST_CHANGES]
    sums: defaultdict[int, defaultdict[int, list[float]]] = defaultdict(lambda: defaultdict(lambda: [0.0, 0.0]))
    for before, after in pairwise(Membership(*row) for row in found):
        seconds = (after.at - before.at).total_seconds() - after.pause_ms / 1000
        if before.run != after.run or after.workers_before != before.workers or not before.workers or seconds < LEAST_S:
            continue
        summed = sums[before.run][before.workers]
        summed[0] += max(0, after.step - before.step)
        summed[1] += seconds
    speeds = {run: {workers: steps / seconds for workers, (steps, seconds) in of.items() if steps} for run, of in sums.items()}
    return defaultdict(dict, speeds)
