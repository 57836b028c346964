"""What cannot be taken back is asked about in a dialog of the studio's own: by keys, in both themes, and no is no."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.web.browsing import BY_LOOK, WCAG, Site, Visit, agree, violations


@pytest.mark.parametrize(("width", "theme"), [(1280, "light"), (360, "dark")])
def test_no_is_no(width: int, theme: str, visit: Visit, site: Site) -> None:
    page = visit(width=width, theme=theme)
    page.goto(site.pages["url"] + site.pages["run"])
    expect(page.locator("#live")).to_have_text("Live")
    stop = page.get_by_role("button", name="Stop", exact=True)
    dialog = page.get_by_role("dialog", name="Stop Learning rates")
    for no in ("Escape", "Cancel"):
        stop.click()
        expect(dialog).to_be_visible()
        assert not violations(page, WCAG if theme == "light" else BY_LOOK)
        page.keyboard.press("Escape") if no == "Escape" else dialog.get_by_role("button", name=no).click()
        expect(dialog).to_have_count(0)
        expect(stop).to_be_focused()
        expect(page.locator(".run-state")).not_to_contain_text("asked to stop")


def test_yes_is_done_also_where_the_button_was_fetched_anew_while_the_question_stood(visit: Visit, site: Site) -> None:
    page = visit()
    page.goto(site.pages["url"] + site.pages["run"])
    page.get_by_role("button", name="Stop", exact=True).click()
    expect(page.get_by_role("dialog", name="Stop Learning rates")).to_be_visible()
    page.locator("#head").evaluate("head => head.replaceWith(head.cloneNode(true))")  # fetched anew while the question stands
    agree(page)
    expect(page.locator(".run-state")).to_contain_text("Stopping")
