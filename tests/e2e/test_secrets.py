"""A person gives a project a secret and runs a script that prints it: the run has it, and nothing that the studio keeps or shows has."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from secrets import token_hex

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.bundles import zipped
from tests.e2e.studio import Studio, wait_until
from tests.e2e.test_story import fill_definition, make_project, run_number

pytestmark = [pytest.mark.e2e, pytest.mark.shared_studio, pytest.mark.timeout(300)]
SECRET = f"hf_{token_hex(12)}"  # so that it is in no file of the tests, which notebooks may have packed
SCRIPT = f"""
import os
assert os.environ["TOKEN"][::-1] == {SECRET[::-1]!r}
print("I have", os.environ["TOKEN"], "and", os.environ["MODE"])
print({{"step": 1, "loss": 0.5, "token": os.environ["TOKEN"]}})
raise ValueError("401 for " + os.environ["TOKEN"])
"""


def kept_in(folder: Path) -> list[Path]:
    """The files below in which the value is to be read."""
    return [path for path in folder.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]


def test_a_secret_reaches_the_script_and_is_nowhere_to_be_read(studio: Studio, person: Callable[..., Page], tmp_path: Path) -> None:
    alice = person("alice")
    make_project(alice, "Fetched models", "")
    project = re.findall(r"/projects/(\d+)/", alice.url)[0]
    for name, kind, value in (("TOKEN", "yes", SECRET), ("MODE", "no", "offline")):
        alice.goto(f"{studio.url}/projects/{project}/variables/")
        alice.get_by_label("Name").fill(name)
        alice.get_by_label("Kind").select_option(kind)
        alice.get_by_label("Value").fill(value)
        alice.get_by_role("button", name="Save").click()
        expect(alice.locator("#variables")).to_contain_text(name)
    alice.goto(f"{studio.url}/projects/{project}/experiments/new/")
    alice.locator("#experiment-form").get_by_label("Name").fill("with a token")
    alice.get_by_role("button", name="Add training definition").click()
    code = zipped(tmp_path / "code.zip", {"main.py": SCRIPT})
    fill_definition(alice, "#panel-form", name="fetches", zip_file=code, command="main.py")
    alice.locator("#panel-form").get_by_label("Distributed training type").select_option("single")
    alice.locator("#panel-form").get_by_role("button", name="Create").click()
    expect(alice.locator("#associated")).to_contain_text("fetches")
    alice.get_by_role("button", name="Create and run").click()
    run = run_number(alice)
    ended = "SELECT state, error_message FROM experiments_trainingrun WHERE id = ?"
    wait_until(lambda: studio.rows(ended, run)[0][0] in ("failed", "completed"), "it ends", deadline_s=90)
    assert studio.rows(ended, run) == [("failed", "ValueError: 401 for ***")]

    log = (studio.folder(run) / "log" / "driver" / "console.log").read_text()
    assert "I have *** and offline" in log
    for page in ("logs/", "overview/", "", "log?name=driver", "log/driver/download", "logs/?name=*&q=have"):
        answer = alice.request.get(f"{studio.url}/runs/{run}/{page}")
        assert answer.ok, page
        assert SECRET not in answer.text(), page
    alice.goto(f"{studio.url}/runs/{run}/logs/")
    expect(alice.locator("body")).to_contain_text("I have *** and offline")

    copy = tmp_path / "backup"
    studio.manage("backup", str(copy))
    assert kept_in(copy) == []
    assert kept_in(studio.home) == []
    assert SECRET not in studio.output.read_text(errors="replace")
    assert kept_in(tmp_path) == []
