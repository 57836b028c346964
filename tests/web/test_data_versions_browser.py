"""A data set gets a version in the browser, and the experiment that read the old one is run on it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.web.browsing import BY_LOOK, WCAG, Site, Visit, go, violations


def fits(page: Any) -> bool:
    return bool(page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth"))


def well(page: Any, theme: str) -> None:
    """It is accessible and no wider than the window."""
    assert not violations(page, WCAG if theme == "light" else BY_LOOK)
    assert fits(page)


@pytest.mark.parametrize(("width", "theme"), [(1280, "light"), (360, "dark")])
def test_a_version_is_added_and_the_experiment_is_run_on_it(width: int, theme: str, visit: Visit, site: Site, tmp_path: Path) -> None:
    page, name = visit(width=width, theme=theme, outage=True), f"letters {theme}"
    (tmp_path / "letters.csv").write_text("a,b\n")
    go(page, site, "new data")
    page.get_by_label("Files").set_input_files(tmp_path / "letters.csv")
    page.get_by_label("Name").fill(name)
    page.get_by_role("button", name="Upload").click()
    expect(page.get_by_role("heading", level=1)).to_have_text(f"{name} v1")
    first = page.url
    page.goto(f"{site.pages['url']}{site.pages['edit as new']}&data={first.rstrip('/').rpartition('/')[2]}")
    expect(page.locator("#id_data_asset option:checked")).to_have_text(f"{name} v1")
    page.locator("#id_name").fill(f"reads {theme}")
    page.get_by_role("button", name="Create and run").click()
    expect(page.get_by_role("heading", level=1)).to_have_text(f"reads {theme}")
    reads = page.url
    page.goto(first)
    page.get_by_role("link", name="Add a version").last.click()
    expect(page.get_by_role("heading", level=1)).to_have_text(f"Add a version of {name}")
    page.get_by_label("What is new").fill("a third column")
    page.get_by_label("Files").set_input_files(tmp_path / "letters.csv")
    page.get_by_role("button", name="Upload").click()
    expect(page.get_by_role("alert")).to_contain_text(f"These are the files of {name} v1, the newest version")
    well(page, theme)
    expect(page.get_by_role("button", name="Resume upload")).to_be_hidden()
    (tmp_path / "more.csv").write_text("a,b,c\n")
    page.get_by_label("Files").set_input_files(tmp_path / "more.csv")
    page.get_by_role("button", name="Upload").click()
    expect(page.get_by_role("heading", level=1)).to_have_text(f"{name} v2")
    expect(page.locator("#version-2")).to_contain_text("a third column")
    well(page, theme)
    page.locator("#version-1").get_by_role("link", name="v1").click()
    expect(page.locator("main")).to_contain_text("v1 of 2, newest is v2")
    well(page, theme)
    page.locator(".actions-menu summary").click()
    expect(page.get_by_role("button", name="Delete all 2 versions")).to_be_visible()
    page.goto(reads + "overview/")
    expect(page.get_by_role("main")).to_contain_text("The newest version is v2")
    well(page, theme)
    page.get_by_role("link", name="Same experiment on v2").click()
    expect(page.locator("#id_data_asset option:checked")).to_have_text(f"{name} v2, newest")
    well(page, theme)
    page.get_by_role("button", name="Create and run").click()
    expect(page.get_by_role("heading", level=1)).to_have_text(f"reads {theme} (copy)")
    page.get_by_role("link", name="Overview").click()
    expect(page.get_by_role("main").get_by_role("link", name=f"{name} v2")).to_be_visible()
    expect(page.get_by_role("main")).not_to_contain_text("The newest version is")
    go(page, site, "assets")
    expect(page.get_by_role("row", name=name)).to_contain_text("2 of 2")
    expect(page.get_by_role("main")).not_to_contain_text(f"The upload of {name} is not finished")
    well(page, theme)


def test_after_files_that_were_refused_other_ones_are_taken(visit: Visit, site: Site, tmp_path: Path) -> None:
    page = visit(outage=True)
    (tmp_path / "digits.zip").write_bytes(b"Rar!")
    (tmp_path / "digits.csv").write_text("a,b\n")
    go(page, site, "new data")
    page.get_by_label("Files").set_input_files(tmp_path / "digits.zip")
    page.get_by_role("button", name="Upload", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("digits.zip is not a zip file, or not all of one: pack the folder as .zip anew")
    expect(page.get_by_role("button", name="Resume upload")).to_have_count(0)
    page.get_by_label("Files").set_input_files(tmp_path / "digits.csv")
    page.get_by_role("button", name="Upload", exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_have_text("digits.csv v1")


def test_an_upload_that_is_refused_when_it_was_gone_on_with_is_over(visit: Visit, site: Site, tmp_path: Path) -> None:
    page = visit(outage=True)
    (tmp_path / "letters.zip").write_bytes(b"Rar!")
    page.goto(site.pages["url"] + site.pages["new data"])
    begin = page.locator("[data-upload]").get_attribute("data-upload")
    begun = page.evaluate(
        """async (to) => (await (await fetch(to, {
          method: 'POST', headers: { 'X-CSRFToken': document.querySelector('[name=csrfmiddlewaretoken]').value },
          body: JSON.stringify({ name: 'Broken letters', files: [{ path: 'letters.zip', size: 4 }] }),
        })).json()).upload""",
        begin,
    )
    page.goto(site.pages["url"] + begun)
    page.get_by_label("Files").set_input_files(tmp_path / "letters.zip")
    resume = page.get_by_role("button", name="Resume upload")
    resume.first.click()
    expect(page.get_by_role("alert")).to_contain_text("letters.zip is not a zip file")
    expect(resume).to_have_count(1)
    expect(resume).to_be_disabled()
    expect(page.get_by_role("button", name="Remove this upload")).to_have_count(0)
    page.get_by_role("link", name="Not now").click()
    expect(page.get_by_role("main")).not_to_contain_text("Broken letters")
