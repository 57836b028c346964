"""The studio's own machine takes part by `edt-node join`, as any other: a run is on it and on another at once, trains on while the studio
is started anew, and goes on where the machine takes part as it did before."""

from __future__ import annotations

import subprocess
import sys
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
JOINS = {"EDT_NODE_JOINS": "1"}
COMMAND = "main.py --epochs 6"


@pytest.fixture
def studio() -> Iterator[Studio]:
    with with_digits(Studio(slots=2, address="127.0.0.1", settings={"EDT_NODE_LEASE_S": "10", **JOINS})) as studio:
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

    before = driver(studio.home / "node", "local", run)
    written = studio.home / "node" / "runs" / studio.folder(run).name / "journal.jsonl"
    stops(studio, "--keep-training")
    assert written.is_file(), studio.tail()
    had = written.read_text().count('"kind":"train"')
    wait_until(lambda: written.read_text().count('"kind":"train"') > had, lambda: f"it trains while no studio is there\n{studio.tail()}")
    studio.start()
    trains_on(studio, run)
    assert driver(studio.home / "node", "local", run) == before, "its driver is the same"

    stops(studio)
    assert [each for each in studio.processes() if str(beta.home) not in each.cmdline()] == [], "nothing of it is left"
    assert "suspended" in [event["kind"] for event in journal(studio, run)], "what was written last is in the studio"
    studio.settings["EDT_NODE_JOINS"] = "0"
    studio.start()
    assert studio.rows("SELECT joined FROM experiments_node WHERE name = 'local'") == [(0,)]
    hurry(studio)
    completes(studio, run, words=beta.tail())
    assert all_steps_once(studio, run)
    assert weights(studio.folder(run)) == weights(studio.folder(straight))


def test_its_host_is_renewed_alone_and_the_studio_is_not_started_in_the_other_way_beside_it(studio: Studio) -> None:
    lock = studio.home / "node" / "host" / "local" / "host.lock"
    wait_until(lambda: lock.exists() and lock.read_text().strip(), lambda: f"it has a host\n{studio.tail()}")
    before = lock.read_text()
    studio.manage("stop", "--host-only")
    wait_until(lambda: lock.read_text().strip() not in ("", before.strip()), lambda: f"it has another host\n{studio.tail()}")
    stops(studio, "--keep-training")
    other = {**studio.environment, "EDT_NODE_JOINS": "0"}
    command = [sys.executable, "manage.py", "studio", "--port", str(studio.port)]
    refused = subprocess.run(command, cwd=studio.code, env=other, capture_output=True, text=True, timeout=60)
    assert refused.returncode == 2
    assert "was started with EDT_NODE_JOINS=1 and still runs" in refused.stderr
    studio.start()
    stops(studio)
