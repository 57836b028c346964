"""The jobs of the chaos benchmark: two people keep four of them on four slots, and what each has to come to."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
import urllib.error
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from benchmarks.handover import Person, person
from tests.e2e.studio import Studio
from tests.engine.harness import weights
from tests.engine.scripts import SMALL
from training_runtime import journal

JOBS = 4
OPTIMIZERS = ("SGD", "Adam", "Nesterov", "Clipped")
EPOCHS, SAMPLES, ENGINES = 30, 331, 4
PACE = 0.02  # seconds that an engine takes: long enough to be hit in the middle of a step
PACED = """
import time
def loss(predicted, wanted):
    time.sleep(args.pace)
    return nn.functional.cross_entropy(predicted, wanted)
FabricModel(model, data, loss"""
SCRIPT = SMALL.replace("FabricModel(model, data, nn.functional.cross_entropy", PACED).replace(
    "args = parser.parse_args()",
    "parser.add_argument('--pace', type=float, default=0.0)\nargs = parser.parse_args()\ntorch.manual_seed(1)",
)
T = TypeVar("T")


def arguments_of(optimizer: str, epochs: int) -> list[str]:
    return ["--optimizer", optimizer, "--epochs", str(epochs), "--samples", str(SAMPLES), "--engines", str(ENGINES), "--checkpoint", "5"]


@dataclass(frozen=True)
class Outcome:
    """What must not depend on what happened: one hash of weights and optimizer, every metric of each step, and steps told twice."""

    weights: str
    metrics: dict[tuple[str, str], dict[int, float | None]]
    doubled: int


def outcome(folder: Path) -> Outcome:
    """Of a results folder, from its files alone."""
    metrics: dict[tuple[str, str], dict[int, float | None]] = {}
    doubled = 0
    for line in journal.follow(folder / journal.FILE_NAME):
        if isinstance(line.event, journal.Train | journal.Test):
            for name, value in line.event.metrics.items():
                points = metrics.setdefault((line.event.kind, name), {})
                doubled += line.event.step in points
                points[line.event.step] = value
    return Outcome(weights(folder), metrics, doubled)


def reference(optimizer: str, folder: Path, *, epochs: int) -> Outcome:
    """The same script on one slot, without the studio and without haste."""
    (folder / "main.py").write_text(SCRIPT)
    environment = {**os.environ, "EDT_SLOTS": "1", "RESULT_DIR": str(folder / optimizer)}
    command = [sys.executable, str(folder / "main.py"), *arguments_of(optimizer, epochs)]
    subprocess.run(command, env=environment, cwd=folder, check=True, capture_output=True)
    return outcome(folder / optimizer)


@dataclass
class Jobs:
    """Two people who keep so many jobs alive. `sent`: the optimizer of each run, by its number."""

    people: list[Person]
    experiments: dict[str, list[int]]  # by optimizer: one of each person
    sent: dict[int, str] = field(default_factory=dict)

    def states(self) -> dict[int, str]:
        from experiments.models import TrainingRun

        return dict(TrainingRun.objects.filter(pk__in=self.sent).values_list("pk", "state"))

    def live(self) -> list[int]:
        from experiments.models.runs import LIVE

        return [run for run, state in self.states().items() if state in LIVE]

    def send(self, deadline_s: float) -> None:
        """One more, as a person would whose page does not answer: the same form again, until it was taken. It is taken once."""
        from experiments.models import TrainingRun

        number = len(self.sent)
        optimizer, who = OPTIMIZERS[number % len(OPTIMIZERS)], self.people[number % len(self.people)]
        experiment = self.experiments[optimizer][number % len(self.people)]
        form, end = str(uuid.uuid4()), time.monotonic() + deadline_s
        while True:
            with contextlib.suppress(OSError, urllib.error.URLError):
                who.browser.post(f"/experiments/{experiment}/run/", idempotency_key=form)
                break
            assert time.monotonic() < end, "the studio has not taken a form for minutes"
            time.sleep(0.5)
        new = patiently(lambda: set(TrainingRun.objects.values_list("pk", flat=True))) - self.sent.keys()
        assert len(new) == 1, f"one form made the runs {sorted(new)}"
        self.sent[new.pop()] = optimizer


def patiently(ask: Callable[[], T], *, deadline_s: float = 120.0) -> T:
    """What the database answers, also when it is away for a while."""
    from django.db import DatabaseError, InterfaceError, close_old_connections

    end = time.monotonic() + deadline_s
    while True:
        try:
            return ask()
        except (DatabaseError, InterfaceError):
            close_old_connections()
            assert time.monotonic() < end, f"the database has not answered for {deadline_s:.0f} s"
            time.sleep(0.2)


def employ(studio: Studio, *, epochs: int) -> Jobs:
    """Alice and Bob, each with an experiment for every optimizer."""
    from experiments import services
    from experiments.models import Experiment, TrainingDefinition, User

    people = [person(studio.url, name, script=SCRIPT) for name in ("alice", "bob")]
    experiments: dict[str, list[int]] = {}
    for each in people:
        made = Experiment.objects.get(pk=each.experiment)
        version = TrainingDefinition.objects.get(project=made.project).versions.get()
        for optimizer in OPTIMIZERS:
            command = " ".join(["main.py", *arguments_of(optimizer, epochs), "--pace", str(PACE)])
            owner = User.objects.get(pk=made.created_by_id)
            new = services.create_experiment(made.project, by=owner, name=optimizer, versions=[version], global_command=command)
            experiments.setdefault(optimizer, []).append(new.pk)
    return Jobs(people, experiments)
