"""What if in a real browser, by keys: asked on the cluster's page, both futures drawn on one axis, readable and shared by its address. And
what the lanes say: whose a slot will be, names that are cut, curves that are not shown."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.web.browsing import Site, Visit, go, violations

AXIS = """[...document.querySelectorAll('#what-if-answer .lanes-axis')].map(
    axis => [...axis.querySelectorAll('text')].map(text => text.textContent))"""
GROUPS = """[...document.querySelector('#lanes svg.lanes').children].map(
    group => group.querySelector('.bar-text') ? 'words' : group.querySelector('.change') ? 'lines' : '')"""


def fits(page: Page) -> None:
    page.evaluate("window.scrollTo(0, 0)")  # else the page's own head covers what axe measures
    assert violations(page) == []
    assert page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") <= 0


@pytest.mark.parametrize(("width", "theme"), [(1280, "light"), (360, "dark")])
def test_one_asks_what_if_by_keys_and_shares_the_answer(width: int, theme: str, visit: Visit, site: Site) -> None:
    page = visit(width=width, theme=theme)
    go(page, site, "cluster")
    page.locator("#what-if summary").press("Enter")
    more = page.get_by_label("More machines")
    more.fill("1")
    page.get_by_label("A new run of so many hours").fill("0.5")
    more.press("Enter")
    table = page.locator("#what-if-table")
    expect(table.get_by_role("row", name="the new run")).to_be_visible()
    expect(table.get_by_role("row", name="Learning rates #")).to_contain_text("sooner")
    drawn = page.locator("#what-if-answer .bar-fill")
    expect(drawn.first).to_be_visible()
    expect(page.locator("#what-if-answer .lane-node", has_text="local (new 1)")).to_have_count(1)
    today, then = page.evaluate(AXIS)
    assert today == then
    fits(page)
    page.locator("#what-if-answer").get_by_role("link", name="Address of this answer").press("Enter")
    page.wait_for_url("**/cluster/what-if/?*")
    expect(page.get_by_label("More machines")).to_have_value("1")
    expect(table.get_by_role("row", name="the new run")).to_be_visible()
    fits(page)
    page.get_by_role("link", name="Last week under another policy").press("Enter")
    page.get_by_label("Policy").select_option(label="Priority")
    page.get_by_role("button", name="Replay").press("Enter")
    expect(page.locator("#replay-people")).to_contain_text("Replayed otherwise")
    fits(page)


def test_lanes_say_what_is_cut_whose_curves_are_not_shown_and_for_whom_a_slot_is_kept(visit: Visit, site: Site) -> None:
    page = visit()
    go(page, site, "cluster")
    expect(page.locator("#hidden-curves")).to_have_text("Not shown: the curve of a run of bob, in projects that you are not a member of.")
    groups = page.evaluate(GROUPS)
    assert [each for each in groups if each] == ["lines", "words"], "a line that crossed the words would be drawn after them"
    page.get_by_role("button", name="1 h", exact=True).click()
    cut = page.locator("#lanes .bar-text", has_text="…").first
    expect(cut).to_be_visible()
    assert cut.evaluate("word => word.getBBox().x + word.getBBox().width <= word.parentElement.width.baseVal.value")
    site.tell("handed-over")
    page.get_by_role("button", name="10 min", exact=True).click()
    expect(page.locator("#lanes .lane-label", has_text="GPU 1 · for bob")).to_have_count(1)
    expect(page.locator("#lanes .bar-reserved title")).to_have_text("reserved for bob Wider net, starting")
    expect(page.locator("#tiles")).to_contain_text("1 reserved")
    fits(page)
