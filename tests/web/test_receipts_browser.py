"""A receipt as people see it: downloaded, the run done again, both read in both themes at both widths."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import expect

from edt_client import receipts
from tests.web.browsing import BY_LOOK, WCAG, Site, Visit, violations


@pytest.mark.parametrize(("width", "theme"), [(1280, "light"), (360, "dark")])
def test_a_receipt_is_downloaded_and_the_run_done_again(width: int, theme: str, visit: Visit, site: Site, tmp_path: Path) -> None:
    page = visit(width=width, theme=theme)
    page.goto(site.pages["url"] + site.pages["failed run"])
    page.get_by_role("navigation").get_by_role("link", name="Overview", exact=True).click()
    section = page.get_by_role("region", name="Receipt")
    with page.expect_download() as download:
        section.get_by_role("link", name="Download receipt").click()
    download.value.save_as(tmp_path / "receipt.json")
    assert receipts.check((tmp_path / "receipt.json").read_bytes()).problem == ""
    section.get_by_role("button", name="Reproduce").click()
    again = page.get_by_role("region", name="Receipt")
    expect(again).to_contain_text("Not compared yet: states are compared after each epoch.")
    section.scroll_into_view_if_needed()
    assert not violations(page, WCAG if theme == "light" else BY_LOOK)
    again.get_by_role("link", name="run", exact=False).first.click()
    expect(page.locator("#head")).to_contain_text("Failed")
