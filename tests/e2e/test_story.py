"""The main job, as two people do it in two browsers, with everything real underneath: Valkey, Celery, the node host, training processes.

Alice's experiment takes all four slots; Bob's comes while it runs and both hold two; when one is done the other has four again. Nobody's
training stops, no step is lost or repeated, and at the end every slot is free and no process is left. With EDT_PICTURES=FOLDER the test
also takes the pictures of docs/walkthrough.md.
"""

from __future__ import annotations

import itertools
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.bundles import DIGITS, digits
from tests.e2e.studio import Studio, wait_until

ALICES_EPOCHS, BOBS_EPOCHS = 8, 5
STEPS_PER_EPOCH = 24

pytestmark = [pytest.mark.e2e, pytest.mark.shared_studio(ends=True), pytest.mark.timeout(600)]


class Camera:
    """Takes the pictures of the walkthrough, when somebody asked for them."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder

    def shoot(self, page: Page, name: str) -> None:
        if self.folder is not None:
            page.wait_for_timeout(400)  # a picture, not a condition: let the fonts and the last update settle
            page.screenshot(path=self.folder / f"{name}.png")


def make_project(page: Page, name: str, description: str) -> None:
    page.get_by_role("link", name="New project").first.click()
    page.get_by_label("Name").fill(name)
    page.get_by_label("Description").fill(description)
    page.get_by_role("button", name="Create").click()
    expect(page.get_by_role("heading", level=1, name=name)).to_be_visible()


def open_assets(page: Page) -> None:
    page.get_by_role("link", name="Assets", exact=True).click()


def fill_definition(page: Page, form: str, *, name: str, zip_file: Path, command: str) -> None:
    """The fields of a training definition, in the form with this selector."""
    fields = page.locator(form)
    fields.get_by_label("Name").fill(name)
    fields.get_by_label("Description").fill("A small convolutional net on handwritten digits")
    fields.get_by_label(re.compile("Training source code")).set_input_files(zip_file)
    fields.get_by_label("Framework").select_option("pytorch")
    fields.get_by_label("Execution command").fill(command)
    fields.get_by_label("Device per slot").select_option("any")
    fields.get_by_label("Distributed training type").select_option(label="Elastic distributed training (exact)")  # as the tutorial says
    fields.get_by_label("Maximum number of slots").fill("4")


def run_number(page: Page) -> int:
    """The number of the newest run on the experiment's page."""
    link = page.locator("#runs a[href*='/runs/']").first
    expect(link).to_be_visible()
    found = re.search(r"/runs/(\d+)/", link.get_attribute("href") or "")
    assert found
    return int(found[1])


def shares(studio: Studio, first: int, second: int) -> list[tuple[int, int]]:
    """How many slots the two runs held, one entry for each change, from the grants."""
    changes: dict[str, list[int]] = {}
    for run, begin, end in studio.rows(
        "SELECT run_id, granted_at, released_at FROM experiments_grant WHERE run_id IN (?, ?)", first, second
    ):
        place = (first, second).index(run)
        changes.setdefault(begin, [0, 0])[place] += 1
        changes.setdefault(end, [0, 0])[place] -= 1
    totals = itertools.accumulate((changes[at] for at in sorted(changes)), lambda a, b: [a[0] + b[0], a[1] + b[1]])
    return [(a, b) for a, b in totals]


def journal(studio: Studio, run: int) -> list[dict[str, Any]]:
    """The events in the run's journal so far; a line that is being written is left out."""
    path = studio.folder(run) / "journal.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")] if path.exists() else []


def steps_in_journal(studio: Studio, run: int) -> list[int]:
    return [event["step"] for event in journal(studio, run) if event["kind"] == "train"]


def alice_runs_an_experiment(page: Page, studio: Studio, camera: Camera, code: Path) -> int:
    """Project, experiment with a new training definition in the side panel, Create and run; the number of the run."""
    make_project(page, "Handwriting", "Digits that people wrote")
    camera.shoot(page, "01-project")
    open_assets(page)
    page.get_by_role("link", name="New experiment").first.click()
    page.locator("#experiment-form").get_by_label("Name").fill("Digits, all of them")
    page.get_by_label("Source files folder").fill("digits")
    page.get_by_role("button", name="Add training definition").click()
    fill_definition(page, "#panel-form", name="digits-cnn", zip_file=code, command=f"main.py --width 24 --epochs {ALICES_EPOCHS}")
    camera.shoot(page, "02-training-definition")
    page.locator("#panel-form").get_by_role("button", name="Create").click()
    expect(page.locator("#associated")).to_contain_text("digits-cnn")
    camera.shoot(page, "03-new-experiment")
    page.get_by_role("button", name="Create and run").click()
    run = run_number(page)
    camera.shoot(page, "04-experiment")
    page.goto(f"{studio.url}/runs/{run}/")
    wait_until(lambda: studio.held().get(run) == 4, "Alice's run holds all four slots")
    expect(page.locator("body")).to_contain_text("4 of 4", timeout=30_000)
    expect(page.locator("canvas").first).to_be_visible(timeout=30_000)
    return run


def bob_prepares_an_experiment(page: Page, code: Path) -> None:
    """His own project, a training definition on its own page, an experiment with the existing one, ready to run."""
    make_project(page, "Night shift", "")
    open_assets(page)
    page.get_by_role("link", name="New training definition").first.click()
    fill_definition(page, "main form", name="bobs-digits", zip_file=code, command=f"python main.py --width 24 --epochs {BOBS_EPOCHS}")
    page.get_by_role("button", name="Create").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("bobs-digits")
    page.get_by_role("link", name="Night shift").first.click()
    open_assets(page)
    page.get_by_role("link", name="New experiment").first.click()
    page.locator("#experiment-form").get_by_label("Name").fill("Digits in halves")
    page.get_by_label("Source files folder").fill("digits")
    page.get_by_role("button", name="Add training definition").click()
    page.get_by_role("tab", name="Existing training definition").click()
    page.get_by_label(re.compile("bobs-digits")).check()
    page.get_by_role("button", name="Add", exact=True).click()


def both_pages_show_halves(alice: Page, bob: Page, runs: tuple[int, int]) -> None:
    """Live: nobody reloads anything."""
    for page in (alice, bob):
        for run in runs:
            expect(page.locator(f"#job-{run} [data-label='CPU slots']")).to_have_text("2", timeout=60_000)
    expect(alice.locator("#feed")).to_contain_text("4 → 2")


def every_step_happened_once(studio: Studio, epochs: dict[int, int]) -> None:
    """In the journals, and in the database that was filled from them."""
    stored = studio.rows(
        "SELECT s.run_id, COUNT(*), COUNT(DISTINCT m.step) FROM experiments_metric m JOIN experiments_metricseries s ON s.id = m.series_id"
        " WHERE s.name = 'loss' AND s.\"group\" = 'train' GROUP BY s.run_id"
    )
    points = {run: (count, distinct) for run, count, distinct in stored}
    for run, number in epochs.items():
        total = number * STEPS_PER_EPOCH
        assert steps_in_journal(studio, run) == list(range(1, total + 1))
        assert points[run] == (total, total)


def results_can_be_had(page: Page, studio: Studio, camera: Camera, run: int) -> None:
    """Opened only now, the pages show the whole history; metrics, model and log are there."""
    page.goto(f"{studio.url}/runs/{run}/")
    expect(page.locator("canvas").first).to_be_visible()
    expect(page.locator('[data-chart=":busy"]')).to_contain_text("%")
    expect(page.locator('[data-chart=":memory"]')).to_contain_text("largest slot")
    camera.shoot(page, "09-completed")
    page.get_by_role("link", name="Results").click()
    expect(page.get_by_text("Test accuracy", exact=True)).to_be_visible()
    camera.shoot(page, "10-results")
    with page.expect_download() as download:
        page.locator('#files a[href$="/files/model/train/model_epoch_final.pth"]').click()
    assert download.value.path().stat().st_size > 100_000
    with page.expect_download() as download:
        page.locator('#files a[href$="/files/log/driver/console.log"]').click()
    assert "epoch" in download.value.path().read_text()
    [(metrics,)] = studio.rows("SELECT final_metrics FROM experiments_trainingrun WHERE id = ?", run)
    assert json.loads(metrics)["test accuracy"] > 0.95


def both_completed(studio: Studio, *runs: int) -> bool:
    found = studio.rows("SELECT state, error_message, error_traceback FROM experiments_trainingrun WHERE id IN (?, ?)", *runs)
    states = {state for state, _, _ in found}
    assert "failed" not in states, found
    return states == {"completed"}


def test_two_peoples_jobs_share_four_slots(studio: Studio, person: Callable[..., Page], tmp_path: Path, pictures: Path | None) -> None:
    shutil.copytree(DIGITS / "data", studio.home / "data" / "digits", dirs_exist_ok=True)
    code = digits(tmp_path, part_s=0.1)
    camera = Camera(pictures)
    alice, bob = person("alice"), person("bob")
    bob_prepares_an_experiment(bob, code)
    alices = alice_runs_an_experiment(alice, studio, camera, code)

    alice.goto(f"{studio.url}/cluster/")  # she watches from here on
    alice.evaluate("window.notReloaded = true")
    expect(alice.locator(f"#job-{alices} [data-label='CPU slots']")).to_have_text("4")
    camera.shoot(alice, "05-cluster-alone")
    bob.get_by_role("button", name="Create and run").click()
    bobs = run_number(bob)
    bob.goto(f"{studio.url}/cluster/")
    both_pages_show_halves(alice, bob, (alices, bobs))
    wait_until(lambda: len(steps_in_journal(studio, bobs)) >= 30, "Bob's run makes steps on its half")
    camera.shoot(alice, "06-cluster-shared")
    bob.goto(f"{studio.url}/runs/{bobs}/")
    expect(bob.locator("canvas").first).to_be_visible(timeout=30_000)
    camera.shoot(bob, "07-run")
    bob.get_by_role("link", name="Overview").click()  # what its two workers do at this moment, measured by the host
    expect(bob.get_by_role("region", name="Slots now")).to_contain_text(re.compile(r"[1-9]\d* % at work"), timeout=30_000)
    both = bob.get_by_role("progressbar", name=re.compile("at work"))  # the second worker came later, and so do its first figures
    expect(both).to_have_count(2, timeout=30_000)

    wait_until(lambda: both_completed(studio, alices, bobs), "both runs are completed", deadline_s=400)
    expect(alice.locator(f"#job-{alices}")).to_contain_text("Completed")
    assert alice.evaluate("window.notReloaded")
    camera.shoot(alice, "08-cluster-after")
    wait_until(lambda: not studio.held(), "every slot is free")
    seen = shares(studio, alices, bobs)
    assert seen.index((4, 0)) < seen.index((2, 2)), seen
    assert {(4, 0), (0, 4)} & set(seen[seen.index((2, 2)) :]), seen
    every_step_happened_once(studio, {alices: ALICES_EPOCHS, bobs: BOBS_EPOCHS})
    results_can_be_had(alice, studio, camera, alices)

    for page in (alice, bob):
        page.context.close()  # an open page would rightly complain that its studio is gone
    assert studio.stop() == 0, studio.tail()  # Ctrl-C
    wait_until(lambda: not studio.processes(), f"no process is left: {studio.processes()}", deadline_s=10)
