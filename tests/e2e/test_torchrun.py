"""Two scripts for torchrun share four slots: one elastic, from the pages; one with a fixed number, as distPyTorch from a command line."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.bundles import zipped
from tests.e2e.studio import Studio, wait_until
from tests.e2e.test_rest import Terminal
from tests.e2e.test_story import fill_definition, make_project, run_number
from tests.engine.scripts import TORCHELASTIC

pytestmark = [pytest.mark.e2e, pytest.mark.shared_studio, pytest.mark.timeout(600)]
SAMPLES = 480


def allow(studio: Studio, run: int, samples: int) -> None:
    """The script goes as far as this."""
    wait_until(studio.folder(run).is_dir, f"run {run} has its folder")
    beside = studio.home / f"allowed-{run}"
    beside.write_text(str(samples))
    beside.chmod(0o644)
    beside.replace(studio.folder(run) / "allowed")


def until_shown(studio: Studio, run: int, samples: int) -> None:
    path = studio.folder(run) / "checkpoint.pt.count"
    wait_until(lambda: path.exists() and int(path.read_text() or 0) >= samples, f"run {run} has shown {samples} samples", deadline_s=120)


def workers(studio: Studio, run: int) -> list[int]:
    """How many workers each start had."""
    return [count for (count,) in studio.rows("SELECT workers FROM experiments_generationrecord WHERE run_id = ? ORDER BY seq", run)]


def test_an_elastic_script_makes_room_for_a_fixed_one_and_grows_again(studio: Studio, person: Callable[..., Page], tmp_path: Path) -> None:
    import torch

    alice = person("alice")
    make_project(alice, "Distributed", "")
    project = re.findall(r"/projects/(\d+)/", alice.url)[0]
    alice.goto(f"{studio.url}/projects/{project}/experiments/new/")
    alice.locator("#experiment-form").get_by_label("Name").fill("elastic")
    alice.get_by_role("button", name="Add training definition").click()
    code = zipped(tmp_path / "code.zip", {"main.py": TORCHELASTIC})
    fill_definition(alice, "#panel-form", name="elastic", zip_file=code, command="torchrun --nproc-per-node=4 main.py --batch-size 2")
    alice.locator("#panel-form").get_by_label("Distributed training type").select_option("torchrun elastic")
    alice.locator("#panel-form").get_by_role("button", name="Create").click()
    expect(alice.locator("#associated")).to_contain_text("torchrun elastic, up to 4 slots")
    alice.get_by_role("button", name="Create and run").click()
    elastic = run_number(alice)
    wait_until(lambda: studio.held().get(elastic) == 4, "the elastic run holds all slots")
    allow(studio, elastic, 64)
    until_shown(studio, elastic, 64)

    terminal = Terminal(studio, tmp_path)
    terminal.run("--logon", "--username", "bob", "--password", studio.account("bob"))
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "main.py").write_text(TORCHELASTIC)
    printed = terminal.run("--exec-start", "distPyTorch", "--numWorker", "2", "--model-dir", "model", "--model-main", "main.py")
    fixed = int(json.loads(printed[printed.index("{") :])["execId"].removeprefix("wmla-"))
    wait_until(lambda: studio.held() == {elastic: 2, fixed: 2}, "they share the slots", deadline_s=120)
    allow(studio, fixed, SAMPLES)
    allow(studio, elastic, 128)
    until_shown(studio, elastic, 128)
    wait_until(lambda: studio.held() == {elastic: 4}, "the fixed one is done and its slots went to the other", deadline_s=180)
    wait_until(lambda: workers(studio, elastic)[-1] == 4, "its workers are four again", deadline_s=120)
    allow(studio, elastic, SAMPLES)
    wait_until(lambda: not studio.held(), "both have ended", deadline_s=180)

    for run in (elastic, fixed):
        alice_or_bob = studio.rows("SELECT state, error_message FROM experiments_trainingrun WHERE id = ?", run)
        wait_until(
            lambda run=run: studio.rows("SELECT state FROM experiments_trainingrun WHERE id = ?", run) == [("completed",)],
            str(alice_or_bob),
        )
        assert Counter(torch.load(studio.folder(run) / "checkpoint.pt")["shown"]) == Counter(range(SAMPLES))
        assert (studio.folder(run) / "final.pt").exists()
    assert (workers(studio, elastic)[0], workers(studio, fixed)) == (4, [2])
    assert 2 in workers(studio, elastic)
    alice.goto(f"{studio.url}/runs/{elastic}/")
    expect(alice.locator("main")).to_contain_text("4 → 2")
    expect(alice.locator("main")).to_contain_text("started again")
