"""The studio's own machine takes part by `edt-node join`, as any other: a run is on it and on another at once, and trains on
while the studio is started anew."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.joined import Joined, line_for
from tests.e2e.moving import (
    all_steps_once,
    completes,
    driver,
    hurry,
    may_use_several_machines,
    paced_digits,
    slots_of,
    submits,
    trains_on,
    with_digits,
    workers_of,
)
from tests.e2e.studio import Studio, wait_until
from tests.e2e.test_story import journal
from tests.engine.harness import weights

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]
COMMAND = "main.py --epochs 6"


@pytest.fixture
def studio() -> Iterator[Studio]:
    with with_digits(Studio(slots=2, address="127.0.0.1", settings={"EDT_NODE_LEASE_S": "10"})) as studio:
        yield studio


@pytest.fixture
def beta(studio: Studio) -> Iterator[Joined]:
    machine = Joined(studio, "beta", f"{line_for(studio, 'beta', slots=2)} --address 127.0.0.1", data=studio.home / "data")
    try:
        yield machine
    finally:
        machine.close()


def stops(studio: Studio, *how: str) -> None:
    assert studio.process is not None
    studio.manage("stop", *how)
    assert studio.process.wait(20) == 0


def test_a_run_is_on_the_studios_own_machine_and_on_a_joined_one_and_no_step_is_lost(studio: Studio, beta: Joined, tmp_path: Path) -> None:
    code = paced_digits(tmp_path, part_s=1)
    hurry(studio)
    straight = submits(studio, code, command=COMMAND)
    completes(studio, straight)

    hurry(studio, hurry=False)
    may_use_several_machines(studio)
    run = submits(studio, code, command=COMMAND)
    beta.arrives()
    both = {"local": 2, "beta": 2}
    wait_until(lambda: slots_of(studio, run) == both, lambda: f"it has slots on both\n{studio.tail()}\n{beta.tail()}", deadline_s=60)
    wait_until(lambda: workers_of(studio, run) == 4, lambda: f"and trains on both\n{studio.tail()}\n{beta.tail()}", deadline_s=60)
    trains_on(studio, run)

    before = driver(studio.home, "local", run)
    written = studio.folder(run) / "journal.jsonl"
    stops(studio, "--keep-training")
    assert written.is_file(), studio.tail()
    had = written.read_text().count('"kind":"train"')
    wait_until(lambda: written.read_text().count('"kind":"train"') > had, lambda: f"it trains while no studio is there\n{studio.tail()}")
    studio.start()
    trains_on(studio, run)
    assert driver(studio.home, "local", run) == before, "its driver is the same"

    stops(studio)
    assert [each for each in studio.processes() if str(beta.home) not in each.cmdline()] == [], "nothing of it is left"
    assert "suspended" in [event["kind"] for event in journal(studio, run)]
    assert [*(studio.home / "node" / "runs").glob("*"), *(studio.home / "node" / "code").glob("*")] == [], "no file is there twice"
    studio.start()
    hurry(studio)
    completes(studio, run, words=beta.tail())
    assert all_steps_once(studio, run)
    assert weights(studio.folder(run)) == weights(studio.folder(straight))
