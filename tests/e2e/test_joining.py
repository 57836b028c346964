"""A machine joins with one command and shares nothing with the studio but that: an administrator adds it, jobs run on it, move to it and
back, and outlive it."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.bundles import DIGITS, digits
from tests.e2e.joined import Joined, line_for
from tests.e2e.moving import (
    all_steps_once,
    completes,
    drains,
    forget_machines,
    gets_on,
    hurry,
    paced_digits,
    start_with_digits,
    straight_weights,
    submits,
)
from tests.e2e.shared import Shared
from tests.e2e.studio import Studio, wait_until
from tests.e2e.test_mishaps import run_definition, state
from tests.e2e.test_story import journal, make_project, steps_in_journal
from tests.engine.harness import weights
from tests.web.browsing import violations
from training_runtime.node.folders import look

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]
UPLOAD = """
import pathlib
from experiments import services
from experiments.models import Experiment, Project, User
alice, project = User.objects.get(username="alice"), Project.objects.get(pk={project})
files = [(path.name, path.stat().st_size, path.open("rb")) for path in sorted(pathlib.Path({folder!r}).iterdir())]
print(services.add_data(project, by=alice, name="Digits of people", files=files).pk)
"""
CONTINUE = """
from experiments import services
from experiments.models import TrainingRun
run = TrainingRun.objects.get(pk={run})
print(services.continue_run(run, by=run.submitted_by, command="main.py --epochs 2").pk)
"""


@pytest.fixture(scope="module")
def joinable() -> Iterator[Shared]:
    """Two slots, and machines that are given up after twelve seconds; one that has been there is forgotten."""
    shared = Shared(lambda: Studio(slots=2, settings={"EDT_NODE_LEASE_S": "2"}), begin=start_with_digits, tidy=forget_machines)
    yield shared
    shared.close()


@pytest.fixture
def studio(joinable: Shared) -> Iterator[Studio]:
    with joinable.for_a_test() as studio:
        yield studio


@pytest.fixture
def joined(studio: Studio) -> Iterator[Callable[..., Joined]]:
    """`joined(name, line)`: a machine; all of it is gone when the test ends. `data`: a folder that it shares with the studio."""
    machines: list[Joined] = []

    def make(name: str, line: str, *, data: bool = True) -> Joined:
        machines.append(Joined(studio, name, line, data=studio.home / "data" if data else None))
        return machines[-1]

    try:
        yield make
    finally:
        for machine in machines:
            machine.close()


def sums(folder: Path) -> dict[str, str]:
    """Of each file of a run's folder that is to be the same in the studio and on the machine."""
    return {file.path: hashlib.sha256((folder / file.path).read_bytes()).hexdigest() for file in look(folder)}


def test_an_administrator_adds_a_machine_with_one_line_and_a_job_runs_on_it(
    studio: Studio, person: Callable[..., Page], joined: Callable[..., Joined], tmp_path: Path
) -> None:
    admin, alice = person("admin", staff=True), person("alice")
    admin.goto(f"{studio.url}/cluster/")
    admin.get_by_role("link", name="Add a machine").click()
    admin.get_by_label("Name").fill("beta")
    admin.get_by_role("button", name="Make its token").click()
    expect(admin.locator("#arriving")).to_contain_text("Nothing has called with this token yet")
    assert not violations(admin)
    line = admin.locator("#line").inner_text()
    machine = joined("beta", line, data=False)
    machine.arrives()
    expect(admin.locator("#arriving")).to_contain_text("beta has joined from 127.0.0.1 with 4 slots", timeout=20_000)
    admin.reload()
    expect(admin.locator("#arriving")).to_contain_text("beta has joined")
    assert line not in admin.content(), "the token is shown once"

    drains(studio, local=True)
    make_project(alice, "Far away", "")
    project = int(re.findall(r"/projects/(\d+)/", alice.url)[0])
    studio.shell(UPLOAD.format(project=project, folder=str(DIGITS / "data")))
    code = digits(tmp_path, part_s=0.01)
    run = run_definition(alice, studio, project, name="digits", code=code, command="main.py --epochs 1", data="Digits of people")
    wait_until(lambda: state(studio, run) == "completed", lambda: f"it has completed\n{studio.tail()}\n{machine.tail()}", deadline_s=120)
    assert not (studio.home / "host" / "local").joinpath(f"run-{run}.1.sock").exists(), "the studio's own machine had nothing to do with it"
    wait_until(lambda: ".trash" in machine.folder(run).parts, lambda: f"it has put away what it had\n{machine.tail()}")
    there = sums(machine.folder(run))
    assert sums(studio.folder(run)) == there
    assert {"journal.jsonl", "checkpoint/engine.pt", "log/driver/console.log"} <= there.keys()
    alice.goto(f"{studio.url}/runs/{run}/")
    expect(alice.locator("#head")).to_contain_text("Completed")
    alice.goto(f"{studio.url}/runs/{run}/results/")
    expect(alice.get_by_text("console.log").first).to_be_visible()
    later = int(studio.shell(CONTINUE.format(run=run)).split()[-1])
    wait_until(
        lambda: state(studio, later) == "completed", lambda: f"one that begins with it has completed\n{machine.tail()}", deadline_s=120
    )
    assert steps_in_journal(studio, later)[0] == steps_in_journal(studio, run)[-1] + 1
    assert machine.leaves() == 0


def test_a_job_moves_to_a_joined_machine_and_back_and_outlives_it_bit_for_bit(
    studio: Studio, joined: Callable[..., Joined], tmp_path: Path
) -> None:
    machine = joined("gamma", line_for(studio, "gamma", slots=2))
    machine.arrives()
    drains(studio, gamma=True)
    code = paced_digits(tmp_path)
    straight = straight_weights(studio, code, command="main.py --epochs 8")

    moved = submits(studio, code, command="main.py --epochs 8")
    gets_on(studio, moved, on="local")
    drains(studio, local=True, gamma=False)
    gets_on(studio, moved, on="gamma")
    assert machine.folder(moved).is_dir()
    drains(studio, local=False, gamma=True)
    gets_on(studio, moved, on="local")
    assert all_steps_once(studio, moved), "no step was lost or repeated"
    drains(studio, local=True, gamma=False)
    gets_on(studio, moved, on="gamma")

    drains(studio, local=False)
    machine.burns()
    gets_on(studio, moved, on="local")
    assert [event["kind"] for event in journal(studio, moved)].count("resumed") == 4
    hurry(studio)
    completes(studio, moved)
    assert all_steps_once(studio, moved)
    assert weights(studio.folder(moved)) == straight
    words = [reason for (reason,) in studio.rows("SELECT reason FROM experiments_runtransition WHERE run_id = ?", moved)]
    assert any("has not been heard of for 12 s, so its lease is over. It goes on elsewhere" in reason for reason in words), words

    machine.arrives()  # with what it had, which counts no more
    wait_until(lambda: ".trash" in machine.folder(moved).parts, lambda: f"it has put away what it had\n{machine.tail()}")
    assert studio.held() == {}


def test_a_machine_that_is_cut_off_stops_by_itself_and_goes_on_when_it_is_heard_again(
    studio: Studio, joined: Callable[..., Joined], tmp_path: Path
) -> None:
    machine = joined("delta", line_for(studio, "delta", slots=2))
    machine.arrives()
    drains(studio, local=True)
    run = submits(studio, digits(tmp_path, part_s=0.05), command="main.py --epochs 60")
    gets_on(studio, run, on="delta")
    assert machine.process is not None
    machine.process.send_signal(signal.SIGSTOP)

    def here() -> list[dict[str, object]]:
        lines = (machine.folder(run) / "journal.jsonl").read_text().splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.endswith("\n")]

    wait_until(lambda: here()[-1]["kind"] == "suspended" or "suspended" in str(here()[-3:]), lambda: f"it suspends\n{here()[-3:]}")
    done = len([event for event in here() if event["kind"] == "train"])
    copy = joined("delta", machine.line)
    copy.home.rmdir()
    shutil.copytree(machine.home, copy.home, ignore=shutil.ignore_patterns("*.sock", "runs", "host", "link.log", "identity"))
    copy.start()
    assert copy.process is not None
    assert copy.process.wait(60) == 1, copy.tail()
    assert "Another machine has joined with this token as delta" in copy.tail()

    machine.process.send_signal(signal.SIGCONT)
    wait_until(lambda: len(steps_in_journal(studio, run)) > done + 3, lambda: f"it goes on\n{machine.tail()}\n{studio.tail()}")
    assert all_steps_once(studio, run), "no step was lost or repeated"
    assert state(studio, run) == "running"
    studio.stop_all_runs()
