"""Folders that user code wrote are deleted whatever is in them, and nothing beside them is."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from experiments.files import removal


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user of this machine can reach and write to."""
    folder = Path(tempfile.mkdtemp(prefix="edt-removal-", dir="/tmp"))
    folder.chmod(0o777)
    yield folder
    shutil.rmtree(folder)


def nested(top: Path, depth: int) -> None:
    """So deep that no path names the bottom: made from inside, a folder at a time."""
    top.mkdir()
    at = os.open(top, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=at)
        inner = os.open("d", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = inner
    os.close(os.open("file", os.O_WRONLY | os.O_CREAT, dir_fd=at))
    os.close(at)


def test_five_thousand_nested_folders_are_deleted(tmp_path: Path) -> None:
    nested(tmp_path / "deep", 5000)
    assert removal.remove(tmp_path / "deep")
    assert list(tmp_path.iterdir()) == []


def test_links_are_deleted_and_not_what_they_point_to(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").write_text("precious")
    top = tmp_path / "top"
    (top / "in" / "side").mkdir(parents=True)
    for place in (top, top / "in", top / "in" / "side"):
        (place / "link").symlink_to(kept)
        (place / "up").symlink_to("..")
    assert removal.remove(top)
    assert (kept / "file").read_text() == "precious"
    link = tmp_path / "link"
    link.symlink_to(kept)
    assert removal.remove(link)
    assert [each.name for each in tmp_path.iterdir()] == ["kept"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user to try it as one")
def test_folders_that_their_owner_has_closed_are_deleted_by_that_owner(open_folder: Path) -> None:
    user = 54_321
    child = os.fork()
    if child == 0:
        os.setresuid(user, user, user)
        top = open_folder / "top"
        (top / "closed" / "below" / "deeper").mkdir(parents=True)
        (top / "closed" / "below" / "file").touch()
        for mode, folder in ((0o000, "closed/below/deeper"), (0o500, "closed/below"), (0o000, "closed")):
            (top / folder).chmod(mode)
        os._exit(0 if removal.remove(top) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert list(open_folder.iterdir()) == []


def test_it_is_done_in_pieces_and_goes_on_where_it_was(tmp_path: Path) -> None:
    top = tmp_path / "top"
    for name in ("a", "b", "c/d"):
        (top / name).mkdir(parents=True)
        for number in range(100):
            (top / name / str(number)).touch()
    pieces = 0
    while not removal.remove(top, most=50):
        pieces += 1
        assert pieces < 50
    assert pieces >= 5
    assert not top.exists()
    assert removal.remove(top), "what is not there is gone"
    assert removal.remove(tmp_path / "never" / "there")
