"""What tests in a real browser share: the served studio, a browser with somebody logged in, and what axe says of a page."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

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

    def write(self, line: str) -> None:
        assert self.process.stdin
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def tell(self, order: str) -> dict[str, str]:
        """What it answers."""
        self.write(order)
        said = self.said()
        assert said.get("done") == order, said
        return said


@pytest.fixture(scope="session")
def servers() -> Iterator[subprocess.Popen[str]]:
    """Where studios begin, one for each file of tests."""
    command = [sys.executable, "-m", "tests.web.servers"]
    process = subprocess.Popen(command, cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield process
        assert process.stdin
        process.stdin.close()
        process.wait(30)
    finally:
        process.kill()
        process.wait(10)


@pytest.fixture(scope="module")
def site(servers: subprocess.Popen[str]) -> Iterator[Site]:
    made = Site(servers)
    made.write("begin")
    made.pages = made.said()
    assert "url" in made.pages, made.pages
    yield made
    made.tell("end")


@pytest.fixture(scope="module")
def browser() -> Browser:
    return chromium.shared()


Visit = Callable[..., Page]


@pytest.fixture
def visit(browser: Browser, site: Site) -> Iterator[Visit]:
    """`visit(width=360, theme="dark")`: a browser with Alice logged in, on no page yet; with `username=""` nobody is. Any script error or
    policy violation fails the test.

    `outage`: the test takes the server away, and the browser may say so."""
    complaints: list[str] = []
    contexts = []

    def allowed(text: str) -> bool:
        """A machine that is busy with other tests may be slow, and the page says so in the console; it asks again by itself."""
        return "htmx:error: timeout" in text

    def open_(*, width: int = 1280, theme: str = "light", script: bool = True, username: str = "alice", outage: bool = False) -> Page:
        # Not `browser`, which says that it stays open: a test without one may have been between, and it was closed.
        context = chromium.shared().new_context(
            viewport={"width": width, "height": 800}, color_scheme="dark" if theme == "dark" else "light", java_script_enabled=script
        )
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(TIMEOUT_MS)
        page.on("pageerror", lambda error: complaints.append(f"{page.url}: {error}"))
        page.on(
            "console",
            lambda said: (
                complaints.append(f"{page.url}: {said.text}") if said.type == "error" and not (outage or allowed(said.text)) else None
            ),
        )
        if username:
            session = site.tell(f"session {username}")
            context.add_cookies([{"name": session["cookie"], "value": session["value"], "url": site.pages["url"]}])
        return page

    yield open_
    for context in contexts:
        context.close()
    assert not complaints, "\n".join(complaints)


def log_in(page: Page, site: Site, username: str) -> None:
    """As people do."""
    page.goto(site.pages["url"] + "/login/")
    page.get_by_label("Username").fill(username)
    page.get_by_label("Password").fill(cast.PASSWORD)
    page.get_by_role("button", name="Log in").click()
    page.wait_for_url("**/projects/")


def go(page: Page, site: Site, name: str) -> None:
    page.goto(site.pages["url"] + site.pages[name])
    if name == "run" or (name == "cluster" and page.viewport_size and page.viewport_size["width"] > 700):
        page.locator(".uplot").first.wait_for()


WCAG = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa")
BY_LOOK = ("color-contrast", "target-size", "scrollable-region-focusable")  # what depends on the theme and the width


def agree(page: Page) -> None:
    """Say yes in the dialog that asks first."""
    page.locator("dialog.ask [value=yes]").click()


def violations(page: Page, rules: Sequence[str] = WCAG) -> list[str]:
    """What axe finds that is serious, by the rules of WCAG 2 A and AA. Its script comes in past the page's policy, for the test alone. The
    page is looked at from its top: what happens to be half under the bar of the studio as it is scrolled is too small for nobody."""
    page.evaluate("scrollTo({ top: 0, behavior: 'instant' })")
    if not page.evaluate("'axe' in window"):  # half a megabyte, which a page that is looked at again has
        page.evaluate(AXE.read_text())
    found: dict[str, Any] = page.evaluate("rules => axe.run(document, {runOnly: rules, resultTypes: ['violations']})", list(rules))
    return [
        f"{page.url} {each['id']} ({each['impact']}): {each['nodes'][0]['html'][:160]} {each['nodes'][0]['failureSummary'][:200]}"
        for each in found["violations"]
        if each["impact"] in ("serious", "critical")
    ]
