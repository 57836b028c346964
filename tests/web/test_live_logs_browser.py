"""Logs that a page follows in a real browser: they grow, are searched, lose their middle, and are complete in the end."""

from __future__ import annotations

import json

from playwright.sync_api import WebSocketRoute, expect

from experiments.logs import terminal
from tests.web.browsing import Site, Visit, go


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


def test_a_log_whose_middle_was_left_out_meanwhile_is_shown_anew(visit: Visit, site: Site) -> None:
    page = visit()
    site.tell("log" + " a long line" * 20)
    page.goto(site.pages["url"] + site.pages["run"] + "logs/")
    expect(page.locator("#log")).to_contain_text("a long line")
    site.tell("cut-log 12 MiB were left out here")
    expect(page.locator("#log")).to_contain_text("12 MiB were left out here", timeout=20_000)
    expect(page.locator("#log")).not_to_contain_text("a long line")
    expect(page.locator("#live")).to_have_text("Live")
    site.tell("log and on")
    expect(page.locator("#log")).to_contain_text("and on")


def test_a_progress_bar_stays_one_line_of_the_log_however_often_it_is_drawn(visit: Visit, site: Site) -> None:
    page = visit()
    page.goto(site.pages["url"] + site.pages["run"] + "logs/")
    expect(page.locator("#live")).to_have_text("Live")
    site.tell("log begins")
    for step in range(3):
        site.tell(f"drawn \\r{step}/3 outer\\n\\r{10 * step}/30 inner\\x1b[A")
    expect(page.locator("#log")).to_contain_text("2/3 outer\n20/30 inner")
    assert (page.locator("#log").text_content() or "").endswith("begins\n2/3 outer\n20/30 inner")
    page.reload()
    assert (page.locator("#log").text_content() or "").endswith("begins\n2/3 outer\n20/30 inner")
    expect(page.locator("#live")).to_have_text("Live")
    site.tell("drawn \\r3/3 outer\\n\\r30/30 inner\\n")
    expect(page.locator("#log")).to_contain_text("begins\n3/3 outer\n30/30 inner\n")


def test_the_page_and_the_server_see_the_same_on_a_terminal(visit: Visit, site: Site) -> None:
    page = visit()
    go(page, site, "run")
    write = "async text => { const t = await import('/static/js/terminal.js'); return t.write([''], 0, text) }"
    for text in ("a\r\nb", "\r1%\r2%\n\x1b[Ax\x1b[Bnext", "\x1b[31mred\x1b[0m", "one\n\rtwo\x1b[A\rthree\x1b[2K", "\x1b[5Aup", "odd \x1b"):
        found = page.evaluate(write, text)
        assert terminal.Screen("\n".join(found["rows"]).rstrip(" "), found["up"]) == terminal.render_screen(text), repr(text)


def test_all_logs_together_grow_line_by_line_and_take_in_a_new_workers(visit: Visit, site: Site) -> None:
    page = visit()
    asked: list[str] = []
    page.on("websocket", lambda socket: socket.on("framesent", lambda sent: asked.append(str(sent))))
    site.tell("log-of worker-0 it begins")
    page.goto(site.pages["url"] + site.pages["run"] + "logs/?name=*")
    expect(page.locator("#live")).to_have_text("Live")
    site.tell("log from the driver")
    site.tell("log-of worker-0 from the first")
    site.tell("log-of worker-7 from the newcomer")
    for line in ("driver   | from the driver\n", "worker-0 | from the first\n", "worker-7 | from the newcomer\n"):
        expect(page.locator("#log")).to_contain_text(line.strip())
        assert (page.locator("#log").text_content() or "").count(line) == 1
    assert sum("-worker-0@" in each for each in asked) == 1, "wherever the page stands in a log, it asks for it once"


def test_a_log_that_is_followed_to_the_end_of_its_run_is_complete_then(visit: Visit, site: Site) -> None:
    page = visit()
    site.tell("first-steps 1")
    page.goto(site.pages["url"] + site.pages["waiting run"] + "logs/")
    expect(page.locator("#live")).to_have_text("Live")
    expect(page.get_by_role("checkbox", name="Follow")).to_be_checked()
    expect(page.locator("#log-complete")).to_be_empty()
    site.tell("end-waiting")
    expect(page.locator("#log")).to_contain_text("its last words")
    expect(page.locator("#log-complete")).to_have_text("Complete: the run has ended.")
    expect(page.get_by_role("checkbox", name="Follow")).to_have_count(0)


def test_a_page_that_is_told_of_nothing_learns_all_the_same_how_its_run_ended(visit: Visit, site: Site) -> None:
    page = visit()

    def lose_news(socket: WebSocketRoute) -> None:
        server = socket.connect_to_server()
        server.on_message(lambda said: None if json.loads(said)["type"] in ("log", "completed") else socket.send(said))

    page.route_web_socket("**/ws/", lose_news)
    page.goto(site.pages["url"] + site.pages["run"] + "logs/")
    expect(page.locator("#live")).to_have_text("Live")
    for _ in range(10):  # more than comes at once
        site.tell("log" + " its last words" * 2000)
    site.tell("log and their end")
    site.tell("becomes completed")
    expect(page.locator("#log-complete")).to_have_text("Complete: the run has ended.", timeout=20_000)
    expect(page.locator("#log")).to_contain_text("and their end")
    expect(page.get_by_role("checkbox", name="Follow")).to_have_count(0)
