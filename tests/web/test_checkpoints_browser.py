"""Which checkpoints a live run keeps, said in a real browser."""

from __future__ import annotations

import os

import pytest
from playwright.sync_api import expect

from tests.web.browsing import BY_LOOK, WCAG, Site, Visit, go, violations


@pytest.mark.parametrize(("width", "theme"), [(1280, "light"), (360, "dark")])
def test_a_live_run_is_told_which_checkpoints_to_keep(width: int, theme: str, site: Site, visit: Visit) -> None:
    page = visit(width=width, theme=theme)
    go(page, site, "run")
    page.get_by_role("link", name="Priority and slots").click()
    form = page.locator("#checkpoints-form")
    form.get_by_label("Keep the last checkpoints").fill("3")
    form.get_by_label("and the best").fill("1")
    form.get_by_label("by the metric").fill("loss")
    form.get_by_role("button", name="Set checkpoints").click()
    expect(page.locator("#toast")).to_contain_text("Name the metric that says which are best")
    page.reload()
    page.get_by_role("link", name="Priority and slots").click()
    form.get_by_label("Keep the last checkpoints").fill("3")
    form.get_by_label("and the best").fill("1")
    form.get_by_label("by the metric").fill("test accuracy")
    form.get_by_label("best is").select_option("max")
    assert not violations(page, WCAG if theme == "light" else BY_LOOK)
    if to := os.environ.get("SHOTS"):
        page.screenshot(path=f"{to}/checkpoints-{width}-{theme}.png")
    form.get_by_role("button", name="Set checkpoints").click()
    expect(page.locator("#toast")).to_contain_text("keeps the last 3 checkpoints and the one with the highest test accuracy")
    page.reload()
    page.get_by_role("link", name="Priority and slots").click()
    expect(form.get_by_label("by the metric")).to_have_value("test accuracy")


@pytest.mark.parametrize(("width", "theme"), [(1280, "dark"), (360, "light")])
def test_alerts_stand_beside_the_curves_and_events_are_chosen_by_kind(width: int, theme: str, site: Site, visit: Visit) -> None:
    page = visit(width=width, theme=theme)
    go(page, site, "run")
    alerts, charts = page.locator("#watches-title"), page.locator("#chart-list")
    above, below = charts.bounding_box(), alerts.bounding_box()
    assert above and below and below["y"] > above["y"]
    kinds = page.get_by_role("navigation", name="Kinds of events")
    kinds.get_by_role("link").nth(1).click()
    expect(kinds.get_by_role("link").nth(1)).to_have_attribute("aria-current", "true")
    page.wait_for_url("**?*events=*")
    page.reload()
    expect(kinds.get_by_role("link").nth(1)).to_have_attribute("aria-current", "true")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert not violations(page, WCAG if theme == "light" else BY_LOOK)
    if to := os.environ.get("SHOTS"):
        page.screenshot(path=f"{to}/run-{width}-{theme}.png", full_page=True)
