"""The studio's own machine takes part by `edt-node join`, as any other: a run is on it and on another at once, trains on while the studio
is started anew, and goes on where the machine takes part as it did before."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.bundles import DIGITS, digits
from tests.e2e.joined import Joined, line_for
from tests.e2e.studio import Studio, wait_until
from tests.e2e.test_joining import submits
from tests.e2e.test_mishaps import state
from tests.e2e.test_several_joined import RULE
from tests.e2e.test_several_machines import slots_of, workers_of
from tests.e2e.test_story import journal, steps_in_journal
from tests.engine.harness import weights

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]
JOINS = {"EDT_NODE_JOINS": "1"}
COMMAND = "main.py --epochs 6"
PART_S = "0 if __import__('os').path.exists(__import__('os').environ['DATA_DIR'] + '/quick') else 1"  # as long as a test needs it


@pytest.fixture
def studio() -> Iterator[Studio]:
    studio = Studio(slots=2, address="127.0.0.1", settings={"EDT_NODE_LEASE_S": "10", **JOINS})
    try:
        studio.start()
        shutil.copytree(DIGITS / "data", studio.home / "data" / "digits")
        yield studio
    finally:
        studio.close()


@pytest.fixture
def beta(studio: Studio) -> Iterator[Joined]:
    machine = Joined(studio, "beta", f"{line_for(studio, 'beta', slots=2)} --address 127.0.0.1", data=studio.home / "data")
    try:
        yield machine
    finally:
        machine.close()


def driver(studio: Studio, run: int) -> int:
    """The run's driver, as the host under the studio's own link has it written down."""
    saved = json.loads((studio.home / "node" / "host" / "local" / "state.json").read_text())
    (found,) = [int(each["pid"]) for each in saved["runs"] if each["run"] == run]
    return found


def trains_on(studio: Studio, run: int) -> None:
    before = len(steps_in_journal(studio, run))
    wait_until(lambda: len(steps_in_journal(studio, run)) > before + 2, lambda: f"it trains on\n{studio.tail()}", deadline_s=60)


def stops(studio: Studio, *how: str) -> None:
    assert studio.process is not None
    studio.manage("stop", *how)
    assert studio.process.wait(20) == 0


def test_a_run_is_on_the_studios_own_machine_and_on_a_joined_one_and_no_step_is_lost(studio: Studio, beta: Joined, tmp_path: Path) -> None:
    code, quick = digits(tmp_path, part_s=PART_S), studio.home / "data" / "digits" / "quick"
    quick.touch()
    straight = submits(studio, code, command=COMMAND)
    wait_until(lambda: state(studio, straight) == "completed", lambda: f"one trains through here\n{studio.tail()}", deadline_s=90)

    quick.unlink()
    studio.manage("shell", "--no-imports", "-c", RULE)
    run = submits(studio, code, command=COMMAND)
    beta.arrives()
    both = {"local": 2, "beta": 2}
    wait_until(lambda: slots_of(studio, run) == both, lambda: f"it has slots on both\n{studio.tail()}\n{beta.tail()}", deadline_s=60)
    wait_until(lambda: workers_of(studio, run) == 4, lambda: f"and trains on both\n{studio.tail()}\n{beta.tail()}", deadline_s=60)
    trains_on(studio, run)

    before = driver(studio, run)
    written = studio.home / "node" / "runs" / studio.folder(run).name / "journal.jsonl"
    stops(studio, "--keep-training")
    assert written.is_file(), studio.tail()
    had = written.read_text().count('"kind":"train"')
    wait_until(lambda: written.read_text().count('"kind":"train"') > had, lambda: f"it trains while no studio is there\n{studio.tail()}")
    studio.start()
    trains_on(studio, run)
    assert driver(studio, run) == before, "its driver is the same"

    stops(studio)
    assert [each for each in studio.processes() if str(beta.home) not in each.cmdline()] == [], "nothing of it is left"
    assert "suspended" in [event["kind"] for event in journal(studio, run)], "what was written last is in the studio"
    studio.settings["EDT_NODE_JOINS"] = "0"
    studio.start()
    assert studio.rows("SELECT joined FROM experiments_node WHERE name = 'local'") == [(0,)]
    quick.touch()
    wait_until(lambda: state(studio, run) == "completed", lambda: f"it completes\n{studio.tail()}\n{beta.tail()}", deadline_s=90)
    steps = steps_in_journal(studio, run)
    assert steps == list(range(1, len(steps) + 1)), "every step is there once"
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
