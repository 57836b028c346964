"""Somebody whose session ends while a page is open: a login in another tab does not stop its buttons."""

from __future__ import annotations

from playwright.sync_api import Page, expect

from tests.web.browsing import Site, Visit, go, log_in

TYPED = "What I think of this run, at length."


def log_out(page: Page) -> None:
    """As an administrator, or the clock, does it to somebody."""
    page.context.clear_cookies(name="sessionid")


def test_a_login_in_another_tab_does_not_stop_the_buttons_of_this_one(visit: Visit, site: Site) -> None:
    page = visit(outage=True)
    go(page, site, "run")
    page.get_by_label("Add a comment").fill(TYPED)
    log_out(page)
    other = page.context.new_page()
    log_in(other, site, "alice")
    other.close()
    page.get_by_text("Priority and slots").first.click()
    with page.expect_response("**/priority/") as answer:
        page.get_by_role("button", name="Set priority").click()
    assert answer.value.status == 204
    page.get_by_role("button", name="Comment", exact=True).click()
    expect(page.get_by_role("article").get_by_text(TYPED).first).to_be_visible()
