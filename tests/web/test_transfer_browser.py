"""A project is taken away and brought in again in a real browser."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

from playwright.sync_api import expect

from tests.web.browsing import Site, Visit, go


def test_an_archive_is_exported_and_sent_in_pieces_to_the_page_of_its_import(visit: Visit, site: Site, tmp_path: Path) -> None:
    page = visit()
    go(page, site, "settings")
    with page.expect_download() as found:
        page.get_by_role("link", name="Export").click()
    archive = tmp_path / found.value.suggested_filename
    found.value.save_as(archive)
    with zipfile.ZipFile(archive) as zipped:
        assert json.loads(zipped.read("manifest.json"))["name"] == "Digits"
    go(page, site, "projects")
    page.get_by_role("link", name="Import a project").click()
    page.locator("input[type=file]").set_input_files(archive)
    page.get_by_role("button", name="Import").click()
    expect(page.locator("#state")).to_contain_text("Waiting")
    expect(page.get_by_role("heading", level=1)).to_contain_text(archive.name)
