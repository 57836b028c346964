"""A run's files in a real browser: folders that open, by keys and without script too, found under an address that keeps what was asked."""

from __future__ import annotations

import os

import pytest
from playwright.sync_api import Locator, Page, Route, expect

from tests.web.browsing import BY_LOOK, WCAG, Site, Visit, go, violations

FILES = "**/results/?part=files*"


def folder(page: Page, name: str) -> Locator:
    return page.locator("#files").get_by_role("button", name=name, exact=True)


@pytest.mark.parametrize(("width", "theme"), [(1280, "light"), (1280, "dark"), (360, "light"), (360, "dark")])
def test_the_tree_is_read_in_both_themes_at_both_widths(width: int, theme: str, site: Site, visit: Visit) -> None:
    page = visit(width=width, theme=theme)
    go(page, site, "results")
    expect(folder(page, "model")).to_have_attribute("aria-expanded", "true")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert not violations(page, WCAG if theme == "light" else BY_LOOK)
    if to := os.environ.get("SHOTS"):
        page.screenshot(path=f"{to}/results-{width}-{theme}.png", full_page=True)


def test_folders_open_and_close_and_the_address_says_which(site: Site, visit: Visit) -> None:
    page = visit()
    go(page, site, "results")
    expect(page.locator("#live")).to_have_text("Live")
    model = folder(page, "model")
    expect(page.get_by_role("link", name="model_epoch_20.pth", exact=True)).to_be_visible()
    model.focus()
    page.keyboard.press("Enter")
    expect(model).to_have_attribute("aria-expanded", "false")
    expect(model).to_be_focused()
    expect(page.get_by_role("link", name="model_epoch_20.pth", exact=True)).to_have_count(0)
    page.wait_for_url("**?*open=checkpoint*")
    page.reload()
    expect(folder(page, "model")).to_have_attribute("aria-expanded", "false")


def test_what_is_open_and_found_stays_while_the_run_writes_more(site: Site, visit: Visit) -> None:
    page = visit()
    go(page, site, "results")
    expect(page.locator("#live")).to_have_text("Live")
    folder(page, "model").click()
    expect(folder(page, "model")).to_have_attribute("aria-expanded", "false")
    site.tell("files artifacts/frames 300")
    expect(folder(page, "artifacts")).to_have_attribute("aria-expanded", "false")
    expect(folder(page, "model")).to_have_attribute("aria-expanded", "false")
    folder(page, "artifacts").click()
    folder(page, "frames").click()
    expect(page.get_by_text("100 more in artifacts/frames.")).to_be_visible()
    page.get_by_role("button", name="Show more of each folder").click()
    expect(page.get_by_role("link", name="299.txt", exact=True)).to_have_count(1)
    page.get_by_label("Show only files with").fill("frames 29")
    expect(page.locator("#files")).to_contain_text("13 of")
    page.wait_for_url("**?q=frames+29*")
    page.get_by_label("Kind").select_option(label="Checkpoint")
    expect(page.locator("#files")).to_contain_text("No file matches")


def test_a_folder_stays_as_it_was_put_when_an_answer_from_before_comes_late(site: Site, visit: Visit) -> None:
    page = visit()
    held: list[Route] = []
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.route(FILES, lambda route: route.continue_() if held else held.append(route))
    with page.expect_request(FILES):  # as the page becomes live
        page.goto(f"{site.pages['url']}{site.pages['results']}?tree=1&of=&open=model")
    expect(folder(page, "model")).to_have_attribute("aria-expanded", "true")
    # Nobody waits for the answer from before.
    with page.expect_event("requestfailed", lambda request: request == held[0].request):
        folder(page, "model").click()
    expect(folder(page, "model")).to_have_attribute("aria-expanded", "false")
    site.tell("files late 3")
    expect(folder(page, "late")).to_be_visible()
    expect(folder(page, "model"), f"it stays closed; asked for were {asked}").to_have_attribute("aria-expanded", "false")


def test_folders_open_without_script(site: Site, visit: Visit) -> None:
    page = visit(script=False)
    page.goto(f"{site.pages['url']}{site.pages['results']}?tree=1&of=&open=model")
    folder(page, "model").click()
    expect(folder(page, "model")).to_have_attribute("aria-expanded", "false")
    folder(page, "model").click()
    expect(folder(page, "model")).to_have_attribute("aria-expanded", "true")
    page.get_by_label("Kind").select_option(label="Log")
    page.get_by_role("button", name="Filter").click()
    expect(page.locator("#files")).to_contain_text("console.log")
    expect(page.get_by_role("link", name="model_epoch_20.pth", exact=True)).to_have_count(0)
