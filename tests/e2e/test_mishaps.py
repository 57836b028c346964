"""What goes wrong, as a person sees it: scripts that fail, jobs that are stopped, a studio that is killed while it trains."""

from __future__ import annotations

import os
import re
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.bundles import DIGITS, digits, zipped
from tests.e2e.studio import Studio, wait_until
from tests.e2e.test_story import (
    every_step_happened_once,
    fill_definition,
    journal,
    make_project,
    open_assets,
    run_number,
    steps_in_journal,
)
from tests.web.browsing import agree

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

FAILS = """
import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--depth", type=int)
options = parser.parse_args()


def build_the_model(depth):
    raise ValueError(f"a depth of {depth} cannot be built")


build_the_model(options.depth)
"""


def run_definition(
    page: Page, studio: Studio, project: int, *, name: str, code: Path, command: str, folder: str = "", data: str = ""
) -> int:
    """Create and run an experiment with a new definition; the run's number. `data`: the name of a data asset."""
    page.goto(f"{studio.url}/projects/{project}/experiments/new/")
    page.locator("#experiment-form").get_by_label("Name").fill(name)
    if data:
        choice = page.locator("#id_data_asset")
        choice.select_option(choice.locator("option", has_text=data).get_attribute("value"))
    page.get_by_label("Source files folder").fill(folder)
    page.get_by_role("button", name="Add training definition").click()
    fill_definition(page, "#panel-form", name=name, zip_file=code, command=command)
    page.locator("#panel-form").get_by_role("button", name="Create").click()
    expect(page.locator("#associated")).to_contain_text(name)
    page.get_by_role("button", name="Create and run").click()
    return run_number(page)


def state(studio: Studio, run: int) -> str:
    return str(studio.rows("SELECT state FROM experiments_trainingrun WHERE id = ?", run)[0][0])


@pytest.mark.shared_studio
def test_a_failed_script_shows_its_traceback_and_a_job_is_stopped_from_both_places(
    studio: Studio, person: Callable[..., Page], tmp_path: Path
) -> None:
    shutil.copytree(DIGITS / "data", studio.home / "data" / "digits")
    code = digits(tmp_path)
    fails = zipped(tmp_path / "fails.zip", {"train.py": FAILS})
    alice = person("alice")
    make_project(alice, "Mishaps", "")
    project = int(re.findall(r"/projects/(\d+)/", alice.url)[0])

    # a bad zip and an unknown script are refused where they were given, with nothing half-made
    nonsense = tmp_path / "nonsense.zip"
    nonsense.write_bytes(b"this is no zip")
    open_assets(alice)
    alice.get_by_role("link", name="New training definition").first.click()
    fill_definition(alice, "main form", name="nonsense", zip_file=nonsense, command="train.py")
    alice.get_by_role("button", name="Create").click()
    expect(alice.locator("main")).to_contain_text("not a zip file")
    fill_definition(alice, "main form", name="nonsense", zip_file=fails, command="missing.py")
    alice.get_by_role("button", name="Create").click()
    expect(alice.locator("main")).to_contain_text("missing.py")
    assert studio.rows("SELECT COUNT(*) FROM experiments_trainingdefinition WHERE name = 'nonsense'") == [(0,)]

    # a script that raises: state, reason and traceback on the run's page; a wrong argument: the script's own words
    raises = run_definition(alice, studio, project, name="raises", code=fails, command="train.py --depth 3")
    alice.goto(f"{studio.url}/runs/{raises}/")
    expect(alice.locator("main")).to_contain_text("Failed", timeout=30_000)
    expect(alice.locator("main")).to_contain_text("ValueError: a depth of 3 cannot be built")
    expect(alice.locator("main")).to_contain_text("build_the_model(options.depth)")
    argument = run_definition(alice, studio, project, name="argument", code=fails, command="train.py --width 3")
    alice.goto(f"{studio.url}/runs/{argument}/")
    expect(alice.locator("main")).to_contain_text("unrecognized arguments: --width 3", timeout=30_000)

    # stopped from the cluster page, and from the run's own
    first = run_definition(alice, studio, project, name="long", code=code, command="main.py --epochs 500", folder="digits")
    alice.goto(f"{studio.url}/cluster/")
    wait_until(lambda: state(studio, first) == "running", "the first job runs")
    alice.locator(f"#job-{first}").get_by_role("button", name="Stop").click()
    agree(alice)
    expect(alice.locator(f"#job-{first}")).to_contain_text("Stopped", timeout=30_000)
    second = run_definition(alice, studio, project, name="longer", code=code, command="main.py --epochs 500", folder="digits")
    alice.goto(f"{studio.url}/runs/{second}/")
    wait_until(lambda: state(studio, second) == "running", "the second job runs")
    alice.get_by_role("button", name="Stop").click()
    agree(alice)
    expect(alice.locator("main")).to_contain_text("Stopped", timeout=30_000)
    wait_until(lambda: not studio.held(), "every slot is free")


def test_training_goes_on_while_everything_above_it_is_killed(studio: Studio, person: Callable[..., Page], tmp_path: Path) -> None:
    shutil.copytree(DIGITS / "data", studio.home / "data" / "digits")
    code = digits(tmp_path)
    alice = person("alice")
    make_project(alice, "Unkillable", "")
    project = int(re.findall(r"/projects/(\d+)/", alice.url)[0])
    run = run_definition(alice, studio, project, name="endures", code=code, command="main.py --epochs 5", folder="digits")
    wait_until(lambda: len(steps_in_journal(studio, run)) > 3, "the job trains")
    alice.context.close()

    # kill -9 of the studio: the supervisor, and with it web, agent and control; then of the node host
    assert studio.process is not None
    os.kill(studio.process.pid, signal.SIGKILL)
    studio.process.wait(10)
    for process in studio.processes("training_runtime.host"):
        process.kill()
    before = len(steps_in_journal(studio, run))
    wait_until(lambda: len(steps_in_journal(studio, run)) > before + 3, "the job trains on with nobody above it")

    # the studio comes back: nothing was started twice, nothing was lost
    studio.start()
    wait_until(lambda: state(studio, run) == "completed", "the job is completed", deadline_s=180)
    every_step_happened_once(studio, {run: 5})
    assert [event["attempt"] for event in journal(studio, run) if event["kind"] == "started"] == [1]
    assert studio.stop() == 0, studio.tail()
    wait_until(lambda: not studio.processes(), f"no process is left: {studio.processes()}", deadline_s=10)
