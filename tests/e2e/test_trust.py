"""A machine whose box does not keep people's code apart: one person's runs, with a second one nothing new does, until an administrator says
that they trust each other."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.bundles import zipped
from tests.e2e.studio import Studio, wait_until
from tests.e2e.test_story import fill_definition, make_project, run_number

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]
SCRIPT = "print('hello')\n"


@pytest.fixture
def studio() -> Iterator[Studio]:
    """A new one, with its first account only, whose runs keep the studio's user."""
    studio = Studio(settings={"EDT_UID_BASE": "0"}, first=True)
    try:
        studio.start()
        yield studio
    finally:
        studio.close()


def submit(page: Page, studio: Studio, code: Path) -> int:
    make_project(page, "Small", "")
    project = re.findall(r"/projects/(\d+)/", page.url)[0]
    page.goto(f"{studio.url}/projects/{project}/experiments/new/")
    page.locator("#experiment-form").get_by_label("Name").fill("hello")
    page.get_by_role("button", name="Add training definition").click()
    fill_definition(page, "#panel-form", name="hello", zip_file=code, command="main.py")
    page.locator("#panel-form").get_by_label("Distributed training type").select_option("single")
    page.locator("#panel-form").get_by_role("button", name="Create").click()
    expect(page.locator("#associated")).to_contain_text("hello")
    page.get_by_role("button", name="Create and run").click()
    return run_number(page)


def until_completed(studio: Studio, run: int) -> None:
    def state() -> str:
        return str(studio.rows("SELECT state FROM experiments_trainingrun WHERE id = ?", run)[0][0])

    wait_until(lambda: state() == "completed", lambda: f"run {run} completes, and is {state()}", deadline_s=90)


def test_with_a_second_person_runs_wait_until_an_administrator_says_that_they_trust_each_other(
    studio: Studio, person: Callable[..., Page], tmp_path: Path
) -> None:
    code = zipped(tmp_path / "code.zip", {"main.py": SCRIPT})
    admin = person("admin", staff=True)
    until_completed(studio, submit(admin, studio, code))
    ((level,),) = studio.rows("SELECT sandbox_level FROM experiments_node")
    assert level in ("landlock", "limits")

    alice = person("alice")
    run = submit(alice, studio, code)
    alice.goto(f"{studio.url}/runs/{run}/")
    expect(alice.locator("#head")).to_contain_text(f"waits: the box of local ({level}) does not keep people's code apart")
    expect(alice.locator("#head")).to_contain_text("says under Scheduling policy that you trust each other")
    assert studio.held() == {}
    assert not (studio.folder(run) / "log" / "driver").exists(), "nothing of it was started"

    admin.goto(f"{studio.url}/cluster/")
    expect(admin.locator("#tiles")).to_contain_text(f"Nothing new is run on local ({level})")
    admin.locator("#tiles").get_by_role("link", name="Scheduling policy").click()
    admin.get_by_label("The people here trust each other").check()
    admin.get_by_role("button", name="Apply").click()
    expect(admin.locator("#history")).to_contain_text("admin said that the people here trust each other with their code")
    until_completed(studio, run)
    for tab in ("", "logs/", "overview/", "results/"):
        alice.goto(f"{studio.url}/runs/{run}/{tab}")
        expect(alice.locator("#head")).to_contain_text(f"This studio's people trust each other: the box of local ({level}) does not keep")
    admin.goto(f"{studio.url}/cluster/")
    expect(admin.locator("#nodes")).to_contain_text("they trust each other")
    expect(admin.locator("#tiles")).not_to_contain_text("Nothing new is run")
