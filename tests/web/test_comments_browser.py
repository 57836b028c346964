"""Comments on a run in real browsers: what one person says the other sees without a reload."""

from __future__ import annotations

import os

import pytest
from playwright.sync_api import expect

from tests.web.browsing import BY_LOOK, WCAG, Site, Visit, agree, go, violations


@pytest.mark.parametrize(("width", "theme"), [(1280, "light"), (360, "dark")])
def test_what_one_says_the_other_sees_at_once(width: int, theme: str, site: Site, visit: Visit) -> None:
    alice, bob = visit(width=width, theme=theme), visit(username="bob")
    go(alice, site, "run")
    go(bob, site, "run")
    expect(alice.locator("#live")).to_have_text("Live")
    bob.get_by_label("Add a comment").fill(f"@alice the **warm-up** helps at {width}.")
    bob.get_by_role("button", name="Comment", exact=True).click()
    said = alice.locator("#comments").get_by_role("article").filter(has_text=f"the warm-up helps at {width}.")
    expect(said).to_contain_text("bob")
    expect(said.locator("strong")).to_have_text("warm-up")
    assert not violations(alice, WCAG if theme == "light" else BY_LOOK)
    if to := os.environ.get("SHOTS"):
        said.scroll_into_view_if_needed()
        alice.screenshot(path=f"{to}/comments-{width}-{theme}.png")
    mine = bob.locator("#comments").get_by_role("article").filter(has_text=f"helps at {width}.")
    mine.get_by_text("Edit", exact=True).click()
    mine.get_by_label("Your comment").fill(f"It does not, at {width}.")
    mine.get_by_role("button", name="Save").click()
    expect(alice.locator("#comments")).to_contain_text(f"It does not, at {width}.")
    alice.locator("#comments").get_by_role("article").filter(has_text=f"at {width}.").get_by_role("button", name="Delete").click()
    agree(alice)
    expect(bob.locator("#comments")).not_to_contain_text(f"at {width}.")


def test_comments_are_written_without_script(site: Site, visit: Visit) -> None:
    page = visit(script=False)
    page.goto(site.pages["url"] + site.pages["run"])
    page.get_by_label("Add a comment").fill("By hand.")
    page.get_by_role("button", name="Comment", exact=True).click()
    expect(page.locator("#comments")).to_contain_text("By hand.")
