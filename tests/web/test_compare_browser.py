"""Runs side by side in a real browser: several metrics at once, what is drawn together, any argument against any metric, a baseline."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.web.browsing import BY_LOOK, WCAG, Site, Visit, go, violations


def legend(page: Page) -> list[list[str]]:
    """The cells of the table below the charts, by run."""
    return [row.locator("td").all_inner_texts() for row in page.locator(".legend-box tbody tr").all()]


def test_several_metrics_are_drawn_at_once_and_say_their_values_at_the_pointer(visit: Visit, site: Site) -> None:
    page = visit()
    go(page, site, "compare")
    plots = page.locator(".plot canvas")
    expect(plots).to_have_count(1)
    page.get_by_text("Choose metrics").click()
    page.locator("#metric-choices").get_by_label("train loss").check()
    expect(plots).to_have_count(2)
    page.keyboard.press("Escape")
    last = legend(page)
    assert all(len(cells) == 2 and "–" not in cells for cells in last)
    over = page.locator(".plot .u-over").first
    over.scroll_into_view_if_needed()
    box = over.bounding_box()
    assert box
    page.mouse.move(box["x"] + 20, box["y"] + 60)
    expect(page.locator(".plot figcaption").last).to_contain_text("step", timeout=5_000)
    assert legend(page) != last
    page.mouse.move(2, 2)
    page.get_by_role("button", name="Log", exact=True).click()
    page.reload()
    expect(plots).to_have_count(2)
    expect(page.get_by_role("button", name="Log", exact=True)).to_have_attribute("aria-pressed", "true")
    page.locator(".legend-box tbody tr").first.hover()
    assert legend(page) == last, "nothing is pointed at"


def test_a_page_asks_once_whether_any_of_its_runs_has_more_points(visit: Visit, site: Site) -> None:
    page = visit()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    with page.expect_response(lambda response: response.url.endswith("&metric=")) as answered:  # once it has been subscribed to them
        go(page, site, "compare")
    assert len(answered.value.json()["runs"]) == 3
    expect(page.locator(".plot canvas")).to_have_count(1)
    assert not [url for url in asked if "/points?after=" in url]


@pytest.mark.parametrize(("width", "theme"), [(1280, "light"), (360, "dark")])
def test_runs_are_scattered_and_held_against_a_baseline(width: int, theme: str, visit: Visit, site: Site) -> None:
    page = visit(width=width, theme=theme)
    go(page, site, "compare")
    points = page.locator(".scatter-point")
    expect(points).to_have_count(3)
    expect(page.get_by_label("Group by")).to_be_hidden()  # nothing that differs is the same for two of them
    before = points.first.get_attribute("cx")
    page.get_by_label("Across").select_option(index=page.get_by_label("Across").locator("option").count() - 1)
    expect(points.first).not_to_have_attribute("cx", str(before))
    table = page.locator("#table")
    table.get_by_role("link", name="baseline").first.click()
    expect(table).to_contain_text("%")
    page.wait_for_url(lambda url: "baseline=" in url and "across=" in url)
    assert not violations(page, WCAG if theme == "light" else BY_LOOK)
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    table.get_by_role("link", name="clear the baseline").click()
    expect(table).not_to_contain_text("%")


def test_a_group_has_a_mean_and_a_band_where_its_runs_have_values(visit: Visit, site: Site) -> None:
    page = visit()
    go(page, site, "compare")
    address = "performance.getEntriesByType('resource').map((each) => each.name).find((name) => /groups[^/]*\\.js/.test(name))"
    curves = "[[1, 2, null, undefined], [3, undefined, 5, undefined]]"
    assert page.evaluate(f"async () => (await import({address})).together({curves})") == [[1, 2, 5, None], [2, 2, 5, None], [3, 2, 5, None]]


def test_curves_follow_the_system_from_day_to_night(visit: Visit, site: Site) -> None:
    drawn = "document.querySelector('.plot canvas').toDataURL()"
    page, dark = visit(), visit(theme="dark")
    for each in (page, dark):
        go(each, site, "compare")
        expect(each.locator(".plot canvas")).to_have_count(1)
    page.emulate_media(color_scheme="dark")
    page.wait_for_function(f"wanted => {drawn} === wanted", arg=dark.evaluate(drawn))
