"""Which trials are not worth going on with: those that have come less far than half of the trials before them had at the same point, the
median rule of Vizier (Golovin et al., KDD 2017). Pure.

A course is the best value of the metric so far, after each epoch; where a curve knows no epochs, after each of its values.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

LEAST_ENDED = 4  # trials that completed before anything is compared with them
LEAST_POINTS = 2  # a first value says little
MOST_POINTS = 1000  # of a course


@dataclass(frozen=True)
class Epochs:
    """What a curve is looked at by: its best value in each epoch that it has, how many points are in the fullest of them, and its first
    values, MOST_POINTS at most."""

    best: Sequence[float]
    most_points: int
    first: Sequence[float]


@dataclass(frozen=True)
class Course:
    """`by_epoch`: a point is an epoch, else a value of the curve."""

    by_epoch: bool
    best: tuple[float, ...]


@dataclass(frozen=True)
class Behind:
    """After so many points it has `value`, and the median of the others was `median`."""

    points: int
    value: float
    median: float


def course(curve: Epochs, *, maximize: bool, by_epoch: bool | None = None, has_ended: bool) -> Course:
    """`by_epoch`: as the others have it, None for as it has it. An epoch that several points are in counts once it is over."""
    better = max if maximize else min
    if by_epoch is None:
        by_epoch = len(curve.best) > 1
    values = curve.best if by_epoch else curve.first
    if by_epoch and curve.most_points > 1 and not has_ended:
        values = values[:-1]
    return Course(by_epoch, tuple(itertools.accumulate(values[:MOST_POINTS], better)))


def behind(mine: Course, completed: Sequence[Course], *, maximize: bool) -> Behind | None:
    """Where it falls behind, after its last point. None while it does not, or nobody can tell."""
    at = len(mine.best)
    others = [each.best[at - 1] for each in completed if each.by_epoch == mine.by_epoch and len(each.best) >= at]
    if at < LEAST_POINTS or len(others) < LEAST_ENDED:
        return None
    median, value = statistics.median(others), mine.best[-1]
    return Behind(at, value, median) if (value < median if maximize else value > median) else None
