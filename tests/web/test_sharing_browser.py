"""The scheduling policy in a real browser, as an administrator has them: previews follow what is typed, and it works without script."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.web.browsing import Site, Visit, agree, go, violations


def is_readable_and_fits(page: Page) -> None:
    page.evaluate("window.scrollTo(0, 0)")  # else the page's own head covers what axe measures
    found = violations(page)
    assert not found, "\n".join(found)
    assert page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") <= 0


@pytest.mark.parametrize(("width", "theme"), [(1280, "light"), (360, "dark")])
def test_an_administrator_sees_what_rules_and_drains_would_do(width: int, theme: str, visit: Visit, site: Site) -> None:
    page = visit(width=width, theme=theme, username="dora")
    go(page, site, "sharing")
    page.get_by_label("Quota of bob").fill("1")
    expect(page.locator("#preview")).to_contain_text("bob's quota is 1 slot")
    is_readable_and_fits(page)
    page.get_by_label("Quota of bob").fill("-1")
    expect(page.locator("#preview")).to_contain_text("Quota of bob: Give a whole number from 0 to 1000000.")
    page.get_by_label("Weight of alice").fill("0")
    expect(page.locator("#preview")).to_contain_text("Weight of alice: Give a number from 0.01 to 1000.")
    expect(page.locator("#preview")).to_contain_text("Quota of bob: Give a whole number")
    page.get_by_role("button", name="Apply").click()
    expect(page.locator(".error")).to_have_text(["Give a number from 0.01 to 1000.", "Give a whole number from 0 to 1000000."])
    expect(page.get_by_label("Weight of alice")).to_be_focused()
    is_readable_and_fits(page)
    go(page, site, "node")
    page.get_by_label("Reason").fill("a new fan")
    page.get_by_role("button", name="Preview", exact=True).click()
    expect(page.locator("#preview")).to_contain_text("no slot is in service")
    site.tell("changed")
    page.get_by_role("button", name="Preview for GPU 0").click()
    expect(page.locator("#preview")).to_contain_text(re.compile("→ 0.*slots are held by"))
    expect(page.get_by_label("Reason")).to_have_value("a new fan")
    is_readable_and_fits(page)


@pytest.mark.parametrize(("width", "theme"), [(1280, "light"), (360, "dark")])
def test_a_weak_box_is_told_where_people_look_and_an_administrator_answers_for_it(width: int, theme: str, visit: Visit, site: Site) -> None:
    page, alice = visit(width=width, theme=theme, username="dora"), visit(width=width, theme=theme)
    page.goto(site.pages["url"] + site.pages["cluster"])  # without curves: she is in no project
    expect(page.locator("#tiles")).not_to_contain_text("Nothing new is run")
    site.tell("box limits")
    expect(page.locator("#tiles")).to_contain_text("Nothing new is run on local (limits)")
    assert page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") <= 0
    page.locator("#tiles").get_by_role("link", name="Scheduling policy").click()
    for yes, said in ((True, "an administrator has said that they trust each other"), (False, "so it runs nothing new")):
        page.get_by_label("The people here trust each other").set_checked(yes)
        expect(page.locator("#preview")).not_to_contain_text("Change something above")
        page.get_by_role("button", name="Apply").click()
        expect(page.locator("#boxes")).to_contain_text(said)
        is_readable_and_fits(page)
        go(alice, site, "run")
        expect(alice.locator("#head").get_by_text("This studio's people trust each other")).to_have_count(int(yes))
        is_readable_and_fits(alice)
        go(page, site, "node")
        is_readable_and_fits(page)
        go(page, site, "sharing")
    site.tell("box user+landlock")


def test_rules_are_changed_without_script(visit: Visit, site: Site) -> None:
    page = visit(username="dora", script=False)
    go(page, site, "sharing")
    for weight in ("2", "1"):
        page.get_by_label("Weight of alice").fill(weight)
        page.get_by_label("Reason").fill("a paper")
        page.get_by_role("button", name="Apply").click()
        expect(page.get_by_text("The scheduling policy is changed.")).to_be_visible()
    expect(page.locator("#history")).to_contain_text("dora changed alice's weight from 2 to 1")


@pytest.mark.parametrize(("width", "theme"), [(1280, "light"), (360, "dark")])
def test_a_walkthrough_of_the_original_console_finds_the_instance_group_and_its_applications(
    width: int, theme: str, visit: Visit, site: Site
) -> None:
    """Start what is not ready by its box, then look at the applications."""
    page = visit(width=width, theme=theme, username="dora")
    go(page, site, "sharing")
    page.get_by_role("link", name="Cluster", exact=True).last.click()
    page.get_by_role("link", name="Instance groups").click()
    for button, state in (("Stop", "Stopped"), ("Start", "Ready")):
        box = page.get_by_role("checkbox", name="Choose EDT Studio")
        box.check()
        with page.expect_response(lambda response: "part=list" in response.url):
            site.tell("changed")  # the list follows, and what was chosen stays
        expect(box).to_be_checked()
        page.get_by_role("button", name=button, exact=True).click()
        agree(page)
        expect(page.locator("#groups")).to_contain_text(state)
        is_readable_and_fits(page)
    page.get_by_role("link", name="EDT Studio", exact=True).last.click()
    expect(page.get_by_role("heading", name="Submitted applications")).to_be_visible()
    for column in ("Name and ID", "Submitter", "Type", "State", "CPU slots", "GPU slots", "Priority", "Submitted", "Ended", "Run duration"):
        expect(page.locator("#jobs thead")).to_contain_text(column)
    is_readable_and_fits(page)


def test_what_is_no_number_is_not_sent_as_if_the_field_were_empty(visit: Visit, site: Site) -> None:
    page = visit(username="dora")
    go(page, site, "sharing")
    page.get_by_label("Quota of bob").fill("3")
    page.get_by_role("button", name="Apply").click()
    expect(page.get_by_text("The scheduling policy is changed.")).to_be_visible()
    quota = page.get_by_label("Quota of bob")
    quota.fill("")
    quota.press_sequentially("2e")
    page.get_by_role("button", name="Apply").click()
    expect(quota).to_be_focused()
    page.reload()
    expect(quota).to_have_value("3")
    quota.fill("")
    page.get_by_role("button", name="Apply").click()
    expect(page.get_by_text("The scheduling policy is changed.")).to_be_visible()
