"""A script that writes pictures for TensorBoard, boxed in as on every machine: they are looked at on its run's Media page while it runs."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.bundles import zipped
from tests.e2e.studio import Studio, wait_until
from tests.e2e.test_story import fill_definition, make_project, run_number

pytestmark = [pytest.mark.e2e, pytest.mark.shared_studio, pytest.mark.timeout(300)]
SCRIPT = """
import os, time
import torch
from torch.utils.tensorboard import SummaryWriter
with SummaryWriter() as writer:
    writer.add_image("digit", torch.rand(1, 28, 28), 1)
    writer.add_histogram("weights", torch.randn(1000), 1)
    writer.flush()
    while not os.path.exists(os.environ["RESULT_DIR"] + "/go"):
        time.sleep(0.01)
    writer.add_image("digit", torch.rand(1, 28, 28), 2)
    writer.add_hparams({"lr": 0.1}, {"accuracy": 0.5}, run_name=".")
"""


def test_pictures_are_on_the_page_while_the_script_runs(studio: Studio, person: Callable[..., Page], tmp_path: Path) -> None:
    alice = person("alice")
    make_project(alice, "Digits", "")
    project = re.findall(r"/projects/(\d+)/", alice.url)[0]
    alice.goto(f"{studio.url}/projects/{project}/experiments/new/")
    alice.locator("#experiment-form").get_by_label("Name").fill("with pictures")
    alice.get_by_role("button", name="Add training definition").click()
    fill_definition(alice, "#panel-form", name="looked at", zip_file=zipped(tmp_path / "code.zip", {"main.py": SCRIPT}), command="main.py")
    alice.locator("#panel-form").get_by_label("Distributed training type").select_option("single")
    alice.locator("#panel-form").get_by_role("button", name="Create").click()
    expect(alice.locator("#associated")).to_contain_text("looked at")
    alice.get_by_role("button", name="Create and run").click()
    run = run_number(alice)
    alice.goto(f"{studio.url}/runs/{run}/media/")
    digit = alice.locator("figure", has_text="digit")
    expect(digit).to_contain_text("step 1", timeout=60_000)
    assert digit.locator("img").evaluate("image => image.decode().then(() => image.naturalWidth)") == 28
    expect(alice.locator("figure", has_text="weights").locator("svg polygon")).to_have_count(1)
    (studio.folder(run) / "go").touch()
    expect(digit).to_contain_text("step 2", timeout=60_000)
    wait_until(
        lambda: studio.rows("SELECT state FROM experiments_trainingrun WHERE id = ?", run) == [("completed",)], "it ends", deadline_s=60
    )
    alice.goto(f"{studio.url}/runs/{run}/overview/")
    expect(alice.locator("#body")).to_contain_text(re.compile(r"Logged parameters.*lr\s*0\.1", re.S))
