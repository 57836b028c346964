"""A run's Media in a real browser: a step that somebody has chosen stays while more is written, and nothing moves under the pointer."""

from __future__ import annotations

from playwright.sync_api import Page, Route, expect

from tests.web.browsing import Site, Visit, go


def test_a_chosen_step_stays_while_more_arrives(site: Site, visit: Visit) -> None:
    page: Page = visit()
    go(page, site, "media")
    confusion = page.locator("figure", has_text="predictions/confusion")
    notes = page.locator("figure", has_text="notes")
    confusion.get_by_role("link", name="1", exact=True).click()
    expect(confusion.locator("[aria-current]")).to_have_text("1")
    expect(page.locator("#live")).to_have_text("Live")
    site.tell("looks 1 120 240 300")
    expect(notes.locator("[aria-current]")).to_have_text("300")
    expect(confusion.locator("[aria-current]")).to_have_text("1")
    assert confusion.locator("img").evaluate("image => image.decode().then(() => image.naturalWidth)") > 0
    confusion.get_by_role("link", name="300").click()
    expect(confusion.locator("[aria-current]")).to_have_text("300")


def test_steps_are_links_without_script(site: Site, visit: Visit) -> None:
    page: Page = visit(script=False)
    go(page, site, "media")
    page.locator("figure", has_text="notes").get_by_role("link", name="120").click()
    expect(page.locator("figure", has_text="notes").locator("[aria-current]")).to_have_text("120")


def test_nothing_moves_when_a_picture_arrives(site: Site, visit: Visit) -> None:
    page: Page = visit()
    held: list[Route] = []
    page.route("**/media/picture?**", lambda route: held.append(route))
    page.goto(site.pages["url"] + site.pages["media"], wait_until="domcontentloaded")
    expect(page.locator("#live")).to_have_text("Live")
    steps = page.locator("figure", has_text="predictions/confusion").get_by_role("link", name="1", exact=True)
    before = steps.bounding_box()
    assert held, "the pictures have been asked for"
    for route in held:
        route.continue_()
    page.unroute("**/media/picture?**")
    for picture in page.locator("figure img").all():
        picture.evaluate("image => image.decode()")
    assert steps.bounding_box() == before
