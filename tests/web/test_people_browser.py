"""Somebody joins and leaves: an administrator makes the account, the new person logs in, and is out once it is closed."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from playwright.sync_api import Error, expect

from tests.web.browsing import BY_LOOK, WCAG, Site, Visit, agree, violations


def fits(page: Any) -> bool:
    return bool(page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth"))


@pytest.mark.parametrize(("width", "theme"), [(1280, "light"), (360, "dark")])
def test_somebody_is_let_in_and_out(width: int, theme: str, visit: Visit, site: Site) -> None:
    rules, page = WCAG if theme == "light" else BY_LOOK, visit(width=width, theme=theme, username="dora")
    name = f"erin-{theme}"
    page.goto(site.pages["url"] + site.pages["cluster"])
    page.get_by_role("link", name="People", exact=True).click()
    page.get_by_label("Name", exact=True).fill("alice")
    page.get_by_role("button", name="Make the account").click()
    expect(page.locator(".error")).to_contain_text("There is an account alice already")
    page.get_by_label("Name", exact=True).fill(name)
    page.get_by_role("button", name="Make the account").click()
    password = page.locator("#password").inner_text()
    assert not violations(page, rules)
    assert fits(page)

    theirs = visit(username="")
    theirs.goto(site.pages["url"] + "/login/")
    theirs.get_by_label("Username").fill(name)
    theirs.get_by_label("Password").fill(password)
    theirs.get_by_role("button", name="Log in").click()
    theirs.wait_for_url("**/projects/")

    page.get_by_role("searchbox", name="Find a person").fill("ERIN")
    expect(page.locator("#list")).not_to_contain_text("alice")
    page.get_by_role("link", name=name).click()
    expect(page.get_by_role("heading", level=1)).to_have_text(name)
    assert not violations(page, rules)
    assert fits(page)
    page.get_by_label("Reason").fill("was here for a day")
    page.get_by_role("button", name="Close the account").click()
    agree(page)
    expect(page.locator(".notes")).to_contain_text(f"The account of {name} is closed.")
    expect(page.get_by_role("button", name="Open the account again")).to_be_visible()
    with suppress(Error):  # it may be about to do so by itself, as its connection ends
        theirs.reload()
    theirs.wait_for_url("**/login/**")
