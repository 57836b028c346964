"""How long people wait for slots: `python -m benchmarks.handover [--quick]`.

A whole studio in a folder of its own, warm and idle, with four CPU slots; everything goes the way it goes for a person, from the form of
"Run" over HTTP to the journal that the driver writes. `first_step_s`: sent → the run's first step is done, alone. `half_half_s`: sent while
somebody else's run trains on all four slots → both hold two, and both have done a step on two since. The stages are read from the
database, the node host's log and the journals, after each round.
"""

from __future__ import annotations

import argparse
import io
import os
import re
import shutil
import tempfile
import time
import uuid
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.report import finish, table
from benchmarks.studio import DEADLINE_S, Browser, studio

SCRIPT = """
import torch
from torch import nn
from fabric_model import FabricModel

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 4))
data = torch.utils.data.TensorDataset(torch.randn(6400, 32), torch.randint(0, 4, (6400,)))
optimizer = torch.optim.SGD(model.parameters(), 0.01)
FabricModel(model, lambda: (data, None), nn.functional.cross_entropy, optimizer).train(100000, 16, 4, checkpoint_freq=0)
"""
SAID = re.compile(r"^(\S+ \S+),(\d{3}) host INFO (.*) run=(\d+)")
Stages = list[tuple[str, float]]  # what was reached, and when: Unix seconds


@dataclass(frozen=True)
class Person:
    """Somebody at a browser, with an experiment that is ready to run."""

    browser: Browser
    experiment: int

    def submits(self) -> tuple[int, float]:
        """(run, when the form was sent)."""
        from experiments.models import TrainingRun

        sent = time.time()
        self.browser.post(f"/experiments/{self.experiment}/run/", idempotency_key=str(uuid.uuid4()))
        return TrainingRun.objects.filter(experiment=self.experiment).latest("pk").pk, sent

    def stops(self, run: int) -> None:
        self.browser.post(f"/runs/{run}/stop/")


def wait_for(what: str, condition: Callable[[], Any]) -> Any:
    """Looks often enough to be no part of what is measured: the times come from those who did it."""
    end = time.monotonic() + DEADLINE_S
    while not (found := condition()):
        assert time.monotonic() < end, f"after {DEADLINE_S:.0f} s still not: {what}"
        time.sleep(0.02)
    return found


def person(address: str, name: str, *, script: str = SCRIPT) -> Person:
    from experiments import services
    from experiments.accounts.passwords import give_password
    from experiments.models import ClusterRules, User

    ClusterRules.objects.update_or_create(pk=1, defaults={"people_trust_each_other": True})  # it is measured in weak boxes too
    password = give_password(name)
    user = User.objects.get(username=name)
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("main.py", script)
    archive.seek(0)
    project = services.create_project(by=user, name=f"{name}'s")
    version = services.create_definition(project, by=user, name="tiny", upload=archive, file_name="tiny.zip", command="main.py")
    experiment = services.create_experiment(project, by=user, name="Benchmark", versions=[version])
    browser = Browser(address)
    browser.get("/login/")
    browser.post("/login/", username=name, password=password)
    return Person(browser, experiment.pk)


class Witness:
    """What the processes of the studio in `home` wrote down about a run. All times in Unix seconds."""

    def __init__(self, home: Path) -> None:
        self.home = home

    def journal(self, run: int, kind: str) -> list[Any]:
        from experiments.files import runfiles
        from training_runtime import journal

        folder = runfiles.folder_of(run)
        assert folder is not None
        return [line for line in journal.follow(folder / journal.FILE_NAME) if line.event.kind == kind]

    def step(self, run: int, *, workers: int, after: float = 0.0) -> Any:
        """The first step that so many workers began after that time; None where there is none yet."""
        steps = self.journal(run, "train")
        return next((line for line in steps if line.event.workers == workers and line.t - line.event.step_s >= after), None)

    def host(self, run: int, words: str) -> float:
        """When the host last said so about the run."""
        found = [match for line in self._host_log() if (match := SAID.match(line)) and int(match[4]) == run and match[3].startswith(words)]
        at = found[-1]
        return time.mktime(time.strptime(at[1], "%Y-%m-%d %H:%M:%S")) + int(at[2]) / 1000

    def _host_log(self) -> Sequence[str]:
        return (self.home / "log" / "host.log").read_text().splitlines()


def holds(run: int) -> int:
    from experiments.models import Grant

    return Grant.objects.filter(run_id=run, released_at__isnull=True, release_requested_at__isnull=True).count()


def everything_ended() -> bool:
    from experiments.models import Grant, TrainingRun
    from experiments.models.runs import LIVE

    return not TrainingRun.objects.filter(state__in=LIVE).exists() and not Grant.objects.filter(released_at__isnull=True).exists()


def first_step(witness: Witness, alice: Person) -> Stages:
    from experiments.models import Grant, TrainingRun

    run, sent = alice.submits()
    wait_for("the first step", lambda: witness.journal(run, "train"))
    first, started = witness.journal(run, "train")[0], witness.journal(run, "started")[0]
    stages = [
        ("form sent", sent),
        ("form read: permission, run made", TrainingRun.objects.get(pk=run).submitted_at.timestamp()),
        ("committed, task reached the planner", min(grant.granted_at.timestamp() for grant in Grant.objects.filter(run_id=run))),
        ("planned, granted, node told its host", witness.host(run, "Start")),
        ("driver forked and boxed in", witness.host(run, "a driver runs")),
        ("script ran up to train()", started.t),
        ("workers forked and joined, step begins", first.t - first.event.step_s),
        ("first step done", first.t),
    ]
    alice.stops(run)
    wait_for("the run has ended", everything_ended)
    return stages


def half_half(witness: Witness, alice: Person, bob: Person) -> tuple[Stages, float]:
    """The stages up to Bob's first step on his half, and how long until both have done one."""
    from experiments.models import Grant, TrainingRun

    alices, _ = alice.submits()
    wait_for("Alice trains on all slots", lambda: witness.step(alices, workers=4))
    bobs, sent = bob.submits()
    wait_for("both hold half", lambda: holds(alices) == holds(bobs) == 2)
    granted = max(grant.granted_at.timestamp() for grant in Grant.objects.filter(run_id=bobs))
    own = wait_for("Bob steps on his half", lambda: witness.step(bobs, workers=2, after=granted))
    hers = wait_for("Alice steps on hers", lambda: witness.step(alices, workers=2, after=granted))
    given = list(Grant.objects.filter(run_id=alices, released_at__isnull=False))
    last_on_four = [line for line in witness.journal(alices, "train") if line.event.workers == 4][-1]
    stages = [
        ("form sent", sent),
        ("form read: permission, run made", TrainingRun.objects.get(pk=bobs).submitted_at.timestamp()),
        ("committed, task reached the planner", min(grant.release_requested_at.timestamp() for grant in given)),
        ("planned, node told host, host told Alice's driver", witness.host(alices, "TellMembers")),
        ("Alice's last step on four", last_on_four.t),
        ("two workers proven gone, noted by the studio", max(grant.released_at.timestamp() for grant in given)),
        ("the planner grants them to Bob", granted),
        ("planned, node told host, host told Bob's driver", witness.host(bobs, "TellMembers")),
        ("workers forked and joined, step begins", own.t - own.event.step_s),
        ("Bob's first step on two done", own.t),
    ]
    alice.stops(alices)
    bob.stops(bobs)
    wait_for("both have ended", everything_ended)
    return stages, max(own.t, hers.t) - sent


def show(title: str, rounds: Sequence[Stages]) -> None:
    """Milliseconds since the form was sent and for each stage: medians over the rounds, and the slowest."""
    rows = []
    for place, (name, _) in enumerate(rounds[0]):
        since = median(1000 * (stages[place][1] - stages[0][1]) for stages in rounds)
        spent = [1000 * (stages[place][1] - stages[max(0, place - 1)][1]) for stages in rounds]
        rows.append((name, f"{since:.0f}", f"{median(spent):.0f}", f"{max(spent):.0f}"))
    table(title, ("stage", "at ms", "took ms, median", "most"), rows)


def measure(home: Path, rounds: int) -> tuple[list[Stages], list[tuple[Stages, float]]]:
    with studio(home) as (address, _, _):
        import django

        django.setup()
        from experiments.models import Slot

        wait_for("the node has said what it has", lambda: Slot.objects.count() == 4)
        witness, alice, bob = Witness(home), person(address, "alice"), person(address, "bob")
        half_half(witness, alice, bob)  # warms up: the first task of each worker, code unpacked, caches
        alone = [first_step(witness, alice) for _ in range(rounds)]
        return alone, [half_half(witness, alice, bob) for _ in range(rounds)]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.handover", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    rounds = 3 if parser.parse_args().quick else 11
    home = Path(tempfile.mkdtemp(prefix="edt-benchmark-"))
    home.chmod(0o755)
    os.environ.update(EDT_HOME=str(home), DJANGO_SETTINGS_MODULE="webapp.settings")
    try:
        alone, shared = measure(home, rounds)
    finally:
        shutil.rmtree(home, ignore_errors=True)
    show("Submit to first step, an idle studio", alone)
    show("Second job submitted to both on their half", [stages for stages, _ in shared])
    first, half = [stages[-1][1] - stages[0][1] for stages in alone], [both for _, both in shared]
    rows = [("first_step_s", rounds, median(first), min(first), max(first)), ("half_half_s", rounds, median(half), min(half), max(half))]
    load = f"Load average of the last minute, which lags: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    table(load, ("figure", "rounds", "p50", "least", "most"), rows)
    finish("handover", {"half_half_s": round(median(half), 3), "first_step_s": round(median(first), 3)})


if __name__ == "__main__":
    main()
