"""A model as people make one: registered from a run's Results, an alias set, files taken away, in both themes at both widths; and the same
by the command `edt`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import expect

from tests import cast
from tests.web.browsing import BY_LOOK, WCAG, Site, Visit, agree, violations

CONTENT = b"\x80" * 184_320  # as the seed has it


def fits(page: Any) -> bool:
    return bool(page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth"))


@pytest.mark.parametrize(("width", "theme"), [(1280, "light"), (360, "dark")])
def test_a_model_is_registered_pointed_to_and_taken_away(width: int, theme: str, visit: Visit, site: Site, tmp_path: Path) -> None:
    rules, page = WCAG if theme == "light" else BY_LOOK, visit(width=width, theme=theme)
    page.goto(site.pages["url"] + site.pages["results"])
    page.get_by_role("region", name="Models").get_by_role("link", name="Register as a model").click()
    page.get_by_label("Model", exact=True).fill(f"LeNet {theme}")
    page.get_by_label("Note").fill("# 98 %\n\n- *two* convolutions\n\n`main.py`")
    assert not violations(page, rules)
    assert fits(page)
    page.get_by_role("button", name="Register").click()
    expect(page.get_by_role("heading", level=1)).to_have_text(f"LeNet {theme} version 1")
    page.get_by_role("textbox", name="Alias").fill("champion")
    page.get_by_role("button", name="Set alias").click()
    expect(page.locator("#body")).to_contain_text("champion")
    expect(page.locator("#body")).to_contain_text("No safetensors of model_epoch_20.pth: torch.save did not write it")
    with page.expect_download() as download:
        page.get_by_role("link", name="Download model_epoch_20.pth").click()
    download.value.save_as(tmp_path / "model.pth")
    assert (tmp_path / "model.pth").read_bytes() == CONTENT
    page.get_by_text("Note and tags; delete").click()
    assert not violations(page, rules)
    assert fits(page)
    page.get_by_role("button", name="Delete this version").click()
    agree(page)
    expect(page.locator(".notes")).to_contain_text("champion points to it")
    page.get_by_role("navigation", name="Breadcrumb").get_by_role("link", name=f"LeNet {theme}").click()
    expect(page.locator("#version-1")).to_contain_text("champion")
    assert not violations(page, rules)
    assert fits(page)
    page.get_by_role("navigation", name="Breadcrumb").get_by_role("link", name="Models").click()
    expect(page.locator("#models")).to_contain_text(f"LeNet {theme}")
    assert not violations(page, rules)
    assert fits(page)


def test_the_command_registers_lists_points_and_downloads(site: Site, tmp_path: Path) -> None:
    url = site.pages["url"]
    made = httpx.post(f"{url}/api/v1/tokens", json={"name": "edt", "scope": "write"}, auth=("alice", cast.PASSWORD))
    token = made.json()["token"]
    run = site.pages["results"].split("/")[2]

    def edt(words: list[str], *, status: int = 0) -> Any:
        done = subprocess.run(
            [sys.executable, "-m", "edt_client", *words],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2]), "EDT_STUDIO": url, "EDT_TOKEN": token},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == status, done.stderr
        return json.loads(done.stdout) if "--json" in words else done.stdout + done.stderr

    version = edt(["register", run, "--name", "shell", "--alias", "champion", "--tag", "a=1", "--json"])
    assert (version["number"], version["aliases"], version["tags"]) == (1, ["champion"], {"a": "1"})
    assert "shell version 2, of model/model_epoch_20.pth" in edt(["register", run, "--name", "shell"])
    assert [each["number"] for each in edt(["models", "shell", "--json"])] == [2, 1]
    assert "champion → 1" in edt(["models"])
    assert edt(["alias", "shell@2", "champion", "--json"])["aliases"] == {"champion": 2}
    files = edt(["download", "model", "shell@champion", "--json"])["files"]
    assert files == ["shell-2/model_epoch_20.pth"]
    assert (tmp_path / files[0]).read_bytes() == CONTENT
    edt(["download", "model", "shell@1", "--to", "first"])
    assert (tmp_path / "first" / "model_epoch_20.pth").read_bytes() == CONTENT
    assert "points to nothing" in edt(["alias", "shell", "champion", "--remove"])
    assert "no alias of that name" in edt(["download", "model", "shell@champion"], status=1)
    assert "You have no model named none" in edt(["download", "model", "none"], status=1)
    assert "model_epoch_20.pth" in edt(["download", run, "--list"]), "files of runs, as ever"
