"""Scripts of people who have never heard of the studio, from a zip with their requirements.txt: as they are, with curves and results."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.bundles import zipped
from tests.e2e.studio import Studio, wait_until
from tests.e2e.test_story import fill_definition, make_project, run_number

pytestmark = [pytest.mark.e2e, pytest.mark.shared_studio, pytest.mark.timeout(600)]
MOST_TRIES = 4
STRANGERS = Path(__file__).parent / "strangers"


def submit(page: Page, studio: Studio, name: str, folder: Path, change: tuple[str, str] = ("", "")) -> int:
    """The number of the run of the script in `STRANGERS / name`, uploaded as a zip through the page of a new experiment. `change`: what
    stands there, and what is to."""
    project = re.findall(r"/projects/(\d+)/", page.url)[0]
    page.goto(f"{studio.url}/projects/{project}/experiments/new/")
    page.locator("#experiment-form").get_by_label("Name").fill(name)
    page.get_by_role("button", name="Add training definition").click()
    files = {str(path.relative_to(STRANGERS / name)): path.read_text() for path in (STRANGERS / name).rglob("*") if path.is_file()}
    assert change[0] in files["train.py"]
    files["train.py"] = files["train.py"].replace(*change)
    fill_definition(page, "#panel-form", name=name, zip_file=zipped(folder / f"{name}.zip", files), command="train.py")
    page.locator("#panel-form").get_by_label("Distributed training type").select_option("single")
    page.locator("#panel-form").get_by_label("Maximum number of slots").fill("")  # one, as for any such script
    page.locator("#panel-form").get_by_role("button", name="Create").click()
    expect(page.locator("#associated")).to_contain_text(name)
    page.get_by_role("button", name="Create and run").click()
    run = run_number(page)
    page.goto(f"{studio.url}/projects/{project}/")
    return run


def ended(studio: Studio, run: int) -> bool:
    query = "SELECT state, state_reason, error_message, error_traceback FROM experiments_trainingrun WHERE id = ?"
    ((state, *why),) = studio.rows(query, run)
    assert state != "failed", (why, studio.tail())
    return bool(state == "completed")


CURVES = {
    "yaml_trainer": {"train_loss", "val_accuracy"},
    "lightning": {"train_loss", "val_accuracy"},
    "transformers": {"loss", "eval_loss", "eval_accuracy", "learning_rate"},
}
RESULTS = {
    "yaml_trainer": [r"outputs/best\.pt", r"outputs/metrics\.jsonl", r"train\.log"],
    "lightning": [r"lightning_logs/digits/version_0/checkpoints/.*\.ckpt", r"lightning_logs/digits/version_0/hparams\.yaml"],
    "transformers": [r"out/final/model\.safetensors", r"out/checkpoint-\d+/trainer_state\.json"],
}


@pytest.fixture
def packages() -> None:
    """Somewhere on this machine's way to packages there are those that the scripts name, as pip sees it."""
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--quiet", "--no-deps", "lightning", "transformers", "mlflow-skinny"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no package index answers here: {done.stderr.strip()[-200:]}")


@pytest.mark.usefixtures("packages")
def test_three_strangers_find_their_curves_and_results(studio: Studio, person: Callable[..., Page], tmp_path: Path) -> None:
    alice = person("alice")
    make_project(alice, "Brought along", "")
    runs = {name: submit(alice, studio, name, tmp_path) for name in CURVES}
    for name, run in runs.items():
        wait_until(lambda run=run: ended(studio, run), lambda name=name: f"{name} completes\n{studio.tail()}", deadline_s=300)
    for name, run in runs.items():
        alice.goto(f"{studio.url}/runs/{run}/")
        for curve in CURVES[name]:
            expect(alice.locator(f'[data-chart="{curve}"]')).to_be_visible()
        alice.goto(f"{studio.url}/runs/{run}/results/")
        links = alice.locator('#files a[href*="/files/"]')
        expect(links.first).to_be_visible()
        there = links.evaluate_all("all => all.map((one) => decodeURIComponent(one.pathname))")
        for file in RESULTS[name]:
            assert any(re.search(f"/files/(.+/)?{file}$", path) for path in there), (name, file, there)
    for name in ("lightning", "transformers"):
        runs_in_a_spare_process(studio, alice, runs[name])


def runs_in_a_spare_process(studio: Studio, page: Page, first: int) -> None:
    """Run again, sooner or later it finds its packages imported: when the process that imports them is ready is the machine's affair."""
    ((experiment,),) = studio.rows("SELECT experiment_id FROM experiments_trainingrun WHERE id = ?", first)
    for _ in range(MOST_TRIES):
        page.goto(f"{studio.url}/experiments/{experiment}/")
        page.get_by_role("button", name="Run again").first.click()
        page.wait_for_load_state("networkidle")
        ((run,),) = studio.rows("SELECT MAX(id) FROM experiments_trainingrun WHERE experiment_id = ?", experiment)
        assert run > first
        wait_until(lambda run=run: ended(studio, run), lambda run=run: f"{run} completes\n{studio.tail()}", deadline_s=300)
        (how,) = re.findall(rf"a run is started (.*) run={run}\b", studio.output.read_text(errors="replace"))
        if how.startswith("in a spare process"):
            return
    raise AssertionError(f"none of {MOST_TRIES} was: {how}\n{studio.tail()}")


LONGER = {"lightning": ("max_epochs=4", "max_epochs=40"), "transformers": ("num_train_epochs=3", "num_train_epochs=20")}
STEPS = {"lightning": 40 * 47, "transformers": 20 * 25}


@pytest.mark.usefixtures("packages")
@pytest.mark.parametrize("name", LONGER)
def test_a_strangers_training_that_is_paused_goes_on_where_it_was(
    studio: Studio, person: Callable[..., Page], tmp_path: Path, name: str
) -> None:
    alice = person("alice")
    make_project(alice, f"Paused {name}", "")
    run = submit(alice, studio, name, tmp_path, LONGER[name])

    def step() -> int:
        return int(studio.rows("SELECT step FROM experiments_trainingrun WHERE id = ?", run)[0][0])

    wait_until(lambda: step() > STEPS[name] / 5, lambda: f"{name} trains\n{studio.tail()}", deadline_s=300)
    alice.goto(f"{studio.url}/runs/{run}/")
    alice.get_by_role("button", name="Pause").click()
    wait_until(lambda: not studio.held(), lambda: f"{name} has left its slot\n{studio.tail()}")
    assert not ended(studio, run), "there was something to pause"
    alice.get_by_role("button", name="Resume").click()
    wait_until(lambda: ended(studio, run), lambda: f"{name} completes\n{studio.tail()}", deadline_s=300)
    log = (studio.folder(run) / "log" / "driver" / "console.log").read_text()
    (saved,) = re.findall(r"Told to end: saved .*\(step (\d+)\)", log)
    assert re.findall(r"goes on from .*\(step (\d+)\)", log) == [saved]
    assert int(saved) > STEPS[name] / 5
