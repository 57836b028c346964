"""Folders of runs on a joined machine: what is written down of them, and what is put away."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from training_runtime.node.fetching import UNUSED_S, forget_unused
from training_runtime.node.folders import TRASH_S, Folder, Folders, look
from training_runtime.node.mirror import File
from training_runtime.protocol import UNCHANGED_CODE_NS


def test_a_node_that_starts_again_knows_what_has_arrived(tmp_path: Path):
    folders = Folders(tmp_path)
    folders.begin(Folder(4, "0f-4", "term-1", 2, {"journal.jsonl": File("journal.jsonl", 12, 0)}))
    again = Folders(tmp_path).known["0f-4"]
    assert (again.run, again.term, again.attempt, again.arrived["journal.jsonl"].size) == (4, "term-1", 2, 12)


def test_a_note_that_cannot_be_read_is_left_out(tmp_path: Path):
    Folders(tmp_path)
    (tmp_path / "terms" / "0f-4.json").write_text("{")
    assert Folders(tmp_path).known == {}


def test_what_is_put_away_stays_for_a_day_and_nothing_else_is_deleted(tmp_path: Path):
    folders = Folders(tmp_path)
    for name in ("0f-4", "0f-5"):
        folders.begin(Folder(4, name, "term-1"))
        (folders.path(name) / "kept.txt").write_text(name)
    folders.put_away("0f-4")
    (put_away,) = (tmp_path / "runs" / ".trash").iterdir()
    since = int(put_away.name.split("-")[0]) / 1e9
    folders.empty_trash(since + TRASH_S - 1)
    assert (put_away / "kept.txt").read_text() == "0f-4"
    folders.empty_trash(since + TRASH_S + 1)
    assert not put_away.exists()
    assert (folders.path("0f-5") / "kept.txt").read_text() == "0f-5"


@pytest.mark.parametrize("name", ["..", "a/b", "", ".hidden", "x" * 65])
def test_a_name_that_leads_elsewhere_is_refused(tmp_path: Path, name: str):
    with pytest.raises(ValueError, match="cannot be the name"):
        Folders(tmp_path).path(name)


def test_code_and_data_that_no_run_has_used_for_long_are_deleted_and_nothing_else(tmp_path: Path):
    for path in ("code/used", "code/old", "code/new", "assets/old", "runs/old"):
        (tmp_path / path).mkdir(parents=True)
        os.utime(tmp_path / path, (1000.0, 1000.0))
    now = 1000.0 + UNUSED_S + 1
    os.utime(tmp_path / "code/new", (now - 1, now - 1))
    gone = forget_unused(tmp_path, {("code", "used")}, now=now)
    assert {path.relative_to(tmp_path).as_posix() for path in gone} == {"code/old", "assets/old"}
    assert forget_unused(tmp_path, set(), now=now + UNUSED_S / 2) == [], "to be needed is to be used"
    assert {path.relative_to(tmp_path).as_posix() for path in tmp_path.glob("*/*")} == {"code/used", "code/new", "runs/old"}


def test_a_folder_that_cannot_be_read_is_not_taken_for_an_empty_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "model.pt").write_text("x")
    with pytest.raises(FileNotFoundError):
        look(tmp_path / "gone")
    scandir = os.scandir

    def broken(path: object) -> object:
        if Path(f"/proc/self/fd/{path}").readlink().name == "model":
            raise OSError(5, "Input/output error")
        return scandir(path)  # type: ignore[call-overload]

    monkeypatch.setattr(os, "scandir", broken)
    with pytest.raises(OSError, match="Input/output"):
        look(tmp_path)


def test_only_what_the_run_has_written_is_looked_at(tmp_path: Path):
    for path in (
        "journal.jsonl",
        "tmp/scratch",
        "checkpoint/engine.pt",
        "checkpoint/.secret",
        "_submitted_code/x/main.py",
        "_submitted_code/x/out.csv",
    ):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("x")
    os.utime(tmp_path / "_submitted_code/x/main.py", ns=(UNCHANGED_CODE_NS, UNCHANGED_CODE_NS))
    (tmp_path / "link.txt").symlink_to("/etc/passwd")
    (tmp_path / "linked").symlink_to("/etc")
    assert sorted(each.path for each in look(tmp_path)) == ["_submitted_code/x/out.csv", "checkpoint/engine.pt", "journal.jsonl"]
