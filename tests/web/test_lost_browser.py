"""The page of a machine that is not heard of, in a real browser: readable, and it can be declared lost and removed."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.web.browsing import Site, Visit, agree, go
from tests.web.test_sharing_browser import is_readable_and_fits


@pytest.mark.parametrize(("width", "theme"), [(1280, "light"), (360, "dark"), (360, "light"), (1280, "dark")])
def test_a_machine_that_is_not_heard_of_says_what_can_be_done(width: int, theme: str, visit: Visit, site: Site) -> None:
    site.tell("silent")
    page = visit(width=width, theme=theme, username="dora")
    go(page, site, "node")
    expect(page.get_by_role("heading", name="It is gone for good")).to_be_visible()
    expect(page.get_by_text("and is refused: give it a name of its own")).to_be_visible()
    is_readable_and_fits(page)


def test_it_is_declared_lost_and_removed(visit: Visit, site: Site) -> None:
    site.tell("silent")
    page = visit(username="dora")
    go(page, site, "node")
    page.get_by_label("Type the node's name to confirm").fill("local")
    page.get_by_role("button", name="Declare lost").click()
    expect(page.get_by_text("local is declared lost")).to_be_visible()
    page.get_by_role("button", name="Remove this node").click()
    agree(page)
    expect(page.get_by_text("local is removed")).to_be_visible()
