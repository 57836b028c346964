"""Slurm's jobs are those of whoever asks for them: a studio that is not root's gets machines on which runs have users of their own."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests import somebody
from tests.e2e.moving import all_steps_once, completes, drains, gets_on, hurry, paced_digits, submits, with_digits
from tests.e2e.slurm import Engine, needs_slurm, slurm
from tests.e2e.studio import Studio, wait_until
from tests.e2e.test_pilots import COMMAND, POOL, words

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(300),
    needs_slurm,
    pytest.mark.skipif(bool(somebody.problem()), reason=somebody.problem()),
]
IDS = 300_000_000 + os.getpid() % 1000 * 100_000
BOX = "SELECT sandbox_level FROM experiments_node WHERE name = 'work-1'"


@pytest.fixture
def within(reachable: Path) -> tuple[str, ...]:
    return somebody.commands_as_somebody(reachable, first=IDS)


@pytest.fixture
def engine(reachable: Path, within: tuple[str, ...]) -> Iterator[Engine]:
    with slurm(somebody.commands_that_know_somebody(reachable)) as engine:
        os.chown(engine.folder / "pilots", somebody.USER, somebody.USER)
        yield engine


@pytest.fixture
def studio(engine: Engine, within: tuple[str, ...]) -> Iterator[Studio]:
    made = Studio(slots=2, settings={"EDT_NODE_LEASE_S": "10", **engine.settings}, within=within, owner=somebody.USER)
    command = Path(sys.executable).with_name("edt-node")
    made.settings["EDT_PILOT_COMMAND"] = f"EDT_ROOTLESS=1 {command} join --data-root {made.home}/data --temporary"
    with with_digits(made) as studio:
        yield studio


def runs_under(folder: Path) -> set[int]:
    """Whose the processes are that work in a folder of a run there."""
    found = set()
    for process in psutil.process_iter():
        try:
            if process.cwd().startswith(f"{folder}/") and "/runs/" in process.cwd():
                found.add(process.uids().real)
        except (psutil.Error, OSError):
            continue
    return found


def test_a_pilot_that_is_somebodys_keeps_runs_apart_and_leaves_nothing_behind(studio: Studio, engine: Engine, reachable: Path) -> None:
    studio.shell(POOL.format(url=studio.url, idle=0.05))
    drains(studio, local=True)
    run = submits(studio, paced_digits(reachable), command=COMMAND)
    gets_on(studio, run, on="work-1")
    assert engine.says("squeue", "--noheader", "--format=%U").split() == [str(somebody.USER)]
    assert studio.rows(BOX) == [("user+landlock",)]
    users = runs_under(engine.folder / "pilots")
    assert users
    assert users <= set(range(IDS, IDS + somebody.IDS)), "of those that are set aside for somebody"
    hurry(studio)
    completes(studio, run, words=words(studio))
    assert all_steps_once(studio, run)
    wait_until(lambda: engine.jobs() == [], lambda: f"it is given back\n{words(studio)}\n{engine.tail()}")
    wait_until(lambda: not list((engine.folder / "pilots").iterdir()), "it has left nothing behind")
