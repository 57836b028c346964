"""A studio of somebody who is not root: two people's runs are kept apart without anybody's word, and train on while it is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests import somebody
from tests.e2e.moving import all_steps_once, completes, driver, host, hurry, paced_digits, submits, trains_on, with_digits
from tests.e2e.studio import REPOSITORY, Studio, wait_until

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(300),
    pytest.mark.skipif(bool(somebody.problem()), reason=somebody.problem()),
]
IDS = 200_000_000 + os.getpid() % 1000 * 100_000
COMMAND = "main.py --epochs 4"
DELETE = """
from experiments import services
from experiments.models import TrainingRun
run = TrainingRun.objects.get(pk={run})
services.delete_experiment(run.experiment, by=run.submitted_by)
"""
BOX = "SELECT sandbox_level FROM experiments_node WHERE name = 'local'"


@pytest.fixture
def studio(reachable: Path) -> Iterator[Studio]:
    within = somebody.commands_as_somebody(reachable, first=IDS)
    with with_digits(
        Studio(slots=2, trusting=False, settings={"EDT_ROOTLESS": "1", "EDT_STOPPED_DRIVER_S": "1"}, within=within, owner=somebody.USER)
    ) as studio:
        yield studio


def as_studio(studio: Studio, *command: str) -> None:
    subprocess.run([*studio.within, sys.executable, "-m", "training_runtime.host.rootless", *command], cwd=REPOSITORY, check=True)


def test_runs_have_users_of_their_own_and_outlive_studio_and_host_and_nothing_is_lost(studio: Studio, reachable: Path) -> None:
    run = submits(studio, paced_digits(reachable), command=COMMAND)
    trains_on(studio, run)
    trains = driver(studio.home, "local", run)
    assert IDS <= psutil.Process(trains).uids().real < IDS + somebody.IDS
    assert studio.folder(run).stat().st_uid == psutil.Process(trains).uids().real

    assert studio.process is not None
    studio.process.kill()
    os.kill(host(studio.home, "local"), signal.SIGKILL)
    studio.process.wait(10)
    del studio.settings["EDT_ROOTLESS"]  # the home says it
    studio.start()
    trains_on(studio, run)
    assert driver(studio.home, "local", run) == trains, "the same process: it is where it was"
    psutil.Process(trains).suspend()
    wait_until(lambda: not psutil.pid_exists(trains), lambda: f"the new host may end what the one before has started\n{studio.tail()}")
    hurry(studio)
    completes(studio, run)
    assert all_steps_once(studio, run)
    assert studio.rows(BOX) == [("user+landlock",)]
    files = studio.folder(run)
    studio.shell(DELETE.format(run=run))
    wait_until(lambda: not files.exists(), lambda: f"its files are put away\n{studio.tail()}")
    assert studio.stop() == 0

    refused = subprocess.run(
        [*studio.within, "env", "EDT_ROOTLESS=0", sys.executable, "manage.py", "prepare"],
        cwd=REPOSITORY,
        env=studio.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert refused.returncode == 2
    studio.give_to_owner()  # but for what this test itself has put there
    command = refused.stderr.split("runs here: python -m training_runtime.host.rootless ", 1)[1].split(" && ")[0]
    as_studio(studio, *command.replace("HOME", str(studio.home)).split())
    assert {path.lstat().st_uid for path in studio.home.rglob("*")} == {somebody.USER}, "all of it is theirs again"
