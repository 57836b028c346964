"""The chart of usage in a real browser."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.web.browsing import BY_LOOK, WCAG, Site, Visit, go, violations


@pytest.mark.parametrize(("width", "theme"), [(1280, "light"), (1280, "dark"), (360, "light"), (360, "dark")])
def test_usage_is_drawn_in_both_themes_and_fits(width: int, theme: str, visit: Visit, site: Site) -> None:
    page = visit(width=width, theme=theme)
    page.goto(site.pages["url"] + site.pages["usage"] + "?days=1")
    bars = page.locator(".usage-bars")
    expect(bars).to_have_count(2)
    boxes = [bar.bounding_box() for bar in bars.all()]
    plot = page.locator(".usage-plot svg").bounding_box()
    assert plot
    for box in boxes:
        assert box
        assert box["height"] > 2
        assert box["y"] >= plot["y"] - 1
        assert box["x"] + box["width"] <= plot["x"] + plot["width"] + 1
    fills = page.evaluate("[...document.querySelectorAll('.usage-bars')].map((bar) => getComputedStyle(bar).fill)")
    keys = page.evaluate("[...document.querySelectorAll('.usage-legend .swatch')].map((each) => getComputedStyle(each).backgroundColor)")
    assert fills == keys
    assert len(set(fills)) == 2
    page.get_by_text("View as table").click()
    cells = page.locator(".usage-table tbody td:last-child").all_text_contents()
    assert sum(map(float, cells)) > 0.5
    assert not violations(page, WCAG if theme == "light" else BY_LOOK)
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")


def test_own_dates_are_of_the_readers_time_zone(visit: Visit, site: Site) -> None:
    page = visit()
    go(page, site, "usage")
    page.context.new_cdp_session(page).send("Emulation.setTimezoneOverride", {"timezoneId": "Asia/Kolkata"})
    page.reload()
    today = page.evaluate("new Date().toISOString().slice(0, 10)")
    page.get_by_label("From").fill("2030-01-02")
    page.get_by_label("To").fill(today)
    page.get_by_role("button", name="Show").click()
    expect(page.locator("#id_first_error")).to_contain_text("after the last")
    expect(page.get_by_label("From")).to_have_value("2030-01-02")
    page.get_by_label("From").fill(today)
    page.get_by_role("button", name="Show").click()
    expect(page.locator("main")).to_contain_text("midnight in Asia/Calcutta")  # as this browser calls it


def test_a_wrong_price_is_said_where_it_was_typed_and_what_was_typed_stays(visit: Visit, site: Site) -> None:
    page = visit(username="dora")
    go(page, site, "usage")
    address = page.url
    for label, value in (("CPU slot, an hour", "-1"), ("GPU slot, an hour", "2.5"), ("Reason", "New machines")):
        page.get_by_label(label).fill(value)
    page.get_by_role("button", name="Set prices").click()
    expect(page.get_by_label("CPU slot, an hour")).to_be_focused()
    expect(page.get_by_label("CPU slot, an hour")).to_have_js_property("validity.valid", False)
    expect(page.get_by_label("GPU slot, an hour")).to_have_value("2.5")
    expect(page.get_by_label("Reason")).to_have_value("New machines")
    assert page.url == address


def test_what_became_of_the_prices_is_said_in_sight(visit: Visit, site: Site) -> None:
    page = visit(username="dora")
    go(page, site, "usage")
    page.get_by_label("CPU slot, an hour").fill("-1")
    page.locator(".usage-prices").evaluate("form => { form.noValidate = true; }")
    page.get_by_role("button", name="Set prices").click()
    expect(page.get_by_role("alert")).to_be_in_viewport()


def test_an_administrator_sets_a_price_and_the_costs_appear(visit: Visit, site: Site) -> None:
    page = visit(username="dora")
    go(page, site, "usage")
    page.get_by_label("GPU slot, an hour").fill("2.5")
    page.get_by_label("Currency").fill("EUR")
    page.get_by_role("button", name="Set prices").click()
    expect(page.locator("main")).to_contain_text("hold from now on")
    expect(page.locator("#prices table")).to_contain_text("2.5")
    go(page, site, "usage")
    expect(page.get_by_role("columnheader", name="Cost, EUR")).to_be_visible()
    assert not violations(page)
