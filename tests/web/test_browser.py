"""The pages in a real browser: no error, no violation of the policy, nothing wider than the screen, readable for everybody, live."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Route, WebSocketRoute, expect

from tests import cast, chromium

REPOSITORY = Path(__file__).resolve().parents[2]
AXE = Path(__file__).with_name("vendor") / "axe-core" / "axe.min.js"
TIMEOUT_MS = 20_000


@dataclass
class Site:
    """The served studio and its addresses."""

    process: subprocess.Popen[str]
    pages: dict[str, str] = field(default_factory=dict)

    def said(self) -> dict[str, str]:
        assert self.process.stdout
        return dict(json.loads(self.process.stdout.readline()))

    def tell(self, order: str) -> None:
        assert self.process.stdin
        self.process.stdin.write(order + "\n")
        self.process.stdin.flush()
        assert self.said() == {"done": order}


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    command = [sys.executable, "-m", "tests.web.serving"]
    process = subprocess.Popen(command, cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        made = Site(process)
        made.pages = made.said()
        yield made
        assert process.stdin
        process.stdin.close()
        process.wait(30)
    finally:
        process.kill()
        process.wait(10)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium.started() as found:
        yield found


Visit = Callable[..., Page]


@pytest.fixture
def visit(browser: Browser, site: Site) -> Iterator[Visit]:
    """`visit(width=360, theme="dark")`: a browser with Alice logged in. Any script error or policy violation fails the test.

    `outage`: the test takes the server away, and the browser may say so."""
    complaints: list[str] = []
    contexts = []

    def open_(*, width: int = 1280, theme: str = "light", script: bool = True, username: str = "alice", outage: bool = False) -> Page:
        context = browser.new_context(
            viewport={"width": width, "height": 800}, color_scheme="dark" if theme == "dark" else "light", java_script_enabled=script
        )
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(TIMEOUT_MS)
        page.on("pageerror", lambda error: complaints.append(f"{page.url}: {error}"))
        page.on("console", lambda said: complaints.append(f"{page.url}: {said.text}") if said.type == "error" and not outage else None)
        page.goto(site.pages["url"] + "/login/")
        page.get_by_label("Username").fill(username)
        page.get_by_label("Password").fill(cast.PASSWORD)
        page.get_by_role("button", name="Log in").click()
        page.wait_for_url("**/projects/")
        return page

    yield open_
    for context in contexts:
        context.close()
    assert not complaints, "\n".join(complaints)


def go(page: Page, site: Site, name: str) -> None:
    page.goto(site.pages["url"] + site.pages[name])
    if name == "run" or (name == "cluster" and page.viewport_size and page.viewport_size["width"] > 700):
        page.locator(".uplot").first.wait_for()


def violations(page: Page) -> list[str]:
    """What axe finds that is serious, by the rules of WCAG 2 A and AA. Its script comes in past the page's policy, for the test alone."""
    page.evaluate(AXE.read_text())
    found: dict[str, Any] = page.evaluate(
        "axe.run(document, {runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa'], resultTypes: ['violations']})"
    )
    return [
        f"{page.url} {each['id']} ({each['impact']}): {each['nodes'][0]['html'][:160]} {each['nodes'][0]['failureSummary'][:200]}"
        for each in found["violations"]
        if each["impact"] in ("serious", "critical")
    ]


@pytest.mark.parametrize(("width", "theme"), [(1280, "light"), (360, "dark")])
def test_every_page_is_readable_for_everybody_and_fits_the_screen(width: int, theme: str, visit: Visit, site: Site) -> None:
    page = visit(width=width, theme=theme)
    found = []
    for name in site.pages:
        if name != "url":
            go(page, site, name)
            found += violations(page)
            extra = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
            found += [f"{name} is {extra} pixels too wide"] if extra > 0 else []
    assert not found, "\n".join(found)


def test_the_run_page_is_live_and_keeps_what_the_reader_chose(visit: Visit, site: Site) -> None:
    page = visit()
    go(page, site, "run")
    step = page.locator("#tiles [data-f=step]")
    before = int(step.inner_text().replace(",", ""))
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
    page.wait_for_function("document.getElementById('live').textContent.includes('Live')")
    assert happened.is_set()
    expect(page.locator("#tiles [data-f=step]")).to_have_text(f"{before + 3:,}")


def test_typing_in_the_clusters_filter_survives_updates(visit: Visit, site: Site) -> None:
    page = visit()
    go(page, site, "cluster")
    expect(page.locator("#live")).to_have_text("Live")
    box = page.get_by_role("searchbox")
    box.press_sequentially("Base")
    expect(page.locator("#jobs tbody tr")).to_have_count(1)
    site.tell("changed")
    box.press_sequentially("line")
    expect(box).to_be_focused()
    expect(box).to_have_value("Baseline")
    expect(page.locator("#jobs tbody tr")).to_have_count(1)
    expect(page.locator("#lanes .bar-run")).not_to_have_count(0)


def test_a_definition_is_added_in_the_side_panel_and_run(visit: Visit, site: Site, tmp_path: Path) -> None:
    page = visit()
    (tmp_path / "model.zip").write_bytes(cast.zipped({"folder/train.py": "print(1)\n", "folder/net.py": ""}).getvalue())
    go(page, site, "new experiment")
    page.get_by_label("Name").first.fill("From the panel")
    page.get_by_role("button", name="Add training definition").click()
    panel = page.get_by_role("dialog")
    panel.locator("input[type=file]").set_input_files(tmp_path / "model.zip")
    panel.get_by_role("button", name="train.py").click()
    panel.get_by_role("button", name="Create").click()
    expect(panel.locator("#panel_name_error")).to_be_visible()
    panel.get_by_label("Name").fill("net one")
    panel.locator("input[type=file]").set_input_files(tmp_path / "model.zip")
    panel.get_by_role("button", name="Create").click()
    expect(panel).to_be_hidden()
    expect(page.locator("#associated")).to_contain_text("net one")
    page.get_by_role("button", name="Add training definition").click()
    page.get_by_role("tab", name="Existing training definition").click()
    page.get_by_role("dialog").get_by_label("LeNet").check()
    page.get_by_role("button", name="Add", exact=True).click()
    expect(page.locator("#associated tr")).to_have_count(2)
    page.get_by_role("button", name="Create and run").click()
    expect(page.get_by_role("heading", name="From the panel")).to_be_visible()
    expect(page.locator("tbody tr", has_text="From the panel")).to_have_count(2)


def test_arguments_are_filled_in_as_a_form_or_as_text(visit: Visit, site: Site) -> None:
    page = visit()
    page.goto(site.pages["url"] + site.pages["new experiment"] + "?like=1")
    row = page.locator("#associated tr")
    row.get_by_text("Arguments of main.py").click()
    command = row.get_by_label("Execution command")
    expect(row.get_by_label("--epochs")).to_have_value("20")
    row.get_by_label("--lr").fill("0.01")
    row.get_by_label("--optimizer").select_option("sgd")
    row.get_by_label("--amp").check()
    row.get_by_label("--note").fill("it's two words")
    expect(command).to_have_value("main.py --epochs 20 --lr 0.01 --optimizer sgd --amp --note 'it'\"'\"'s two words'")
    row.get_by_label("--epochs").fill("10")  # the script's default need not be said
    command.evaluate("input => { input.value = input.value.replace('0.01', '-2e-3').replace(' --amp', ''); }")
    command.press("End")
    command.type(" --other 1")
    expect(row.get_by_label("--lr")).to_have_value("-2e-3")
    expect(row.get_by_label("--amp")).not_to_be_checked()
    page.get_by_role("button", name="Create and run").click()
    page.get_by_role("link", name="Learning rates (copy)").last.click()
    page.get_by_role("link", name="Overview").click()
    expect(page.get_by_role("main")).to_contain_text("main.py --lr -2e-3 --optimizer sgd --note")
    expect(page.get_by_role("main")).to_contain_text("--other 1")


def test_single_keys_lead_around_and_the_bell_rings(visit: Visit, site: Site) -> None:
    page = visit(username="bob")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url("**/projects/*/")
    page.keyboard.press("]")
    page.wait_for_url("**/assets/")
    page.keyboard.press("/")
    page.wait_for_url("**/search/")
    expect(page.get_by_role("searchbox")).to_be_focused()
    page.keyboard.type("g")  # typed, not obeyed
    page.get_by_role("searchbox").press("Escape")
    page.get_by_role("heading", name="Search").click()
    page.keyboard.press("g")
    page.keyboard.press("c")
    page.wait_for_url("**/cluster/")
    page.keyboard.press("?")
    page.wait_for_url("**/shortcuts/")
    bell = page.locator("#bell")
    before = bell.inner_text()
    expect(page.locator("#live")).to_have_text("Live")
    site.tell("tell")
    expect(bell).not_to_have_text(before)


def test_a_large_file_goes_on_after_a_lost_connection(visit: Visit, site: Site, tmp_path: Path) -> None:
    page = visit(outage=True)
    (tmp_path / "large.bin").write_bytes(bytes(range(256)) * 40_000)  # two pieces
    tries = []

    def lose_one(route: Route) -> None:
        tries.append(route.request.url)
        if len(tries) == 2:
            route.fulfill(status=503, body="away")
        else:
            route.continue_()

    page.route("**/files/0?offset=*", lose_one)
    go(page, site, "new data")
    page.get_by_label("Files").set_input_files(tmp_path / "large.bin")
    expect(page.get_by_label("Name")).to_have_value("large.bin")
    page.get_by_role("button", name="Upload").click()
    expect(page.get_by_role("heading", name="large.bin")).to_be_visible()
    expect(page.get_by_role("main")).to_contain_text("10.2 MB")
    assert len(tries) == 3


def test_the_story_works_without_script(visit: Visit, site: Site, tmp_path: Path) -> None:
    page = visit(script=False, username="bob")
    (tmp_path / "model.zip").write_bytes(cast.zipped().getvalue())
    page.goto(site.pages["url"] + site.pages["new experiment"])
    page.get_by_label("Name").first.fill("Without script")
    page.get_by_role("checkbox", name="LeNet").check()
    page.get_by_role("button", name="Create and run").click()
    expect(page.get_by_role("heading", name="Without script")).to_be_visible()
    page.get_by_role("link", name="Without script").last.click()
    expect(page.get_by_text("Queued").first).to_be_visible()


def test_the_theme_changes_at_once_and_stays(visit: Visit, site: Site) -> None:
    page = visit(username="bob")
    page.locator("summary", has_text="Account menu").click()
    page.get_by_role("button", name="Dark").click()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    page.wait_for_load_state("networkidle")
    page.reload()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to main content")).to_be_focused()


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


def test_a_followed_log_grows_and_a_search_of_it_stays_true(visit: Visit, site: Site) -> None:
    page = visit()
    page.goto(site.pages["url"] + site.pages["run"] + "logs/")
    expect(page.locator("#live")).to_have_text("Live")
    site.tell("log needle one")
    expect(page.locator("#log")).to_contain_text("needle one")
    page.get_by_role("searchbox").fill("needle")
    page.get_by_role("searchbox").press("Enter")
    expect(page.locator(".log-found li")).to_have_count(1)
    expect(page.locator("#live")).to_have_text("Live")
    site.tell("log needle two")
    expect(page.locator(".log-found li")).to_have_count(2)
