"""A run and the one that it repeats, held against each other: facts for `experiments.runs.reproduction`, which decides."""

from __future__ import annotations

from django.db import connection

from experiments import access
from experiments.models import Metric, MetricSeries, StateDigest, TrainingRun, User
from experiments.runs.reproduction import CurveComparison, RunRecord, Verdict, verdict
from experiments.selectors import receipts

FIRST_APART = """
SELECT a.step, a.value, b.value FROM {table} a LEFT JOIN {table} b ON b.series_id = %s AND b.step = a.step
WHERE a.series_id = %s AND a.step <= %s
AND (b.step IS NULL OR a.value <> b.value OR (a.value IS NULL AND b.value IS NOT NULL) OR (a.value IS NOT NULL AND b.value IS NULL))
ORDER BY a.step LIMIT 1
"""
GONE = "The run that it repeats was deleted, or is in a project that you may not see: nothing can be compared."


def of_run(user: User, run: TrainingRun) -> Verdict | None:
    """None of a run that repeats none."""
    if run.reproduces is None:
        return None
    seen, _ = access.runs(user, [run.reproduces])
    if not seen:
        return Verdict("unknown", GONE)
    return verdict(_facts_of(seen[0]), _facts_of(run), lambda: compare_curves(seen[0], run))


def of_others(run: TrainingRun) -> list[TrainingRun]:
    """Those of its project that repeat it, newest first."""
    return list(TrainingRun.objects.filter(reproduces=run.pk, experiment__project=run.experiment.project_id).order_by("-pk")[:20])


def _facts_of(run: TrainingRun) -> RunRecord:
    digests = {each.epoch: (each.step, each.digest) for each in StateDigest.objects.filter(run=run)}
    shape = {name: getattr(run, name) for name in ("engines", "batch_size", "epochs")}
    given = receipts.flat({**receipts.inputs(run), "shape": shape})
    return RunRecord(run.pk, "" if run.is_live() else run.state, run.step, digests, given)


def compare_curves(then: TrainingRun, now: TrainingRun) -> CurveComparison:
    """Their curves of the same name, up to the last step that both have."""
    mine = {(each.group, each.name): each for each in MetricSeries.objects.filter(run=now)}
    pairs = [(each, mine[each.group, each.name]) for each in MetricSeries.objects.filter(run=then) if (each.group, each.name) in mine]
    apart = [
        (step, f"{old.group} {old.name}", was, new) for old, other in pairs if (found := _apart(old, other)) for step, was, new in [found]
    ]
    if not apart:
        return CurveComparison(len(pairs))
    step, curve, was, new = min(apart, key=lambda each: each[:2])
    return CurveComparison(len(pairs), (curve, step, was, new))


def _apart(old: MetricSeries, new: MetricSeries) -> tuple[int, float | None, float | None] | None:
    """The first step at which they are not the same, and both values."""
    with connection.cursor() as cursor:
        table = connection.ops.quote_name(Metric._meta.db_table)
        cursor.execute(FIRST_APART.format(table=table), [new.pk, old.pk, min(old.last_step, new.last_step)])
        found: tuple[int, float | None, float | None] | None = cursor.fetchone()
    return found
