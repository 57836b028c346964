"""One job over two machines, as its owner and an administrator live through it: it has slots on both, one is drained, no bit changes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.bundles import zipped
from tests.e2e.moving import slots_of, workers_of
from tests.e2e.studio import Studio, wait_until
from tests.e2e.test_mishaps import run_definition, state
from tests.e2e.test_story import journal, make_project, steps_in_journal
from tests.engine.harness import weights
from tests.engine.scripts import HELD

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


@pytest.fixture
def studio() -> Iterator[Studio]:
    """Two slots on each of its machines."""
    studio = Studio(slots=2, address="127.0.0.1")
    try:
        studio.start()
        yield studio
    finally:
        studio.close()


def words(studio: Studio, run: int) -> str:
    """What studio, run and the other machine have said, and what the run holds."""
    logs = [*sorted(studio.folder(run).glob("log/*/*.log")), *sorted((studio.home / "machines").glob("*/*.log"))]
    tails = [f"--- {path}\n{path.read_text(errors='replace')[-1500:]}" for path in logs]
    return "\n".join([str(slots_of(studio, run)), *tails, studio.tail()])


def goes_on(studio: Studio, run: int) -> None:
    """Let the run begin its second epoch, for which its script waits."""
    wait_until(lambda: studio.folder(run).is_dir(), lambda: f"it has begun\n{studio.tail()}")
    (studio.folder(run) / "go").touch()


def allows_it(admin: Page, studio: Studio) -> None:
    admin.goto(f"{studio.url}/cluster/sharing/")
    admin.get_by_label("A run may use several machines").check()
    admin.get_by_role("button", name="Apply").click()
    expect(admin.locator("#history")).to_contain_text("allowed runs to use several machines")


def test_a_job_takes_slots_of_two_machines_loses_one_and_trains_exactly(
    studio: Studio, person: Callable[..., Page], tmp_path: Path
) -> None:
    waits = HELD.replace('while os.path.exists(folder + f"/stay-{epoch}")', 'while epoch == 2 and not os.path.exists(folder + "/go")')
    assert waits != HELD
    code = zipped(tmp_path / "small.zip", {"main.py": waits})
    admin, alice = person("admin", staff=True), person("alice")
    make_project(alice, "Wide", "")
    project = int(re.findall(r"/projects/(\d+)/", alice.url)[0])
    command = "main.py --epochs 30 --engines 4"
    fixed = run_definition(alice, studio, project, name="fixed", code=code, command=command)
    goes_on(studio, fixed)
    studio.join("second")
    wait_until(lambda: state(studio, fixed) == "completed", lambda: f"it trains on one machine\n{studio.tail()}", deadline_s=240)
    allows_it(admin, studio)
    admin.goto(f"{studio.url}/cluster/nodes/second/")

    run = run_definition(alice, studio, project, name="wide", code=code, command=command)
    wait_until(lambda: slots_of(studio, run) == {"local": 2, "second": 2}, lambda: f"it has slots on both\n{words(studio, run)}")
    wait_until(lambda: len(list(studio.folder(run).glob("log/worker-*"))) == 4, lambda: f"workers on all\n{words(studio, run)}")
    goes_on(studio, run)
    wait_until(lambda: workers_of(studio, run) == 4, lambda: f"all four train\n{words(studio, run)}")
    admin.get_by_role("button", name="Drain this node").click()
    wait_until(lambda: slots_of(studio, run) in ({"local": 2}, {}), lambda: f"only slots at home: {slots_of(studio, run)}\n{studio.tail()}")
    wait_until(lambda: state(studio, run) == "completed", lambda: f"it completes\n{words(studio, run)}", deadline_s=240)
    steps = steps_in_journal(studio, run)
    assert steps == list(range(1, len(steps) + 1)), "no step was lost or repeated"
    assert len(steps) == len(steps_in_journal(studio, fixed))
    sizes = [len(event["members"]) for event in journal(studio, run) if event["kind"] == "generation"]
    assert max(sizes) == 4
    assert sizes[-1] <= 2, "it went on without the other machine"
    assert weights(studio.folder(run)) == weights(studio.folder(fixed))
    assert studio.rows("SELECT n.name, s.abandoned FROM experiments_remoteagent s JOIN experiments_node n ON n.id = s.node_id") == [
        ("second", 0)
    ]
    alice.goto(f"{studio.url}/runs/{run}/logs/")
    expect(alice.get_by_role("link", name="agent-second")).to_be_visible()
