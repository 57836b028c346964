"""Points into their curves: the rows of metrics, what each curve comes to, and its rollups; straight to the database."""

from __future__ import annotations

from collections.abc import Mapping

from django.conf import settings
from django.db import connection
from django.db.models import Model

from experiments.metrics.journal_rows import NewPoint, Rows
from experiments.models import Metric, MetricRollup, MetricSeries, TrainingRun
from experiments.runs import run_values

MAX_SERIES = 2000
SUMMARY = ("points", "last_step", "last_value", "least", "least_step", "greatest", "greatest_step", "not_finite_from")  # of a curve
UPDATE_SERIES = """
UPDATE {table} SET points = %s, last_step = %s, last_value = %s, least = %s, least_step = %s, greatest = %s, greatest_step = %s,
not_finite_from = %s WHERE id = %s
"""
UPSERT_ROLLUP = """
INSERT INTO {table} (series_id, {index}, least, least_step, least_t, greatest, greatest_step, greatest_t)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s)
ON CONFLICT (series_id, {index}) DO UPDATE SET
least = excluded.least, least_step = excluded.least_step, least_t = excluded.least_t,
greatest = excluded.greatest, greatest_step = excluded.greatest_step, greatest_t = excluded.greatest_t
"""


def store_points(run: TrainingRun, rows: Rows) -> list[NewPoint]:
    """Insert those that go on with their curves and bring the curves' summaries up to date; the points that were stored.

    A step that a curve has already was done again (from a checkpoint), with the same result: it stays one point. A run may have only so
    many curves and points. What is left out is counted, unless it was done again or says what the curve says already.
    """
    series: dict[tuple[str, str], MetricSeries] = {(one.group, one.name): one for one in MetricSeries.objects.filter(run=run)}
    known = set(series)
    kept: list[NewPoint] = []
    room = settings.EDT_MAX_RUN_POINTS - sum(one.points for one in series.values())
    for point in rows.points:
        key = (point.group, point.name)
        one = series.get(key)
        if len(kept) >= room or (one is None and len(series) >= MAX_SERIES):
            rows.left_out["points" if len(kept) >= room else "curves"] += 1
            continue
        if one is None:
            one = series[key] = MetricSeries.objects.create(run=run, group=point.group, name=point.name)
        if one.points and point.step <= one.last_step:
            same = (point.step, point.value) == (one.last_step, one.last_value)  # Transformers' epoch: beside the loss and the evaluation
            rows.left_out["again"] += point.step > rows.redone_to and not same
            continue
        one.points, one.last_step, one.last_value = one.points + 1, point.step, point.value
        if point.value is None and one.not_finite_from is None:
            one.not_finite_from = point.step
        _widen(one, point)
        kept.append(point)
    _insert(kept, series)
    run_values.keep_curves(run, series.keys() - known)
    _summarise([(series[p.group, p.name].pk, p) for p in kept])
    return kept


def _insert(points: list[NewPoint], series: Mapping[tuple[str, str], MetricSeries]) -> None:
    """The points, and what their curves come to with them."""
    _many(
        Metric,
        "INSERT INTO {table} (series_id, step, seq, epoch, t, value, workers) VALUES (%s, %s, %s, %s, %s, %s, %s)",
        [(series[p.group, p.name].pk, p.step, p.seq, p.epoch, p.t, p.value, p.workers) for p in points],
    )
    touched = [series[key] for key in {(p.group, p.name) for p in points}]
    _many(MetricSeries, UPDATE_SERIES, [(*(getattr(one, name) for name in SUMMARY), one.pk) for one in touched])


def _summarise(points: list[tuple[int, NewPoint]]) -> None:
    """Bring the rollups that the points (of a series' key each, in order) lie in up to date."""
    firsts: dict[int, int] = {}
    for series, point in points:
        firsts.setdefault(series, point.step // MetricRollup.STEPS)
    begun = MetricRollup.objects.filter(series__in=firsts, index__in=set(firsts.values()))  # only a first one can be there already
    rollups = {(one.series_id, one.index): one for one in begun}
    for series, point in points:
        place = (series, point.step // MetricRollup.STEPS)
        one = rollups.get(place)
        if one is None:
            one = rollups[place] = MetricRollup(series_id=series, index=place[1])
            one.least = one.greatest = point.value
            one.least_step = one.greatest_step = point.step
            one.least_t = one.greatest_t = point.t
        else:
            _widen(one, point)
            one.least_t = point.t if one.least_step == point.step else one.least_t
            one.greatest_t = point.t if one.greatest_step == point.step else one.greatest_t
    columns = ("least", "least_step", "least_t", "greatest", "greatest_step", "greatest_t")
    rows = [(series, index, *(getattr(one, name) for name in columns)) for (series, index), one in rollups.items()]
    _many(MetricRollup, UPSERT_ROLLUP, rows)


def _widen(one: MetricSeries | MetricRollup, point: NewPoint) -> None:
    """Its least or its greatest point is this one, where it is."""
    if point.value is not None and (one.least is None or point.value < one.least):
        one.least, one.least_step = point.value, point.step
    if point.value is not None and (one.greatest is None or point.value > one.greatest):
        one.greatest, one.greatest_step = point.value, point.step


def _many(model: type[Model], statement: str, values: list[tuple[int | float | None, ...]]) -> None:
    """Straight to the database: a million model instances would cost more than the rows."""
    if values:
        quote = connection.ops.quote_name
        with connection.cursor() as cursor:
            cursor.executemany(statement.format(table=quote(model._meta.db_table), index=quote("index")), values)
