"""Ten thousand runs with twelve arguments and twenty metrics each, and what is asked of their table."""

from __future__ import annotations

import datetime as dt
import random
from typing import TYPE_CHECKING
from urllib.parse import urlencode

if TYPE_CHECKING:
    from experiments.models import Experiment, User

RUNS, AT_ONCE = 10_000, 500
ARGUMENTS = ("lr", "batch_size", "optimizer", "weight_decay", "dropout", "layers", "width", "seed", "warmup", "schedule", "amp", "data")
NAMES = ("loss", "accuracy", "f1", "perplexity", "grad_norm", "precision", "recall", "auc", "throughput", "learning_rate")
COLUMNS = [
    "state",
    "duration",
    *(f"arg.{name}" for name in ARGUMENTS),
    *(f"{group}.{name}" for group in ("train", "test") for name in NAMES[:8]),
]
QUERIES = {
    "filter and sort on metrics": {"filter": "lr < 0.1 and accuracy > 0.9", "sort": "train.loss", "columns": COLUMNS},
    "sort on a metric, all runs": {"sort": "-best(test.accuracy)", "columns": COLUMNS},
    "the last page": {"sort": "train.loss", "columns": COLUMNS, "page": 200},
    "groups of an argument": {"group": "arg.optimizer", "columns": ["train.loss", "test.accuracy"]},
    "as it opens": {},
}
FIRST = next(iter(QUERIES))


def addresses(experiment: int) -> dict[str, str]:
    return {name: f"/experiments/{experiment}/table/?{urlencode(query, doseq=True)}" for name, query in QUERIES.items()}


def seed(experiment: Experiment, alice: User) -> None:
    from django.utils import timezone

    from experiments.models import RunState, TrainingRun

    assert len(COLUMNS) == 30
    draw, now, version = random.Random(1), timezone.now(), experiment.versions.get()
    for begin in range(0, RUNS, AT_ONCE):
        rows = []
        for number in range(begin, begin + AT_ONCE):
            at = now - dt.timedelta(minutes=number)
            times = {"submitted_at": at, "started_at": at, "ended_at": at + dt.timedelta(seconds=60 + number % 3000)}
            same = {"experiment": experiment, "version": version, "submitted_by": alice, "state": RunState.COMPLETED}
            rows.append(TrainingRun(name=f"trial {number}", command=command(draw), step=2000, **times, **same))
        values(TrainingRun.objects.bulk_create(rows), draw)


def command(draw: random.Random) -> str:
    chosen = [10 ** draw.uniform(-5, 0), 2 ** draw.randrange(4, 10), draw.choice(["sgd", "adam", "lion"]), 10 ** draw.uniform(-6, -2)]
    chosen += [draw.randrange(5) / 10, draw.randrange(2, 24), 64 * draw.randrange(1, 17), draw.randrange(5), draw.randrange(1000)]
    chosen += [draw.choice(["cosine", "linear"]), draw.choice(["on", "off"]), "/data/letters"]
    told = (
        f"--{name} {value:.4g}" if isinstance(value, float) else f"--{name} {value}" for name, value in zip(ARGUMENTS, chosen, strict=True)
    )
    return " ".join(["python main.py", *told])


def values(runs: list[object], draw: random.Random) -> None:
    """As `run_values` and `ingest` write them, many runs at once."""
    from experiments.models import MetricSeries, RunValue, TrainingRun
    from experiments.runs import run_values

    made = [run for run in runs if isinstance(run, TrainingRun)]
    run_values.begin(made[:2])
    for run in made[:2]:
        run_values.keep_curves(run, [(group, name) for group in ("train", "test") for name in NAMES])
    RunValue.objects.bulk_create(
        RunValue(run=run, kind="argument", name=name, text=text, number=run_values.number_of(text))
        for run in made[2:]
        for name, text in run_values.arguments_of(run.command, {}, {}).items()
    )
    MetricSeries.objects.bulk_create(
        MetricSeries(run=run, group=group, name=name, points=20, last_step=2000, last_value=draw.random(), **extremes)
        for run in made
        for group in ("train", "test")
        for name in NAMES
        for extremes in ({"least": draw.random() / 2, "least_step": 900, "greatest": 1 + draw.random(), "greatest_step": 7},)
    )
