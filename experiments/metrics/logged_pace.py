"""How fast a script goes whose steps only its own figures count: as fast as the last of them came."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.models import Metric, MetricSeries, TrainingRun

WINDOW_S = 30.0  # that are looked back, unless figures come more rarely
LEAST_S = 1.0  # between the two that a pace is of: what comes at once was not computed at once
MOST_POINTS = 64  # that are looked at


def recent_pace(run: TrainingRun) -> float | None:
    """Steps a second, by the longest curve of its training; None before that is known."""
    longest = MetricSeries.objects.filter(run=run, group="train").order_by("-points", "pk").values_list("pk", flat=True).first()
    newest = Metric.objects.filter(series=longest).order_by("-step").values_list("step", "t")[:MOST_POINTS]
    return pace(list(newest))


def pace(newest: Sequence[tuple[int, float]]) -> float | None:
    """Steps a second of (step, Unix seconds), the last one first; None where they are too few, too close, or a clock was put back."""
    if not newest:
        return None
    (last, until), *others = newest
    far = [(step, t) for step, t in others if t <= until - LEAST_S]
    if not far:
        return None
    first, since = next(((step, t) for step, t in reversed(far) if t >= until - WINDOW_S), far[0])
    return (last - first) / (until - since)
