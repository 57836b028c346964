"""Which trials are not worth going on with: those that have come less far than half of the trials before them had at the same point, the
median rule of Vizier (Golovin et al., KDD 2017). Pure.

A course is the best value of the metric so far, after each epoch; where a curve knows no epochs, after each of its values.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

LEAST_ENDED = 4  # trials that completed before anything is compared with them
LEAST_POINTS = 2  # a first value says little
MOST_POINTS = 1000  # of a course


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


def course(points: Sequence[tuple[int, float]], *, maximize: bool, by_epoch: bool | None = None, has_ended: bool) -> Course:
    """`points`: epoch and value of each point of the curve, in their order. `by_epoch`: as the others have it, None for as it has it.
    An epoch that several points are in counts once it is over."""
    epochs = [epoch for epoch, _ in points]
    several = len(set(epochs)) > 1
    better = max if maximize else min
    if by_epoch is None:
        by_epoch = several
    if not by_epoch:
        values: Iterable[float] = (value for _, value in points[:MOST_POINTS])
    else:
        groups = [[value for _, value in group] for _, group in itertools.groupby(points, key=lambda point: point[0])]
        if not has_ended and any(len(group) > 1 for group in groups):
            groups = groups[:-1]
        values = (better(group) for group in groups[:MOST_POINTS])
    return Course(by_epoch, tuple(itertools.accumulate(values, better)))


def behind(mine: Course, completed: Sequence[Course], *, maximize: bool) -> Behind | None:
    """Where it falls behind, after its last point. None while it does not, or nobody can tell."""
    at = len(mine.best)
    others = [each.best[at - 1] for each in completed if each.by_epoch == mine.by_epoch and len(each.best) >= at]
    if at < LEAST_POINTS or len(others) < LEAST_ENDED:
        return None
    median, value = statistics.median(others), mine.best[-1]
    return Behind(at, value, median) if (value < median if maximize else value > median) else None
