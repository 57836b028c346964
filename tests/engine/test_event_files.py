"""Scalars are read from TensorBoard's own files, however they were written, wherever they are cut, and whatever else lies there."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training_runtime.elastic.script_logs import event_files, event_folders
from training_runtime.elastic.script_logs.event_folders import EventFolders


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As torch's SummaryWriter writes them, in all its ways."""
    import torch
    from torch.utils.tensorboard import SummaryWriter

    folder = tmp_path_factory.mktemp("runs")
    with SummaryWriter(str(folder)) as writer:
        for step in range(3):
            writer.add_scalar("Loss/train", 1 / (step + 1), step)
            writer.add_scalar("of a tensor", step * 2.5, step, new_style=True)
            writer.add_scalar("double", step / 3, step, new_style=True, double_precision=True)
        writer.add_histogram("weights", torch.ones(1000), 1)
        writer.add_image("picture", torch.rand(3, 200, 200), 1)
        writer.add_text("note", "hello", 1)
        writer.add_scalar("before the beginning", float("nan"), -3, walltime=1000.0)
        writer.add_scalars("both", {"train": 1.0, "val": 2.0}, 7)
    return folder


def one(folder: Path) -> bytes:
    (file,) = folder.glob("events.out.tfevents.*")
    return file.read_bytes()


def test_every_form_of_a_scalar_is_read_and_nothing_else(written: Path) -> None:
    data = one(written)
    chunk = event_files.read(data, 0)
    assert (chunk.offset, chunk.broken) == (len(data), False)
    found = {(each.tag, each.step): each.value for each in chunk.scalars}
    assert len(found) == 10
    assert found["Loss/train", 2] == pytest.approx(1 / 3)
    assert found["of a tensor", 2] == 5.0
    assert found["double", 1] == 1 / 3
    last = chunk.scalars[-1]
    assert (last.tag, last.step, last.t, str(last.value)) == ("before the beginning", -3, 1000.0, "nan")


def test_a_file_that_grows_gives_each_scalar_once_wherever_it_is_cut(written: Path) -> None:
    data = one(written)
    whole = event_files.read(data, 0).scalars
    for size in (1, 7, 64, 1000):
        found, offset = [], 0
        for end in (*range(0, min(len(data), 4000), size), len(data)):
            chunk = event_files.read(data[offset:end], offset)
            found += chunk.scalars
            offset = chunk.offset
        assert str(found) == str(list(whole)), size  # as text: one is not a number


@given(st.binary(max_size=300), st.integers(0, 50))
def test_whatever_stands_in_a_file_nothing_is_raised(data: bytes, offset: int) -> None:
    event_files.read(data, offset)
    head = len(data).to_bytes(8, "little") + bytes(4)
    assert event_files.read(head + data + bytes(4), offset).offset == offset + 16 + len(data)


def test_a_length_that_cannot_be_ends_the_reading() -> None:
    assert event_files.read(b"\xff" * 40, 5) == event_files.Chunk((), 5, broken=True)


def test_files_are_found_in_folders_and_named_by_them_where_they_have_the_same_tags(written: Path) -> None:
    follower = EventFolders(written, {})
    found = [(each.group, each.name, each.step) for each in follower.read(now=0.0, all_of_it=True).figures]
    assert ("train", "Loss/train", 2) in found
    assert ("train", "both", 7) in found
    assert ("test", "both", 7) in found, "the folder is called val"
    assert follower.read(now=100.0, all_of_it=True).figures == []
    assert EventFolders(written, follower.offsets).read(now=0.0, all_of_it=True).figures == []


def test_the_same_tag_of_another_folder_has_the_folders_name_before_it(tmp_path: Path, written: Path) -> None:
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "events.out.tfevents.1").write_bytes(one(written))
    names = {each.name for each in EventFolders(tmp_path, {}).read(now=0.0, all_of_it=True).figures}
    assert {"Loss/train", "second/Loss/train"} <= names
    assert "first/Loss/train" not in names


def names_of(folder: Path, **kept: Any) -> set[str]:
    return {each.name for each in EventFolders(folder, {}, **kept).read(now=0.0, all_of_it=True).figures}


def test_a_name_that_is_sent_too_has_the_files_folder_before_it(tmp_path: Path) -> None:
    (tmp_path / "detect").mkdir()
    (tmp_path / "detect/results.csv").write_text("epoch,loss,val/loss\n1,0.5,0.7\n")
    assert names_of(tmp_path, sent=[("train", "loss"), ("test", "val/loss")]) == {"detect/loss", "detect/val/loss"}
    assert names_of(tmp_path, sent=[("test", "loss")]) == {"loss", "val/loss"}
    (tmp_path / "detect/results.csv").rename(tmp_path / "results.csv")
    assert names_of(tmp_path, sent=[("train", "loss")]) == {"results/loss", "val/loss"}, "of a file without a folder its own name"


def test_a_copy_among_the_artifacts_is_no_second_table_and_what_is_there_alone_is_one(tmp_path: Path) -> None:
    for folder in ("results", "artifacts/model"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "results.csv").write_text("epoch,loss\n1,0.5\n")
    (tmp_path / "artifacts/history.csv").write_text("epoch,accuracy\n1,0.9\n")
    with (tmp_path / "results/results.csv").open("a") as table:
        table.write("2,0.25\n")  # behind what was copied
    assert names_of(tmp_path) == {"loss", "accuracy"}
    (tmp_path / "artifacts/model/results.csv").write_text("epoch,loss\n1,0.75\n")
    assert names_of(tmp_path) == {"loss", "accuracy", "model/loss"}, "it is another training's"


def test_neither_links_nor_pipes_nor_too_many_files_are_followed(tmp_path: Path, written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_folders, "MOST_FILES", 3)
    (tmp_path / "events.out.tfevents.0").symlink_to(next(written.glob("events*")))
    os.mkfifo(tmp_path / "events.out.tfevents.1")
    for number in range(2, 6):
        (tmp_path / f"events.out.tfevents.{number}").write_bytes(one(written))
    follower = EventFolders(tmp_path, {})
    assert len(follower.read(now=0.0, all_of_it=True).figures) == 10
    assert sorted(follower.offsets) == [f"events.out.tfevents.{number}" for number in range(3)]
