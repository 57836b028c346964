"""Pages that are open while what they show is deleted, or stops being somebody's to see: they say so at once."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.web.browsing import Site, Visit, agree, go

SOON_MS = 10_000  # before a page asks again by itself, which it does from 22 s on


def opened(visit: Visit, site: Site, address: str, username: str = "alice") -> Page:
    page = visit(username=username, outage=True)
    page.goto(site.pages["url"] + address)
    expect(page.locator("#live")).to_have_text("Live")
    return page


def says_that_it_is_gone(page: Page) -> None:
    expect(page.get_by_role("heading", level=1)).to_have_text("Not found", timeout=SOON_MS)
    expect(page.get_by_role("main")).to_contain_text("it was deleted, or you are not a member")


def test_a_run_that_is_deleted_in_another_tab_is_said_to_be_gone(visit: Visit, site: Site) -> None:
    run = site.pages["failed run"]
    tabs = [opened(visit, site, run + tab) for tab in ("", "overview/", "logs/", "results/", "media/")]
    other = visit(outage=True)  # it may ask for something of the run before it has left its page
    go(other, site, "failed run")
    other.locator("#head details[data-menu] summary").click()
    other.get_by_role("button", name="Delete").click()
    agree(other)
    other.wait_for_url("**/experiments/*/")
    expect(other.get_by_text("is deleted with its files")).to_be_visible()
    for tab in tabs:
        says_that_it_is_gone(tab)


@pytest.mark.parametrize("name", ["run", "project", "experiment", "settings"])
def test_a_member_who_is_removed_sees_nothing_more_of_the_project(name: str, visit: Visit, site: Site) -> None:
    admin = visit()
    go(admin, site, "members")
    if not admin.get_by_role("row", name="charlie").count():
        admin.get_by_label("Username").fill("charlie")
        admin.get_by_label("Role", exact=True).last.select_option("Admin")
        admin.get_by_role("button", name="Add member").click()
    page = opened(visit, site, site.pages[name], "charlie")
    admin.get_by_role("row", name="charlie").get_by_role("button", name="Remove").click()
    agree(admin)
    says_that_it_is_gone(page)
