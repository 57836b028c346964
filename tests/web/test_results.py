"""A run's Results: its files as a tree of folders, found by name and kind under an address that says so, on the page and by the API."""

from __future__ import annotations

import io
import re
import time
import zipfile
from html import unescape
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from experiments.files import runfiles
from experiments.models import Project, TrainingRun, User
from tests import cast
from tests.web.conftest import As

MOST_BYTES = 100_000
FILES = {
    "model/train/model_epoch_1.pth": 30, "model/train/model_epoch_2.pth": 30, "model/train/model_epoch_final.pth": 40,
    "plots/loss.png": 5, "plots/deep/er/confusion.png": 7, "metrics.csv": 3, "log/driver/console.log": 2,
}  # fmt: skip


def put(run: TrainingRun, files: dict[str, int]) -> None:
    for name, size in files.items():
        path = runfiles.make(run) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * size)


@pytest.fixture
def run(alice: User, project: Project) -> TrainingRun:
    made = cast.run(project, by=alice)
    put(made, FILES)
    return made


def page(client: Client, run: TrainingRun, **asked: Any) -> str:
    answer = client.get(reverse("run_results", args=[run.pk]), asked)
    assert answer.status_code == 200
    return str(answer.content.decode())


def folders(shown: str) -> dict[str, bool]:
    """By path, whether it is open."""
    found = re.findall(r'name="toggle" value="([^"]*)" aria-expanded="(true|false)"', shown)
    return {unescape(path): is_open == "true" for path, is_open in found}


def names(shown: str) -> list[str]:
    """Of the files that are shown."""
    return [path.rpartition("/")[2] for path in re.findall(r'href="/runs/\d+/files/([^"]+)"', shown)]


def test_files_are_a_tree_with_sums(run: TrainingRun, victor: User, as_: As) -> None:
    shown = page(as_(victor), run)
    assert folders(shown) == dict.fromkeys(["log", "log/driver", "model", "model/train", "plots", "plots/deep", "plots/deep/er"], True)
    assert "<b>7</b> files, 117" in shown.replace("\xa0", " ")
    row = shown.split('id="folder-model"')[1].split("</tr>")[0]
    assert ("3 files" in row, "100" in row) == (True, True)


def test_a_folder_is_closed_and_opened_by_its_button(run: TrainingRun, alice: User, as_: As) -> None:
    client = as_(alice)
    closed = page(client, run, tree="1", of="", open=["model", "plots"], toggle="plots")
    assert folders(closed) == {"log": False, "model": True, "model/train": False, "plots": False}
    assert names(closed) == ["metrics.csv"]
    opened = page(client, run, tree="1", of="", open=["plots"], toggle="plots/deep")
    assert folders(opened) == {"log": False, "model": False, "plots": True, "plots/deep": True, "plots/deep/er": False}
    address = unescape(re.findall('data-address="([^"]*)"', opened)[0])
    assert folders(client.get(f"{reverse('run_results', args=[run.pk])}?{address}").content.decode()) == folders(opened), "a link to it"


def test_files_are_found_by_name_and_kind(run: TrainingRun, alice: User, as_: As) -> None:
    client = as_(alice)
    assert names(page(client, run, q="EPOCH")) == ["model_epoch_1.pth", "model_epoch_2.pth", "model_epoch_final.pth"]
    found = page(client, run, q="epoch", kind="checkpoint")
    assert names(found) == ["model_epoch_1.pth", "model_epoch_2.pth"]
    assert "<b>2</b> of 7 files" in found
    assert '<option value="checkpoint" selected>' in found
    assert "No file matches" in page(client, run, q="nothing like it")
    assert names(page(client, run, kind="no such kind")) == names(page(client, run)), "what is no kind leaves nothing out"


def test_another_filter_opens_what_it_finds(run: TrainingRun, alice: User, as_: As) -> None:
    shown = page(as_(alice), run, tree="1", of="", open=["model"], q="confusion")
    assert names(shown) == ["confusion.png"]
    assert folders(shown) == {"plots": True, "plots/deep": True, "plots/deep/er": True}


def test_ten_thousand_files_are_a_small_page_and_a_quick_one(run: TrainingRun, alice: User, as_: As) -> None:
    folder = runfiles.folder(run) / "frames"
    folder.mkdir()
    for number in range(10_000):
        (folder / f"frame {number}.txt").touch()
    client = as_(alice)
    page(client, run)
    begin = time.perf_counter()
    shown = page(client, run)
    took = time.perf_counter() - begin
    assert "<b>10,007</b> files" in shown
    assert len(shown) < MOST_BYTES
    assert took < 5, "a quarter of a second on a machine that has nothing else to do"
    opened = page(client, run, part="files", tree="1", of="", open=["frames"])
    assert len(opened) < 2 * MOST_BYTES
    assert "9,800 more" in opened
    assert "9,200 more" in page(client, run, part="files", tree="1", of="", open=["frames"], rows="800")
    assert names(page(client, run, q="frame 9999")) == ["frame%209999.txt"]


def test_a_name_that_is_markup_is_a_name(run: TrainingRun, alice: User, as_: As) -> None:
    put(run, {'<b onclick="x">/"><script>.txt': 1})
    shown = page(as_(alice), run)
    assert "<script>.txt" not in shown and "<b onclick" not in shown
    assert '<b onclick="x">' in folders(shown)


def test_a_folder_is_downloaded_as_one_zip(run: TrainingRun, alice: User, charlie: User, as_: As) -> None:
    address = reverse("run_archive", args=[run.pk])
    answer = as_(alice).get(address, {"folder": "plots"})
    found = zipfile.ZipFile(io.BytesIO(b"".join(answer))).namelist()
    assert sorted(name.split("/", 1)[1] for name in found) == ["plots/deep/er/confusion.png", "plots/loss.png"]
    assert as_(alice).get(address, {"folder": "plot"}).status_code == 404
    assert as_(alice).get(address, {"folder": "../"}).status_code == 404
    assert as_(charlie).get(address, {"folder": "plots"}).status_code == 404


def test_the_api_lists_the_same_with_the_sums_of_folders(run: TrainingRun, victor: User, as_: As) -> None:
    address = f"/api/v1/runs/{run.pk}/files"
    said = as_(victor).get(address, {"folder": "model/train", "kind": "checkpoint"}).json()
    assert [(each["path"], each["kind"], each["role"]) for each in said["items"]] == [
        ("model/train/model_epoch_1.pth", "checkpoint", "model"),
        ("model/train/model_epoch_2.pth", "checkpoint", "model"),
    ]
    assert said["folders"] == [{"path": "model", "files": 2, "size_bytes": 60}, {"path": "model/train", "files": 2, "size_bytes": 60}]
    assert [each["path"] for each in as_(victor).get(address, {"q": "loss"}).json()["items"]] == ["plots/loss.png"]
    assert as_(victor).get(address, {"kind": "song"}).status_code == 422
    zipped = as_(victor).get(f"/api/v1/runs/{run.pk}/results.zip", {"folder": "plots"})
    assert len(zipfile.ZipFile(io.BytesIO(b"".join(zipped))).namelist()) == 2
