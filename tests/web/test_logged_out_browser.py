"""Somebody whose session ends while a form is open: what they have typed is not lost, and a login in another tab does not stop them."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Page, expect

from tests import cast
from tests.web.browsing import Site, Visit, go, log_in

TYPED = "What I think of this run, at length."


def log_out(page: Page) -> None:
    """As an administrator, or the clock, does it to somebody."""
    page.context.clear_cookies(name="sessionid")


def ask_for_bell(page: Page) -> None:
    """As each page does now and then."""
    page.evaluate("document.getElementById('bell').dispatchEvent(new CustomEvent('refresh'))")


def log_in_there(page: Page, username: str) -> None:
    """On the login page that one was brought to."""
    page.get_by_label("Username").fill(username)
    page.get_by_label("Password").fill(cast.PASSWORD)
    page.get_by_role("button", name="Log in").click()
    page.wait_for_url(lambda address: "/login/" not in address)


def test_what_was_typed_is_there_again_after_the_login(visit: Visit, site: Site) -> None:
    page = visit(outage=True)
    go(page, site, "new experiment")
    page.get_by_label("Name").first.fill("Typed before")
    page.get_by_text("Checkpoints to keep").click()
    page.get_by_label("Keep the last checkpoints").fill("3")
    log_out(page)
    page.get_by_role("button", name="Create and run").click()
    expect(page.get_by_text("what you sent was not done")).to_be_visible()
    log_in_there(page, "alice")
    expect(page.get_by_label("Name").first).to_have_value("Typed before")
    expect(page.get_by_label("Keep the last checkpoints")).to_have_value("3")
    expect(page.get_by_label("Keep the last checkpoints")).to_be_visible()
    expect(page.get_by_text("What you had filled in is here again")).to_be_visible()
    page.reload()
    expect(page.get_by_label("Name").first).to_have_value("")


def test_it_is_not_shown_to_somebody_else(visit: Visit, site: Site) -> None:
    page = visit(outage=True)
    go(page, site, "run")
    page.get_by_label("Add a comment").fill(TYPED)
    log_out(page)
    page.get_by_role("button", name="Comment", exact=True).click()
    page.wait_for_url("**/login/**")
    log_in_there(page, "bob")
    expect(page.get_by_label("Add a comment")).to_have_value("")
    assert page.evaluate("sessionStorage.getItem('unsent')") is None


def test_what_was_sent_does_not_come_back(visit: Visit, site: Site) -> None:
    page = visit(outage=True)
    go(page, site, "run")
    page.get_by_label("Add a comment").fill(TYPED)
    page.get_by_role("button", name="Comment", exact=True).click()
    expect(page.get_by_role("article").get_by_text(TYPED).first).to_be_visible()
    log_out(page)
    page.reload()
    log_in_there(page, "alice")
    expect(page.get_by_label("Add a comment")).to_have_value("")


def test_a_secret_is_not_kept(visit: Visit, site: Site) -> None:
    page = visit(outage=True)
    go(page, site, "variables")
    page.get_by_label("Name").fill("TOKEN")
    page.get_by_label("Value").fill("hunter2")
    page.route("**/variables/**", lambda route: route.fulfill(status=204))
    page.get_by_role("button", name="Save").click()
    assert "hunter2" not in page.evaluate("JSON.stringify({ ...sessionStorage })")


def test_a_deploy_key_is_not_kept_with_what_is_typed_beside_it(visit: Visit, site: Site) -> None:
    page = visit(outage=True)
    go(page, site, "new definition")
    page.get_by_label("Name").first.fill("private code")
    page.get_by_text("Code from a git repository instead").click()
    page.get_by_label("Deploy key or token").fill("hunter2")
    page.route("**/definitions/new/", lambda route: route.fulfill(status=204))
    page.get_by_role("button", name="Create").click()
    kept = page.evaluate("JSON.stringify({ ...sessionStorage })")
    assert "private code" in kept
    assert "hunter2" not in kept


def test_a_page_that_is_left_by_a_logout_in_another_tab_keeps_what_is_being_typed(visit: Visit, site: Site) -> None:
    page = visit(outage=True)
    go(page, site, "new experiment")
    expect(page.locator("#live")).to_have_text("Live")
    page.get_by_label("Name").first.fill("Half of a na")
    other = page.context.new_page()
    go(other, site, "run")
    other.locator(".shell details.menu > summary").click()
    other.get_by_role("button", name="Log out").click()
    other.wait_for_url("**/login/**")
    ask_for_bell(page)
    page.wait_for_url("**/login/**")
    log_in_there(page, "alice")
    expect(page.get_by_label("Name").first).to_have_value("Half of a na")


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


def test_the_side_panel_waits_until_one_is_logged_in_again(visit: Visit, site: Site, tmp_path: Path) -> None:
    page = visit(outage=True)
    (tmp_path / "train.py").write_text("print(1)\n")
    go(page, site, "new experiment")
    page.get_by_label("Name").first.fill("Typed before")
    page.get_by_role("button", name="Add training definition").click()
    panel = page.get_by_role("dialog")
    panel.locator("input[type=file]").set_input_files(tmp_path / "train.py")
    log_out(page)
    with page.expect_response("**/login/**"):
        ask_for_bell(page)
    panel.get_by_role("button", name="Create").click()
    with page.context.expect_page() as opened:
        panel.get_by_role("link", name="log in, in a new tab").click()
    log_in_there(opened.value, "alice")
    opened.value.close()
    panel.get_by_role("button", name="Create").click()
    expect(page.locator("#associated")).to_contain_text("train")
    expect(panel.locator("[role=alert]")).to_have_count(0)
    expect(page.get_by_label("Name").first).to_have_value("Typed before")
    page.get_by_role("button", name="Add training definition").click()
    page.get_by_role("tab", name="Existing training definition").click()
    log_out(page)
    panel.get_by_label("LeNet").check()
    panel.get_by_role("button", name="Add", exact=True).click()
    expect(panel.get_by_role("link", name="log in, in a new tab")).to_be_visible()
