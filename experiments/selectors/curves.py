"""Metric curves for charts: whole ones down-sampled, long ones from rollups that ingest keeps, and what is new since a line."""

from __future__ import annotations

import itertools
import operator
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from django.db.models import F, QuerySet

from experiments.live.notify import Point
from experiments.metrics.ingest import progress_of
from experiments.models import JournalCursor, Metric, MetricRollup, MetricSeries, TrainingRun

MOST_CURVES = 200
MOST_POINTS = 100_000  # of all curves of a page together
MOST_READ = 300_000  # points of several runs' curves, at once: what is more is drawn from the extremes of its rollups
MIN_POINTS = 20
CHUNK = 500
MOST_STEPS = 2**62
Columns = tuple[list[int], list[float], list[float | None]]  # steps, Unix seconds, values: parallel, as pages get them
ROLLUP = ("least_step", "least_t", "least", "greatest_step", "greatest_t", "greatest")
AT_ONCE = 5000  # rows of a cursor: tuples that do not live long are not looked at by the garbage collector


@dataclass(frozen=True)
class Curve:
    """One curve: parallel lists of steps, Unix seconds and values (None where the value is not a number), at most about max_points long.

    `total` is the number of points stored; `sampled` says that they are more than these.
    """

    group: str
    name: str
    steps: list[int]
    times: list[float]
    values: list[float | None]
    total: int
    sampled: bool


@dataclass(frozen=True)
class NewPoints:
    """Points of journal lines after `after` up to `seq`; `reload` says that they are too many: fetch the curves anew."""

    after: int
    seq: int
    points: list[Point]
    progress: dict[str, object]
    reload: bool = False


def series(
    run: TrainingRun,
    *,
    max_points: int = 1000,
    x: Literal["step", "time"] = "step",
    steps: tuple[int, int] | None = None,
    only: Collection[tuple[str, str]] | None = None,
) -> tuple[int, list[Curve]]:
    """(sequence number, curves): everything up to that journal line, so that `points_after` it neither misses nor repeats a point.

    A longer curve is cut into equal buckets of `x`, each of which gives its least and its greatest point. `steps`: only from the first to
    the last of these. `only`: those of these groups and names.
    """
    seq = _seq(run)  # before the points: what comes in between is left to points_after
    named = (each for each in run.series.order_by("group", "name") if only is None or (each.group, each.name) in only)
    found = list(itertools.islice(named, MOST_CURVES))
    most = max(MIN_POINTS, min(max_points, MOST_POINTS // max(1, len(found))))
    return seq, [_curve(one, seq=seq, most=most, x=x, steps=steps or (0, MOST_STEPS)) for one in found]


@dataclass(frozen=True)
class RunCurves:
    """Of one of several runs: the journal line that its curves reach, the names of all that it has, and those that were asked for."""

    seq: int
    names: list[str]
    curves: list[Curve]


def of_runs(runs: Collection[TrainingRun], *, names: Collection[str], max_points: int = 1000) -> dict[int, RunCurves]:
    """By run: as `series`, with a handful of queries for all of them. `names`: of curves, "train loss"."""
    lines = dict(JournalCursor.objects.filter(run__in=runs).values_list("run", "seq"))  # before the points, as in `series`
    known: dict[int, list[MetricSeries]] = defaultdict(list)
    for one in MetricSeries.objects.filter(run__in=runs).order_by("run", "group", "name")[: MOST_CURVES * len(runs)]:
        known[one.run_id].append(one)
    wanted = [one for found in known.values() for one in found if _name(one) in names]
    most = max(MIN_POINTS, min(max_points, MOST_POINTS // max(1, len(wanted))))
    found = _columns_of(wanted)
    curves: dict[int, list[Curve]] = defaultdict(list)
    for one in wanted:
        curves[one.run_id].append(_thinned(one, found.get(one.pk, ([], [], [])), most=most))
    return {run.pk: RunCurves(lines.get(run.pk, 0), [_name(one) for one in known[run.pk]], curves[run.pk]) for run in runs}


def _name(one: MetricSeries) -> str:
    return f"{one.group} {one.name}"


def _columns_of(wanted: list[MetricSeries]) -> Mapping[int, Columns]:
    """By curve: its points, or the extremes of its finished rollups and the points after those where it has many."""
    whole = max(4 * MetricRollup.STEPS, MOST_READ // max(1, len(wanted)))
    few = [one.pk for one in wanted if one.points <= whole]
    long = [one.pk for one in wanted if one.points > whole]
    of_few = Metric.objects.filter(series__in=few).order_by("series_id", "step").values_list("series_id", "step", "t", "value")
    columns = {series: _columns(rows) for series, rows in _by_series(of_few)}
    # Before the rollups, which may have grown since: where these begin, those end. And no join there, so that nothing has to be sorted.
    begun = F("series__last_step") / MetricRollup.STEPS * MetricRollup.STEPS
    tail = Metric.objects.filter(series__in=long, step__gte=begun).order_by("series_id", "step")
    for series, rows in _by_series(tail.values_list("series_id", "step", "t", "value")):
        columns[series] = _columns(rows)
    rollups = MetricRollup.objects.filter(series__in=long).order_by("series_id", "index").values_list("series_id", *ROLLUP)
    for series, rows in _by_series(rollups):
        last = columns.get(series, ([], [], []))
        columns[series] = _joined(_cut(_extremes_in(rows), end=min(last[0], default=MOST_STEPS)), last)
    return columns


def _by_series(rows: QuerySet[Any, tuple[Any, ...]]) -> Iterator[tuple[int, Iterator[tuple[Any, ...]]]]:
    return itertools.groupby(rows.iterator(chunk_size=AT_ONCE), key=operator.itemgetter(0))


def _columns(rows: Iterable[tuple[Any, ...]]) -> Columns:
    """Of rows that end with step, time and value."""
    steps, times, values = ([list(column) for column in zip(*rows, strict=True)] or [[], [], []])[-3:]
    return steps, times, values


def _cut(found: Columns, *, begin: int = 0, end: int) -> Columns:
    """Those from the step `begin` to before the step `end`."""
    first, after = bisect_left(found[0], begin), bisect_left(found[0], end)
    return found[0][first:after], found[1][first:after], found[2][first:after]


def _joined(first: Columns, then: Columns) -> Columns:
    return first[0] + then[0], first[1] + then[1], first[2] + then[2]


def points_after(run: TrainingRun, *, seq: int, limit: int = 5000) -> NewPoints:
    """What journal lines after `seq` brought, in their order."""
    run.refresh_from_db()
    upto = _seq(run)
    if upto < seq:  # the page knows more than there is: another run's page, or a database that was put back
        return NewPoints(after=seq, seq=upto, points=[], progress=progress_of(run), reload=True)
    found: list[tuple[int, Point]] = []
    for one in run.series.all()[:MOST_CURVES]:
        found += _newest(one, after=seq, upto=upto, limit=limit + 1)
        if len(found) > limit:
            return NewPoints(after=seq, seq=upto, points=[], progress=progress_of(run), reload=True)
    found.sort(key=lambda each: each[0])
    return NewPoints(after=seq, seq=upto, points=[point for _, point in found], progress=progress_of(run))


def _seq(run: TrainingRun) -> int:
    return JournalCursor.objects.filter(run=run).values_list("seq", flat=True).first() or 0


def _curve(one: MetricSeries, *, seq: int, most: int, x: Literal["step", "time"], steps: tuple[int, int]) -> Curve:
    shown = min(1.0, (steps[1] - steps[0] + 1) / max(1, one.last_step))  # a curve's points are about equally far apart
    many = one.points * shown > most * MetricRollup.STEPS // 2  # then the rollups are still finer than what will be shown
    found = _extremes(one, seq=seq, steps=steps) if many else _points(one, seq=seq, steps=steps)
    return _thinned(one, found, most=most, x=x)


def _thinned(one: MetricSeries, found: Columns, *, most: int, x: Literal["step", "time"] = "step") -> Curve:
    steps, times, values = found
    if sampled := len(steps) > most:
        places = _thin(steps if x == "step" else times, values, count=most // 2)
        steps, times, values = [steps[place] for place in places], [times[place] for place in places], [values[place] for place in places]
    return Curve(group=one.group, name=one.name, steps=steps, times=times, values=values, total=one.points, sampled=sampled)


def _points(one: MetricSeries, *, seq: int, steps: tuple[int, int]) -> Columns:
    found = Metric.objects.filter(series=one, seq__lte=seq, step__gte=steps[0], step__lte=steps[1])
    return _columns(found.order_by("step").values_list("step", "t", "value"))


def _extremes(one: MetricSeries, *, seq: int, steps: tuple[int, int]) -> Columns:
    """The least and the greatest point of each finished rollup, and the points of the last one up to `seq`: those within the steps."""
    last = Metric.objects.filter(series=one, seq__lte=seq).order_by("-step").values_list("step", flat=True).first() or 0
    begun = last // MetricRollup.STEPS
    first, end = (step // MetricRollup.STEPS for step in steps)
    finished = MetricRollup.objects.filter(series=one, index__gte=first, index__lte=end, index__lt=begun).order_by("index")
    within = _cut(_extremes_in(finished.values_list("series_id", *ROLLUP)), begin=steps[0], end=steps[1] + 1)
    return _joined(within, _points(one, seq=seq, steps=(max(steps[0], begun * MetricRollup.STEPS), steps[1])))


def _extremes_in(rollups: Iterable[tuple[Any, ...]]) -> Columns:
    """The least and the greatest point of each row (a series and ROLLUP), in the order of their steps; where they are one, that."""
    steps: list[int] = []
    times: list[float] = []
    values: list[float | None] = []
    for _, least_step, least_t, least, greatest_step, greatest_t, greatest in rollups:
        if least_step < greatest_step:
            steps += (least_step, greatest_step)
            times += (least_t, greatest_t)
            values += (least, greatest)
        elif least_step > greatest_step:
            steps += (greatest_step, least_step)
            times += (greatest_t, least_t)
            values += (greatest, least)
        else:
            steps.append(least_step)
            times.append(least_t)
            values.append(least)
    return steps, times, values


def _thin(axis: Sequence[float], values: Sequence[float | None], *, count: int) -> list[int]:
    """The places of the least and the greatest of the values in each of `count` equal buckets of the axis, and both ends."""
    width = (axis[-1] - axis[0]) / count or 1.0
    kept = {0, len(axis) - 1}
    least = greatest = bucket = -1
    for place, here in enumerate(values):
        if (at := int((axis[place] - axis[0]) / width)) != bucket:
            kept |= {least, greatest}
            bucket, least, greatest = at, place, place
        elif here is not None:
            if (value := values[least]) is None or here < value:
                least = place
            if (value := values[greatest]) is None or here > value:
                greatest = place
    return sorted((kept | {least, greatest}) - {-1})


def _newest(one: MetricSeries, *, after: int, upto: int, limit: int) -> list[tuple[int, Point]]:
    """Points of lines after `after`, found from the curve's end backwards: lines and steps grow together."""
    found: list[tuple[int, Point]] = []
    rows = Metric.objects.filter(series=one).order_by("-step").values_list("seq", "step", "t", "value", "workers", "epoch")
    for start in range(0, limit + CHUNK, CHUNK):
        chunk = list(rows[start : start + CHUNK])
        for seq, step, t, value, workers, epoch in chunk:
            if after < seq <= upto:
                found.append((seq, (one.group, one.name, step, t, value, workers, epoch)))
        if len(chunk) < CHUNK or chunk[-1][0] <= after:
            break
    return found
