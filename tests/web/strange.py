"""What a studio meets after a while: very many of everything, and numbers that are none. Added to a seeded studio, for its pages' tests."""

from __future__ import annotations

import datetime as dt
import math

from experiments import fleet, ingest, runfiles
from experiments.models import Experiment, Grant, JournalCursor, Node, RunState, Slot, TrainingRun
from tests import cast
from tests.web.seed import Seeded
from training_runtime import journal

METRICS, SLOTS, RUNS, STEPS = 50, 100, 500, 30
VALUES = (1.0, math.nan, math.inf, -math.inf, 1e-30, 1e30)


def many_metrics(studio: Seeded, *, now: dt.datetime) -> TrainingRun:
    """A run with 50 metrics, whose loss is no number from time to time."""
    run = cast.run(studio.digits, by=studio.alice, name="fifty metrics")
    names = ["loss", *(f"metric {n:02} <b>" for n in range(1, METRICS))]
    writer = journal.Writer(runfiles.make(run.pk) / journal.FILE_NAME, run.pk)
    writer.write(cast.started(epochs=1, steps=STEPS), t=now.timestamp())
    for step in range(1, STEPS + 1):
        metrics = {name: VALUES[(step + place) % len(VALUES)] for place, name in enumerate(names)}
        train = journal.Train(step=step, epoch=1, metrics=metrics, samples=16, workers=2, step_s=0.1)
        writer.write(train, t=now.timestamp() + step)
    writer.close()
    ingest.catch_up(run.pk, now=now)
    return TrainingRun.objects.get(pk=run.pk)


def many_slots(studio: Seeded, *, now: dt.datetime) -> Node:
    """A node with 100 slots, each of which has been held by two runs."""
    node = fleet.register(cast.facts("big", gpus=8), now=now, slots=SLOTS)
    ended = [studio.completed, studio.failed]
    for slot in Slot.objects.filter(node=node):
        for place, run in enumerate(ended):
            since = now - dt.timedelta(seconds=300 - 120 * place)
            until = since + dt.timedelta(seconds=100)
            Grant.objects.create(run=run, slot=slot, granted_at=since, reason="free", release_requested_at=until, released_at=until)
    return node


def many_runs(experiment: Experiment, *, now: dt.datetime) -> None:
    """500 that have ended, with a reason that is long."""
    runs = TrainingRun.objects.bulk_create(
        TrainingRun(
            experiment=experiment,
            version=experiment.versions.get(),
            submitted_by=experiment.created_by,
            name=f"many {number}",
            command="python main.py",
            submitted_at=now - dt.timedelta(hours=number),
            started_at=now - dt.timedelta(hours=number),
            ended_at=now,
            state=RunState.FAILED,
            state_reason="no space left on device " * 20,
        )
        for number in range(RUNS)
    )
    JournalCursor.objects.bulk_create(JournalCursor(run=run) for run in runs)
