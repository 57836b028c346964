"""Slots that look ill, in a real browser: readable on the node's page, and put back with one click."""

from __future__ import annotations

import os

import pytest
from playwright.sync_api import expect

from tests.web.browsing import Site, Visit, go
from tests.web.test_sharing_browser import is_readable_and_fits


@pytest.mark.parametrize(("width", "theme"), [(1280, "light"), (360, "dark"), (360, "light"), (1280, "dark")])
def test_slots_that_look_ill_say_why(width: int, theme: str, visit: Visit, site: Site) -> None:
    site.tell("ill")
    page = visit(width=width, theme=theme, username="dora")
    go(page, site, "node")
    expect(page.get_by_text("out of service: it is given back")).to_be_visible()
    expect(page.get_by_text("It stays in service because it is the last GPU slot that is.")).to_be_visible()
    is_readable_and_fits(page)
    if folder := os.environ.get("EDT_TEST_PICTURES"):
        page.screenshot(path=f"{folder}/slots-{width}-{theme}.png", full_page=True)


def test_an_administrator_puts_them_back(visit: Visit, site: Site) -> None:
    site.tell("ill")
    page = visit(username="dora")
    go(page, site, "node")
    page.get_by_role("button", name="Put back GPU 3").click()
    expect(page.get_by_text("GPU 3 is in service again; what spoke against it is forgotten.")).to_be_visible()
    page.get_by_role("button", name="Forget it GPU 2").click()
    expect(page.get_by_text("looks ill")).to_have_count(0)
