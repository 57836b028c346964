"""A project with very many training definitions in a real browser: any of them is found for a new experiment."""

from __future__ import annotations

from playwright.sync_api import expect

from tests.web.browsing import Site, Visit


def test_what_was_ticked_stays_ticked_while_one_looks_for_another(visit: Visit, site: Site) -> None:
    site.tell("definitions 120")
    page = visit()
    page.goto(site.pages["url"] + site.pages["new experiment"])
    page.get_by_role("button", name="Add training definition").click()
    page.get_by_role("tab", name="Existing training definition").click()
    dialog, search = page.get_by_role("dialog"), page.get_by_role("searchbox", name="Find a training definition")
    search.fill("row 3 of")
    expect(dialog.get_by_role("checkbox")).to_have_count(1)
    dialog.get_by_label("row 3 of many").check()
    search.fill("LeNet")
    dialog.get_by_label("LeNet").check()
    expect(dialog.get_by_label("row 3 of many")).to_be_checked()
    search.fill("nothing is called so")
    expect(dialog.get_by_text("No training definition has")).to_be_visible()
    expect(dialog.get_by_role("checkbox")).to_have_count(2)
    page.get_by_role("button", name="Add", exact=True).click()
    expect(page.locator("#associated tr")).to_have_count(2)
