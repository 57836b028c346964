"""The loop that people live in, as a stranger goes through it: she runs the sample, tries three learning rates, finds the best, puts it
beside yesterday's from another experiment, registers it, sends its receipt, and reproduces it to the bit."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from edt_client import receipts
from tests.e2e.studio import IMPORTS, Studio, wait_until
from tests.e2e.test_story import run_number

pytestmark = [pytest.mark.e2e, pytest.mark.shared_studio, pytest.mark.timeout(420)]

RATES = ("0.0001", "0.001", "0.01")


def choose(page: Page, action: str) -> None:
    """From the menu in the head."""
    page.locator(".actions-menu > summary").click()
    page.locator(".actions-menu").get_by_text(action, exact=True).click()


def until_ended(studio: Studio, *runs: int) -> None:
    def states() -> set[str]:
        return {str(state) for run in runs for (state,) in studio.rows("SELECT state FROM experiments_trainingrun WHERE id = ?", run)}

    wait_until(lambda: states() == {"completed"}, lambda: f"runs {runs} are {states()}\n{studio.tail()}", deadline_s=180)


def run_the_sample(page: Page) -> int:
    page.get_by_role("button", name="Run the sample").click()
    page.wait_for_url("**/runs/*/")
    found = re.search(r"/runs/(\d+)/", page.url)
    assert found
    return int(found[1])


def stop(studio: Studio, run: int) -> None:
    """The sample trains for long, and has shown by then what it is to show."""
    studio.shell(f"{IMPORTS}\nrun = TrainingRun.objects.get(pk={run})\nservices.stop_run(run, by=run.submitted_by)")


def make_yesterdays(page: Page, studio: Studio) -> int:
    """Another experiment, from the page of the sample's run: its experiment once more, shorter."""
    page.get_by_role("navigation", name="Breadcrumb").get_by_role("link").last.click()
    choose(page, "Duplicate and edit")
    page.locator("#experiment-form").get_by_label("Name").first.fill("Yesterday")
    page.locator("#associated").get_by_label("Execution command").fill("main.py --epochs 1 --width 8")
    page.get_by_role("button", name="Create and run").click()
    expect(page.get_by_role("heading", level=1, name="Yesterday")).to_be_visible()
    return run_number(page)


def try_three_rates(page: Page, studio: Studio, run: int) -> list[int]:
    """From the page of a run, without writing a command."""
    page.goto(f"{studio.url}/runs/{run}/")
    choose(page, "Run with changes")
    page.get_by_text("Arguments of main.py").click()
    page.get_by_label("--lr").fill(", ".join(RATES))
    for argument, value in (("--epochs", "2"), ("--width", "8")):
        page.get_by_label(argument).fill(value)
    expect(page.locator("#makes")).to_have_text("Makes 3 runs")
    page.get_by_role("button", name="Run", exact=True).click()
    page.wait_for_url("**/experiments/*/**")
    (before,) = studio.rows("SELECT MAX(id) FROM experiments_trainingrun")[0]
    return [before - 2, before - 1, before]


def find_the_best(page: Page, studio: Studio, tried: list[int]) -> int:
    """The first of the project's run table, when it is sorted by the loss of the test."""
    page.get_by_role("navigation", name="Breadcrumb").get_by_role("link").last.click()
    page.get_by_role("link", name="Run table", exact=True).click()
    page.get_by_role("button", name="Test loss").click()
    expect(page.get_by_role("columnheader", name="Test loss")).to_have_attribute("aria-sort", "ascending")
    rows = page.locator(".run-table tbody input[name=run]").evaluate_all("boxes => boxes.map((box) => Number(box.value))")
    return next(run for run in rows if run in tried)


def compare(page: Page, runs: list[int], yesterdays: int) -> None:
    """Today's together and yesterday's, by what they were told; and in percent of yesterday's."""
    for run in (*runs, yesterdays):
        page.locator(f".run-table input[name=run][value='{run}']").check()
    page.get_by_role("button", name="Compare").click()
    page.wait_for_url("**/compare/?run=*")
    page.get_by_label("Group by").select_option("--epochs")
    expect(page.locator(".group-name").get_by_text("--epochs 2")).to_have_count(len(runs))
    expect(page.locator(".group-name").get_by_text("--epochs 1")).to_have_count(1)
    page.locator("#table").get_by_role("link", name=f"Take #{yesterdays} as baseline").click()
    expect(page.locator("#table").get_by_role("row", name="Test loss")).to_contain_text("%")
    expect(page.get_by_label("Group by")).to_have_value("--epochs")


def register(page: Page, studio: Studio, run: int) -> None:
    page.goto(f"{studio.url}/runs/{run}/")
    choose(page, "Register as a model")
    page.get_by_label("Model", exact=True).fill("Digits")
    page.get_by_role("button", name="Register").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Digits version 1")
    expect(page.locator("#body")).to_contain_text(".safetensors")


def send_the_receipt(page: Page, studio: Studio, run: int, to: Path) -> None:
    page.goto(f"{studio.url}/runs/{run}/overview/")
    with page.expect_download() as download:
        page.get_by_role("link", name="Download receipt").click()
    download.value.save_as(to)
    assert receipts.check(to.read_bytes()).problem == ""


def reproduce(page: Page) -> None:
    page.get_by_role("button", name="Reproduce").click()
    receipt = page.get_by_role("region", name="Receipt")
    expect(receipt).to_contain_text("It repeats run")

    def said() -> bool:
        page.reload()
        return "Identical, bit for bit" in receipt.inner_text()

    wait_until(said, receipt.inner_text, deadline_s=120, every_s=1)


def test_a_stranger_tries_compares_decides_and_shares(studio: Studio, person: Callable[..., Page], tmp_path: Path) -> None:
    page = person("charlie")
    sample = run_the_sample(page)
    yesterdays = make_yesterdays(page, studio)
    tried = try_three_rates(page, studio, sample)
    stop(studio, sample)
    until_ended(studio, yesterdays, *tried)
    best = find_the_best(page, studio, tried)
    compare(page, tried, yesterdays)
    register(page, studio, best)
    send_the_receipt(page, studio, best, tmp_path / "receipt.json")
    reproduce(page)


def test_the_guide_of_the_sample_ends_in_a_comparison_of_two_runs(studio: Studio, person: Callable[..., Page]) -> None:
    """As it is written there, with fewer epochs. Whatever the browser's console says against it fails the test."""
    page = person("bob")
    sample = run_the_sample(page)
    page.get_by_role("navigation", name="Breadcrumb").get_by_role("link", name="Sample").click()
    guide = page.get_by_role("region", name="What to try with this sample")
    expect(guide).to_contain_text("Compare the two, once they have completed")
    overview = page.url
    guide.get_by_role("link", name="Run it with changes").click()
    page.get_by_text("Arguments of main.py").click()
    page.get_by_label("--lr").fill("0.001, 0.003")
    for argument, value in (("--epochs", "2"), ("--width", "8")):
        page.get_by_label(argument).fill(value)
    page.get_by_role("button", name="Run", exact=True).click()
    page.wait_for_url("**/experiments/*/**")
    stop(studio, sample)
    pair = [number for (number,) in studio.rows("SELECT id FROM experiments_trainingrun ORDER BY id DESC LIMIT 2")][::-1]
    page.goto(overview)
    guide.get_by_role("link", name="Compare the two newest that have completed").click(timeout=240_000)  # it comes by itself
    page.wait_for_url(f"**/compare/?run={pair[0]}&run={pair[1]}")
    assert {state for run in pair for (state,) in studio.rows("SELECT state FROM experiments_trainingrun WHERE id = ?", run)} == {
        "completed"
    }
    expect(page.locator("#overlay .plot canvas")).to_have_count(1)
    for row in page.locator(".legend-box tbody tr").all():
        expect(row.locator("td").first).to_have_text(re.compile(r"^[0-9.e-]+$"))
    expect(page.locator(".parallel-line")).to_have_count(2)
    rates = page.locator("#table tr.differs", has=page.locator("th", has_text="--lr"))
    expect(rates.locator("td")).to_have_text(["0.001", "0.003"])
