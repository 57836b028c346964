"""Metric curves for charts: whole ones down-sampled in the database, and what is new since a journal line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from django.db import connection

from experiments.ingest import progress_of
from experiments.models import JournalCursor, Metric, MetricSeries, TrainingRun
from experiments.notify import Point

MOST_CURVES = 200
MOST_POINTS = 100_000  # of all curves of a page together
MIN_POINTS = 20
CHUNK = 500


@dataclass(frozen=True)
class Curve:
    """One curve: parallel lists of steps, Unix seconds and values (None where the value is not a number), at most about max_points long.

    `total` is the number of points stored; `sampled` says that they are more than these (then each bucket gave its least and greatest).
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


def series(run: TrainingRun, *, max_points: int = 1000, x: Literal["step", "time"] = "step") -> tuple[int, list[Curve]]:
    """(sequence number, curves): everything up to that journal line, so that `points_after` it neither misses nor repeats a point.

    A longer curve is cut into equal stretches of `x`; each gives its least value at its first step and its greatest at its last one.
    """
    seq = _seq(run)  # before the points: what comes in between is left to points_after
    found = list(run.series.order_by("group", "name")[:MOST_CURVES])
    most = max(MIN_POINTS, min(max_points, MOST_POINTS // max(1, len(found))))
    return seq, [_curve(one, seq=seq, most=most, x=x) for one in found]


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


def _curve(one: MetricSeries, *, seq: int, most: int, x: Literal["step", "time"]) -> Curve:
    points = Metric.objects.filter(series=one, seq__lte=seq)
    sampled = one.points > most
    rows = _stretches(one, seq=seq, count=most // 2, x=x) if sampled else list(points.order_by("step").values_list("step", "t", "value"))
    return Curve(
        group=one.group,
        name=one.name,
        steps=[row[0] for row in rows],
        times=[row[1] for row in rows],
        values=[row[2] for row in rows],
        total=one.points,
        sampled=sampled,
    )


def _stretches(one: MetricSeries, *, seq: int, count: int, x: Literal["step", "time"]) -> list[tuple[int, float, float | None]]:
    """Two points for each of `count` equal stretches, found by the database in one pass over the curve."""
    column = "step" if x == "step" else "t"
    ends = Metric.objects.filter(series=one, seq__lte=seq)
    first, last = (
        ends.order_by("step").values_list(column, flat=True).first(),
        ends.order_by("-step").values_list(column, flat=True).first(),
    )
    if first is None or last is None:
        return []
    width = max((last - first) / count, 1e-9)
    table = connection.ops.quote_name(Metric._meta.db_table)
    query = (
        f"SELECT CAST(({column} - %s) / %s AS BIGINT) AS stretch, MIN(step), MIN(t), MIN(value), MAX(step), MAX(t), MAX(value) "  # noqa: S608
        f"FROM {table} WHERE series_id = %s AND seq <= %s GROUP BY stretch ORDER BY stretch"
    )
    with connection.cursor() as cursor:
        cursor.execute(query, [float(first), width, one.pk, seq])
        return [point for row in cursor.fetchall() for point in _two_points(row)]


def _two_points(row: tuple[int, int, float, float | None, int, float, float | None]) -> list[tuple[int, float, float | None]]:
    _, step, t, least, last_step, last_t, greatest = row
    return [(step, t, least)] if step == last_step else [(step, t, least), (last_step, last_t, greatest)]


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
