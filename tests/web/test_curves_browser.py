"""The curves of a run's page in a real browser: all of them are drawn, in order, whatever is fetched when, and as finely as is looked."""

from __future__ import annotations

import re
import time

from playwright.sync_api import Page, Route, expect

from tests.web.browsing import Site, Visit, go


def test_a_run_that_begins_while_one_looks_has_its_charts_in_order_and_its_last_values(visit: Visit, site: Site) -> None:
    page = visit()
    page.goto(site.pages["url"] + site.pages["waiting run"])
    expect(page.locator("#live")).to_have_text("Live")
    expect(page.locator("#no-points")).to_be_visible()
    site.tell("first-steps 3")
    expect(page.locator("#chart-list figure")).to_have_count(3)
    assert page.locator("#chart-list figure").evaluate_all("all => all.map(each => each.dataset.chart)") == ["loss", ":workers", ":rates"]
    last = page.locator("#notes tr", has_text="Train loss")
    expect(last).to_contain_text("3")
    site.tell("first-steps 4")
    expect(last.locator("[data-label=Step]")).to_have_text("7", timeout=20_000)  # a server that was slow is asked less often


def first_of(held: list[Route], page: Page) -> Route:
    """Routes are handed over while the page is asked for something, which may be after their request was heard of."""
    deadline = time.monotonic() + 20
    while not held and time.monotonic() < deadline:
        page.evaluate("0")
    return held[0]


def test_last_values_that_came_with_curves_fetched_anew_are_in_the_table_too(visit: Visit, site: Site) -> None:
    page, held = visit(), list[Route]()
    go(page, site, "run")
    expect(page.locator("#live")).to_have_text("Live")
    step = page.locator("#notes tr", has_text="Train loss").locator("[data-label=Step]")
    before = int(step.inner_text().replace(",", ""))
    page.route("**/series?max=1500", lambda route: held.append(route))
    with page.expect_response("**/?part=notes*"):
        site.tell("log-of worker-0 another worker")  # the table and the curves are fetched anew; while the curves are on their way:
    curves = first_of(held, page)
    site.tell("steps 2")
    curves.continue_()
    expect(step).to_have_text(f"{before + 2:,}")


FOLLOWS = """async (run) => {
  const loaded = performance.getEntriesByType('resource').find((each) => /\\/points(\\.\\w+)?\\.js/.test(each.name));
  const points = await import(loaded.name);
  const said = Object.assign(document.documentElement.dataset, { loads: '0', anew: '0' });
  const later = window.setTimeout;
  let mine = false;  // the next timer is of what follows here, and not of the page itself
  const counted = (does) => () => (does(), (said.anew = String(+said.anew + 1)));
  window.setTimeout = (does, ms) => later(mine && ms === 500 ? ((mine = false), counted(does)) : does, ms);
  const load = async () => ((said.loads = String(+said.loads + 1)), 0);
  const changed = (what) => (mine = what.includes('generations'));
  points.follow(run, { load, points: '/held', add: () => false, changed });
}"""


def test_curves_that_are_asked_for_anew_while_points_are_on_their_way_are_fetched_behind_them(visit: Visit, site: Site) -> None:
    page, held = visit(), list[Route]()
    page.route("**/held*", lambda route: held.append(route))
    go(page, site, "run")
    expect(page.locator("#live")).to_have_text("Live")
    with page.expect_request("**/held*"):  # the page has been subscribed before: points may have come meanwhile
        page.evaluate(FOLLOWS, int(page.locator("[data-charts]").get_attribute("data-charts") or 0))
    said = page.locator("html")
    expect(said).to_have_attribute("data-loads", "1")
    first_of(held, page).fulfill(json={"points": [], "seq": 0})
    held.clear()
    with page.expect_request("**/held*"):
        site.tell("steps 1")
    site.tell("log-of worker-0 another worker")
    expect(said).to_have_attribute("data-anew", re.compile("[1-9]"))
    expect(said).to_have_attribute("data-loads", "1")
    first_of(held, page).fulfill(json={"points": [], "seq": 10**9})
    expect(said).to_have_attribute("data-loads", "2")


def test_a_zoom_into_a_long_run_is_drawn_from_its_own_points(visit: Visit, site: Site) -> None:
    """The served run is short: it is long for a page that asks for few points."""
    page = visit()
    page.route(re.compile(r"/series\?max=1500$"), lambda route: route.continue_(url=route.request.url.replace("1500", "30")))
    go(page, site, "run")
    plot = page.locator('[data-chart="loss"] .u-over')
    box = plot.bounding_box()
    assert box
    page.mouse.move(box["x"] + box["width"] * 0.4, box["y"] + 50)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + 50, steps=5)
    with page.expect_response(re.compile(r"/series\?max=1500&from=\d+&to=\d+$")) as finer:
        page.mouse.up()
    curve = next(each for each in finer.value.json()["curves"] if (each["group"], each["name"]) == ("train", "loss"))
    assert not curve["sampled"]
    assert curve["steps"] == list(range(curve["steps"][0], curve["steps"][-1] + 1))
    expect(page.get_by_role("button", name="Whole run")).to_be_visible()
