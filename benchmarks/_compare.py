"""A hundred runs with three long curves each, and how long the page that compares them takes to draw them all."""

from __future__ import annotations

import datetime as dt
import time
from typing import TYPE_CHECKING
from urllib.parse import urlencode

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from experiments.models import Experiment, MetricSeries, User

RUNS, POINTS = 100, 10_000
METRICS = (("train", "loss"), ("test", "loss"), ("test", "accuracy"))

# All charts are there, and the table below has a value of each run in each of them: it is written when they have been drawn.
DRAWN = f"""() => document.querySelectorAll('#plots .uplot').length === {len(METRICS)}
    && [...document.querySelectorAll('.legend-box td')].filter(cell => /[0-9]/.test(cell.textContent)).length === {RUNS * len(METRICS)}"""
# Each curve with noise of its own, so that no two have their extremes at the same steps.
COPIED = """
INSERT INTO experiments_metric (series_id, step, seq, epoch, t, value, workers)
SELECT s.id, p.step, p.seq, p.epoch, p.t, p.value + (p.step * 7919 + s.id * 104729) * (p.step + s.id) %% 997 / 5000.0, p.workers
FROM experiments_metricseries s JOIN experiments_metric p ON p.series_id = %s WHERE s.id >= %s AND s.id <= %s ORDER BY s.id, p.step
"""
ROLLUPS = """
WITH ranked AS (
    SELECT series_id, step / %s AS place, step, t, value, MIN(value) OVER w AS least, MAX(value) OVER w AS greatest FROM experiments_metric
    WHERE series_id >= %s AND series_id <= %s WINDOW w AS (PARTITION BY series_id, step / 64)
)
INSERT INTO experiments_metricrollup (series_id, "index", least_step, least_t, least, greatest_step, greatest_t, greatest)
SELECT a.series_id, a.place, MIN(a.step), MIN(a.t), a.least, MIN(b.step), MIN(b.t), a.greatest
FROM ranked a JOIN ranked b ON b.series_id = a.series_id AND b.place = a.place AND b.value = b.greatest
WHERE a.value = a.least GROUP BY a.series_id, a.place, a.least, a.greatest
"""


def seed(experiment: Experiment, alice: User) -> list[int]:
    """The numbers of the runs; each step has a point of each metric, and each run's values are its own."""
    from django.utils import timezone

    from experiments.models import JournalCursor, MetricSeries, RunState, TrainingRun

    now, version = timezone.now(), experiment.versions.get()
    times = {"submitted_at": now, "started_at": now - dt.timedelta(minutes=3), "ended_at": now}
    same = {"experiment": experiment, "version": version, "submitted_by": alice, "state": RunState.COMPLETED, "step": POINTS}
    runs = TrainingRun.objects.bulk_create(
        TrainingRun(name=f"rate {number}", command=f"python main.py --lr {10 ** (-5 + number / 25):.4g}", **same, **times)
        for number in range(RUNS)
    )
    JournalCursor.objects.bulk_create(JournalCursor(run=run, seq=POINTS) for run in runs)
    made = MetricSeries.objects.bulk_create(
        MetricSeries(run=run, group=group, name=name, points=POINTS, last_step=POINTS, last_value=0.5)
        for run in runs
        for group, name in METRICS
    )
    points(made)
    return [run.pk for run in runs]


def points(series: list[MetricSeries]) -> None:
    """What ingest writes for these curves, made in the database itself: three million rows would take minutes one by one."""
    from django.db import connection

    from experiments.models import Metric, MetricRollup

    first, others = series[0], series[1:]
    Metric.objects.bulk_create(
        (
            Metric(series=first, step=step, seq=step, epoch=1, t=1.79e9 + step / 100, value=2.5 / step**0.5, workers=4)
            for step in range(1, POINTS + 1)
        ),
        batch_size=2000,
    )
    with connection.cursor() as cursor:
        cursor.execute(COPIED, [first.pk, others[0].pk, others[-1].pk])
        cursor.execute(ROLLUPS, [MetricRollup.STEPS, first.pk, others[-1].pk])


def address(runs: list[int]) -> str:
    metrics = [("metric", f"{group} {name}") for group, name in METRICS]
    return f"/compare/?{urlencode([('run', ','.join(map(str, runs))), *metrics])}"


def drawn_s(page: Page, address: str) -> float:
    """From the navigation until each of the charts has all lines on it."""
    began = time.perf_counter()
    page.goto(address, wait_until="commit")
    page.wait_for_function(DRAWN)
    return time.perf_counter() - began
