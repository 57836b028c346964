"""The table of runs in a real browser: chosen, found, sorted, grouped, kept, opened by another member, taken away as a file; by keys."""

from __future__ import annotations

import csv
from pathlib import Path

from playwright.sync_api import Page, expect

from tests.web.browsing import Site, Visit, go, violations


def names(page: Page) -> list[str]:
    return page.locator(".run-table tbody th").all_inner_texts()


def test_a_table_is_made_kept_and_opened_by_another_member(visit: Visit, site: Site, tmp_path: Path) -> None:
    page = visit()
    page.goto(site.pages["url"] + site.pages["project"] + "runs/")
    page.get_by_role("link", name="Columns").click()
    chooser = page.locator("dialog#columns")
    chooser.get_by_label("Find a column").fill("best test acc")
    chooser.get_by_role("checkbox", name="Best test accuracy", exact=True).check()
    chooser.get_by_label("Find a column").fill("")
    chooser.get_by_role("checkbox", name="Submitter", exact=True).uncheck()
    chooser.get_by_role("checkbox", name="Pin train loss", exact=True).check()
    chooser.get_by_role("button", name="Move Experiment up").click()
    assert violations(page) == []
    chooser.get_by_role("button", name="Show these").click()
    heads = page.locator(".run-table thead th")
    expect(heads.nth(2)).to_have_text("Train loss")
    expect(heads.nth(3)).to_have_text("Experiment")
    expect(page.get_by_role("columnheader", name="Best test accuracy")).to_be_visible()
    expect(page.get_by_role("columnheader", name="Submitter")).to_have_count(0)
    left = page.locator(".run-table tbody .pin").first.evaluate("cell => [getComputedStyle(cell).position, cell.style.left]")
    assert left[0] == "sticky"
    assert float(left[1].removesuffix("px")) > 100, "beside the name, which stays too"

    page.get_by_label("Filter runs by value").fill("loss < ")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("A value is expected here")
    page.get_by_label("Filter runs by value").fill("loss < 9 and user in (alice, bob)")
    page.get_by_role("button", name="Apply").click()
    expect(page.locator(".table-count")).to_contain_text("of")
    page.get_by_role("button", name="Train loss").click()
    expect(page.get_by_role("columnheader", name="Train loss")).to_have_attribute("aria-sort", "ascending")
    values = [float(cell) for cell in page.locator(".run-table tbody .pin").all_inner_texts()]
    assert values == sorted(values)
    assert len(values) >= 3

    page.locator(".views-menu > summary").click()
    page.get_by_label("Keep this table as").fill("The best first")
    page.get_by_role("button", name="Save view").click()
    expect(page.locator(".notes")).to_contain_text("Saved as The best first")
    page.locator(".views-menu > summary").click()
    shared = page.locator(".view-row a").first.get_attribute("href")
    found = names(page)
    with page.expect_download() as file:
        page.get_by_role("link", name="CSV").click()
    file.value.save_as(tmp_path / "runs.csv")
    rows = list(csv.DictReader((tmp_path / "runs.csv").read_text().splitlines()))
    assert [f"{row['name']} #{row['id']}" for row in rows] == found
    assert "best(test.accuracy) step" in rows[0]

    other = visit(username="victor")
    other.goto(site.pages["url"] + str(shared))
    expect(other.locator(".views-menu > summary")).to_contain_text("The best first")
    assert names(other) == found
    other.get_by_label("Group by").select_option(label="State")
    other.get_by_role("button", name="Apply").click()
    expect(other.get_by_role("columnheader", name="Mean train loss")).to_be_visible()
    other.get_by_role("link", name="Completed").click()
    expect(other.locator(".run-table tbody tr")).to_have_count(1)
    assert violations(other) == []


def test_runs_are_ticked_and_opened_by_keys_and_stay_ticked_while_they_train(visit: Visit, site: Site) -> None:
    page = visit()
    go(page, site, "run table")
    boxes = page.locator(".run-table input[name=run]")
    page.locator(".run-table").focus()
    page.keyboard.press("ArrowDown")
    expect(boxes.first).to_be_focused()
    page.keyboard.press("Space")
    page.keyboard.press("Shift+ArrowDown")
    expect(page.locator("[data-selected]")).to_have_text("2 selected")
    running = page.locator("tr[data-run] [data-metric='train loss']")
    before = running.inner_text()
    expect(page.locator("#live")).to_have_text("Live")
    site.tell("steps 5")
    expect(running).not_to_have_text(before)
    expect(page.locator("[data-selected]")).to_have_text("2 selected")
    expect(boxes.nth(1)).to_be_focused()
    page.keyboard.press("End")
    expect(boxes.last).to_be_focused()
    name = page.locator(".run-table tbody th a").last.inner_text()
    page.keyboard.press("Enter")
    page.wait_for_url("**/runs/*/")
    expect(page.get_by_role("heading", level=1)).to_contain_text(name)
