"""The live pages in a real browser: what is pushed is shown, what was missed is fetched, what the reader chose stays."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable

from playwright.sync_api import Route, WebSocketRoute, expect

from tests.web.browsing import Site, Visit, go, violations

SHIFTS = (
    "window.shifts = 0; new PerformanceObserver(list => list.getEntries().forEach(each => window.shifts += each.value))"
    ".observe({type: 'layout-shift', buffered: true})"
)


def test_the_run_page_is_live_and_keeps_what_the_reader_chose(visit: Visit, site: Site) -> None:
    page = visit()
    go(page, site, "run")
    step = page.locator("#tiles [data-f=step]")
    before = int(step.inner_text().replace(",", ""))
    end, to_the_minute = page.locator("#tiles [data-f=end] time"), re.compile(r"^(\d+ \w{3}, )?\d\d:\d\d$")
    expect(end).to_have_text(to_the_minute)
    plot = page.locator(".chart").filter(has_text="loss").first.locator(".u-over")
    box = plot.bounding_box()
    assert box
    page.mouse.move(box["x"] + box["width"] * 0.2, box["y"] + 50)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + 50, steps=5)
    page.mouse.up()
    expect(page.get_by_role("button", name="Whole run")).to_be_visible()
    page.get_by_role("button", name="Whole run").focus()
    site.tell("steps 5")
    expect(step).to_have_text(f"{before + 5:,}")
    expect(end).to_have_text(to_the_minute)
    expect(page.get_by_role("button", name="Whole run")).to_be_visible()
    expect(page.get_by_role("button", name="Whole run")).to_be_focused()
    page.get_by_role("button", name="Whole run").click()
    expect(page.locator(".chart").filter(has_text="loss").first).to_contain_text("train 0.2")


def test_a_page_that_lost_its_connection_says_so_and_gets_what_it_missed(visit: Visit, site: Site) -> None:
    page = visit()
    routes: list[WebSocketRoute] = []
    away = [False]

    def pass_on(route: WebSocketRoute) -> None:
        if away[0]:
            route.close()
            return
        routes.append(route)
        route.connect_to_server()

    page.route_web_socket("**/ws/", pass_on)
    go(page, site, "run")
    sign = page.locator("#live")
    expect(sign).to_have_text("Live")
    before = int(page.locator("#tiles [data-f=step]").inner_text().replace(",", ""))
    away[0] = True
    routes[-1].close()
    expect(sign).to_have_text("Reconnecting")
    site.tell("steps 7")
    away[0] = False
    expect(sign).to_have_text("Live")
    expect(page.locator("#tiles [data-f=step]")).to_have_text(f"{before + 7:,}")


def answers(status: int) -> Callable[[Route], None]:
    return lambda route: route.fulfill(status=status, body="no")


def test_an_action_that_comes_to_nothing_is_said(visit: Visit, site: Site) -> None:
    page = visit(outage=True)
    go(page, site, "run")
    expect(page.locator("#live")).to_have_text("Live")
    page.route("**/runs/*/pause/", lambda route: route.abort())
    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_role("alert")).to_contain_text("The studio did not answer")
    page.unroute("**/runs/*/pause/")
    page.route("**/runs/*/pause/", lambda route: route.fulfill(status=500, body="away"))
    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_role("alert")).to_contain_text("something went wrong there")
    for status, said in ((403, "The studio refused this"), (404, "not there any more")):
        page.unroute("**/runs/*/pause/")
        page.route("**/runs/*/pause/", answers(status))
        page.get_by_role("button", name="Pause").click()
        expect(page.get_by_role("alert")).to_contain_text(said)


def test_what_one_has_chosen_is_not_undone_by_what_was_asked_for_before(visit: Visit, site: Site) -> None:
    page = visit()
    go(page, site, "run")
    expect(page.locator("#live")).to_have_text("Live")
    page.wait_for_load_state("networkidle")
    held: list[Route] = []
    of_before = re.compile(r"\?part=notes(&events=)?$")
    page.route(of_before, lambda route: held.append(route))
    with page.expect_request(of_before):
        page.evaluate("document.getElementById('notes').dispatchEvent(new CustomEvent('refresh'))")
    kind = page.get_by_role("navigation", name="Kinds of events").get_by_role("link").nth(1)
    kind.click()
    expect(kind).to_have_attribute("aria-current", "true")
    with page.expect_response(re.compile(r"\?part=notes&events=\w+$")):  # it is asked for again, as it is to be now
        for route in held:
            route.continue_()
    expect(kind).to_have_attribute("aria-current", "true")


def test_a_run_that_does_not_train_has_no_pace(visit: Visit, site: Site) -> None:
    page = visit()
    site.tell("becomes suspended")
    go(page, site, "run")
    expect(page.locator("#live")).to_have_text("Live")
    expect(page.locator("[data-chart=':workers'] figcaption")).to_contain_text("at its last step")
    page.evaluate("document.querySelector('#tiles [data-f=step]').textContent = 'of old'")
    fetches: list[Route] = []
    page.route("**/*part=*", lambda route: fetches.append(route))  # they would say that with its slots the run is at work again
    site.tell("steps 2")
    expect(page.locator("#tiles [data-f=step]")).not_to_have_text("of old")
    expect(page.locator("#tiles [data-f=rate]")).to_have_text("–")
    for fetch in fetches:
        fetch.continue_()
    page.unroute("**/*part=*")
    site.tell("becomes running")
    expect(page.locator("#tiles [data-f=rate]")).not_to_have_text("–")


def test_what_happens_before_a_page_is_subscribed_is_shown_by_it(visit: Visit, site: Site) -> None:
    """A run that ends while its page is on its way to the reader: nothing is pushed any more, and the page knows all the same."""
    page = visit()
    happened = threading.Event()

    def pass_on(route: WebSocketRoute) -> None:
        server = route.connect_to_server()

        def ask(message: str | bytes) -> None:
            if not happened.is_set():
                happened.set()
                site.tell("steps 3")
            server.send(message)

        route.on_message(ask)

    page.route_web_socket("**/ws/", pass_on)
    page.goto(site.pages["url"] + site.pages["run"])
    before = int(page.locator("#tiles [data-f=step]").inner_text().replace(",", ""))
    expect(page.locator("#live")).to_have_text("Live")
    assert happened.is_set()
    expect(page.locator("#tiles [data-f=step]")).to_have_text(f"{before + 3:,}")


def test_typing_in_the_clusters_filter_survives_updates(visit: Visit, site: Site) -> None:
    page = visit()
    go(page, site, "cluster")
    expect(page.locator("#live")).to_have_text("Live")
    box = page.get_by_role("searchbox")
    box.press_sequentially("Wider")
    expect(page.locator("#jobs tbody tr")).to_have_count(1)
    site.tell("changed")
    box.press_sequentially(" net")
    expect(box).to_be_focused()
    expect(box).to_have_value("Wider net")
    expect(page.locator("#jobs tbody tr")).to_have_count(1)
    expect(page.locator("#lanes .bar-run")).not_to_have_count(0)


def test_what_the_reader_chose_on_a_run_survives_a_reload_and_a_link(visit: Visit, site: Site) -> None:
    page = visit()
    go(page, site, "run")
    page.get_by_role("button", name="Samples").click()
    page.get_by_role("slider", name="Smoothing").fill("0.5")
    plot = page.locator('[data-chart="loss"] .u-over')
    box = plot.bounding_box()
    assert box
    page.mouse.move(box["x"] + box["width"] * 0.3, box["y"] + 50)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.8, box["y"] + 50, steps=5)
    page.mouse.up()
    expect(page.get_by_role("button", name="Whole run")).to_be_visible()
    page.reload()
    expect(page.get_by_role("button", name="Samples")).to_have_attribute("aria-pressed", "true")
    expect(page.get_by_role("slider", name="Smoothing")).to_have_value("0.5")
    expect(page.get_by_role("button", name="Whole run")).to_be_visible()
    page.locator('[data-chart=":workers"] canvas').wait_for()
    expect(page.locator('[data-chart=":rates"]')).to_contain_text("samples a second")


def test_the_use_of_slots_is_drawn_live_on_every_axis_and_said_in_a_table(visit: Visit, site: Site) -> None:
    page = visit()
    go(page, site, "run")
    busy, memory = page.locator('[data-chart=":busy"]'), page.locator('[data-chart=":memory"]')
    memory.scroll_into_view_if_needed()
    for chart in (busy, memory):
        expect(chart.locator(".uplot")).to_be_visible()
    expect(busy).to_contain_text("80 % · slots 70 to 90 %")
    expect(memory).to_contain_text("900 MB · largest slot 500 MB")
    first, second = (page.locator("#use-slots").get_by_role("button", name=f"GPU {n}", exact=True) for n in (0, 1))
    expect(first).to_contain_text("90 %, 400 MB")
    page.get_by_text("The use of its slots as a table").click()
    site.tell("steps 2")  # so that the point lies within the curves
    site.tell("use 0.1")
    expect(busy).to_contain_text("10 %")
    expect(memory).to_contain_text("4.0 GB · largest slot 3.0 GB")
    expect(second).to_contain_text("10 %, 3.0 GB")
    table = page.get_by_role("table", name="How far the run's slots were at work")
    expect(table).to_contain_text("4.0 GB")
    expect(table.get_by_role("columnheader", name="GPU 1")).to_be_visible()
    second.click()
    expect(second).to_have_attribute("aria-pressed", "false")
    expect(second).to_be_focused()
    expect(table.get_by_role("columnheader", name="GPU 1")).to_have_count(0)
    page.evaluate("window.scrollTo(0, 0)")  # else the page's own head covers what axe measures
    assert not violations(page)
    for axis in ("Time", "Samples", "Step"):
        page.get_by_role("button", name=axis, exact=True).click()
        expect(busy.locator(".uplot")).to_be_visible()
        expect(busy).to_contain_text("10 %")
    page.reload()
    expect(first).to_have_attribute("aria-pressed", "true")
    expect(second).to_have_attribute("aria-pressed", "false")
    for pressed in ("true", "false"):  # each click when what the last one did is to be seen
        second.click()
        expect(second).to_have_attribute("aria-pressed", pressed)


def test_what_slots_do_now_is_live_on_the_runs_overview_and_on_their_node(visit: Visit, site: Site) -> None:
    page, node = visit(), visit(username="bob")
    page.add_init_script(SHIFTS)
    go(page, site, "run overview")
    go(node, site, "node")
    for each in (page, node):
        expect(each.locator("#live")).to_have_text("Live")
    site.tell("use 0.35")
    now = page.get_by_role("region", name="Slots now")
    expect(now).to_contain_text("35 % at work")
    expect(now).to_contain_text("4.0 GB memory")
    expect(now.get_by_role("progressbar", name="GPU 0 at work")).to_have_attribute("value", "0.350")
    row = node.get_by_role("row", name=re.compile("^GPU 1"))
    expect(row).to_contain_text("35 %")
    expect(row).to_contain_text("3.0 GB of 143 GB")
    assert page.evaluate("window.shifts") < 0.1
    for each in (page, node):
        assert not violations(each)


def test_a_job_of_the_cluster_gets_another_priority_where_it_stands(visit: Visit, site: Site) -> None:
    page = visit()
    go(page, site, "cluster")
    row = page.locator("#jobs tbody tr", has_text="Wider net")
    row.get_by_role("link", name="Priority").click()
    dialog = page.get_by_role("dialog", name="Priority and slots")
    dialog.get_by_label("Maximum slots").fill("3")
    expect(dialog.locator("#preview")).to_contain_text(re.compile("What would change|Nobody's slots would change"))
    dialog.get_by_label("Priority (").fill("6001")
    dialog.get_by_role("button", name="Set priority").click()
    expect(dialog).to_be_hidden()
    expect(row).to_contain_text("6001")


def test_events_of_the_cluster_are_reached_by_key_and_stay_in_the_address(visit: Visit, site: Site) -> None:
    page = visit()
    go(page, site, "cluster")
    page.get_by_role("button", name="1 min", exact=True).click()
    lanes = page.locator("#lanes")
    lanes.focus()
    said = page.locator("#event-said")
    while "workers at step" not in said.inner_text():
        before = said.inner_text()
        lanes.press("ArrowLeft")
        expect(said).not_to_have_text(before)
    expect(page.locator(".lanes .event")).to_have_attribute("visibility", "visible")
    expect(page).to_have_url(re.compile(r"window=1m&until=\d+"))
    page.reload()
    expect(page.locator("#edge")).to_contain_text("until")
    expect(page.get_by_role("button", name="1 min", exact=True)).to_have_attribute("aria-pressed", "true")


def test_the_table_of_the_lanes_follows_their_window(visit: Visit, site: Site) -> None:
    page = visit()
    go(page, site, "cluster")
    page.get_by_text("View as table").click()
    table = page.locator("#lanes-table")
    expect(table).to_contain_text("Learning rates")
    page.get_by_role("button", name="1 min", exact=True).click()
    expect(table.locator("tbody tr")).to_have_count(4)  # who holds them now; who held them before is out of it
    page.get_by_role("button", name="1 h", exact=True).click()
    expect(table.locator("tbody tr")).not_to_have_count(4)
    hour = table.locator("tbody tr").count()
    page.reload()
    expect(page.locator("#lanes-table tbody tr")).to_have_count(hour)


def test_runs_are_compared_in_parallel_coordinates_too(visit: Visit, site: Site) -> None:
    page = visit()
    go(page, site, "compare")
    lines = page.locator(".parallel-line")
    expect(lines).to_have_count(3)
    expect(page.locator("#live")).to_have_text("Live")
    page.wait_for_load_state("networkidle")  # when it has come to hear of its runs the page draws what it missed
    page.locator(".parallel-grip").last.scroll_into_view_if_needed()
    grip = page.locator(".parallel-grip").last.bounding_box()
    assert grip
    page.mouse.move(grip["x"] + 12, grip["y"] + 2)
    page.mouse.down()
    page.mouse.move(grip["x"] + 12, grip["y"] + 40, steps=4)
    page.mouse.up()
    expect(page.locator("#parallel-said")).to_contain_text("of 3 runs are in range")
    page.get_by_role("button", name="All runs").click()
    expect(page.locator(".parallel-line.is-out")).to_have_count(0)
    page.get_by_label("Show differences only").check()
    expect(page.locator("#table tbody tr", has_text="Execution command")).to_be_hidden()
    page.reload()
    expect(page.get_by_label("Show differences only")).to_be_checked()


def test_nothing_moves_when_pages_draw_and_update(visit: Visit, site: Site) -> None:
    """The sum of layout shifts as browsers count them: 0.1 is called good."""
    page = visit()
    page.add_init_script(SHIFTS)
    for name in ("run", "cluster", "compare", "logs"):
        go(page, site, name)
        expect(page.locator("#live")).to_have_text("Live")
        if name == "run":
            step = page.locator("#tiles [data-f=step]")
            before = int(step.inner_text().replace(",", ""))
            site.tell("steps 3")
            expect(step).to_have_text(f"{before + 3:,}")
        assert page.evaluate("window.shifts") < 0.1, name
