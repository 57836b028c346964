"""What a studio meets after a while: very many of everything, and numbers that are none. Added to a seeded studio, for its pages' tests."""

from __future__ import annotations

import datetime as dt
import math

from experiments.cluster import fleet, utilization
from experiments.files import runfiles
from experiments.live import notify
from experiments.metrics import ingest
from experiments.models import DefinitionVersion, Experiment, Grant, JournalCursor, Node, RunState, Slot, TrainingDefinition, TrainingRun
from tests import cast
from tests.web.seed import Seeded
from training_runtime import journal, journal_writer
from training_runtime.protocol import RunObservation, SlotSeen

METRICS, SLOTS, RUNS, STEPS = 50, 100, 500, 30
LONG_METRIC = "a_metric_of_a_name_without_a_space_" * 3
VALUES = (1.0, math.nan, math.inf, -math.inf, 1e-30, 1e30)


def many_metrics(studio: Seeded, *, now: dt.datetime) -> TrainingRun:
    """A run with 50 metrics, whose loss is no number from time to time."""
    run = cast.run(studio.digits, by=studio.alice, name="fifty metrics")
    names = ["loss", LONG_METRIC, *(f"metric {n:02} <b>" for n in range(2, METRICS))]
    writer = journal_writer.Writer(runfiles.make(run) / journal.FILE_NAME, run.pk)
    writer.write(cast.started(epochs=1, steps=STEPS), t=now.timestamp())
    for step in range(1, STEPS + 1):
        metrics = {name: VALUES[(step + place) % len(VALUES)] for place, name in enumerate(names)}
        train = journal.Train(step=step, epoch=1, metrics=metrics, samples=16, workers=2, step_s=0.1)
        writer.write(train, t=now.timestamp() + step)
    writer.close()
    ingest.catch_up(run.pk, now=now)
    TrainingRun.objects.filter(pk=run.pk).update(state=RunState.COMPLETED, ended_at=now + dt.timedelta(seconds=STEPS))
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


def much_use(run: TrainingRun, node: Node) -> None:
    """What a hundred slots of an ended run did, each something else, every six seconds."""
    slots = list(Slot.objects.filter(node=node).order_by("index"))
    began = run.started_at or run.submitted_at
    busy = dict.fromkeys(range(len(slots)), 0.0)
    for held_s in range(6, 600, 6):
        busy = {place: before + 6 * (0.55 + 0.4 * math.sin(place + held_s / (20 + place))) for place, before in busy.items()}
        sizes = [(40 + place) * 10**7 + held_s * 10**5 for place in range(len(slots))]
        each = tuple(SlotSeen(slot.pk, 1.0, busy[n], held_s, sizes[n]) for n, slot in enumerate(slots))
        sums = {"busy_s": sum(busy.values()), "counted_s": float(held_s * len(slots))}
        seen = RunObservation(run.pk, 1, "running", tuple(slot.pk for slot in slots), slots=each, **sums)
        utilization.store_sample(run, seen, now=began + dt.timedelta(seconds=held_s))


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


def many_definitions(studio: Seeded, count: int) -> None:
    """So many training definitions with the code of one that there is."""
    mine = {"project": studio.digits, "created_by": studio.alice}
    made = TrainingDefinition.objects.bulk_create(TrainingDefinition(name=f"row {number} of many", **mine) for number in range(count))
    same = {"bundle": studio.version.bundle, "created_by": studio.alice, "file_name": "code.zip", "command": "python main.py"}
    DefinitionVersion.objects.bulk_create(DefinitionVersion(definition=each, number=1, **same) for each in made)


def many_files(run: TrainingRun, folder: str, count: int) -> None:
    """So many small files in one folder of the run's, which its pages are told of."""
    path = runfiles.folder(run) / folder
    path.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        (path / f"{number}.txt").write_text("x" * number)
    notify.changed(f"run-{run.pk}", "files")
