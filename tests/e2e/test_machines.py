"""Two machines, as an administrator lives through it: one is taken out of service while it trains, and its job goes on on the other."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.bundles import DIGITS, digits
from tests.e2e.moving import slots_of
from tests.e2e.studio import Studio, wait_until
from tests.e2e.test_mishaps import run_definition, state
from tests.e2e.test_story import journal, make_project, steps_in_journal
from tests.web.browsing import agree

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


def takes_out_of_service(admin: Page, studio: Studio, node: str) -> None:
    admin.goto(f"{studio.url}/cluster/nodes/{node}/")
    admin.get_by_role("button", name="Preview", exact=True).click()
    expect(admin.locator("#preview").get_by_role("row", name="digits alice")).to_contain_text("moves from local to second")
    admin.get_by_role("button", name="Drain this node").click()


def test_a_job_moves_to_another_machine_when_its_own_is_taken_out_of_service(
    studio: Studio, person: Callable[..., Page], tmp_path: Path
) -> None:
    shutil.copytree(DIGITS / "data", studio.home / "data" / "digits")
    code = digits(tmp_path)
    admin, alice = person("admin", staff=True), person("alice")
    make_project(alice, "Moving", "")
    project = int(re.findall(r"/projects/(\d+)/", alice.url)[0])
    run = run_definition(alice, studio, project, name="digits", code=code, command="main.py --epochs 500", folder="digits")
    wait_until(lambda: len(steps_in_journal(studio, run)) > 3, "it trains")
    assert set(slots_of(studio, run)) == {"local"}

    studio.join("second")
    takes_out_of_service(admin, studio, "local")
    wait_until(lambda: set(slots_of(studio, run)) == {"second"}, lambda: f"the run has slots on the other machine\n{studio.tail()}")
    before = len(steps_in_journal(studio, run))
    wait_until(lambda: len(steps_in_journal(studio, run)) > before + 3, lambda: f"it goes on there\n{studio.tail()}")
    alice.goto(f"{studio.url}/runs/{run}/")
    expect(alice.locator("#head")).to_contain_text("holds 4 of 4 slots")

    admin.goto(f"{studio.url}/cluster/")
    expect(admin.locator("svg.lanes .lane-node")).to_have_text(["local", "second"])

    alice.get_by_role("button", name="Stop").click()
    agree(alice)
    wait_until(lambda: state(studio, run) == "stopped", "it is stopped")
    steps = steps_in_journal(studio, run)
    assert steps == list(range(1, len(steps) + 1)), "no step was lost or repeated"
    assert [event["kind"] for event in journal(studio, run)].count("resumed") == 1
