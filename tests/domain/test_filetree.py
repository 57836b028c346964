"""The tree of a run's files: kinds, sums, filters, and what of it a page shows."""

from __future__ import annotations

import datetime as dt

import pytest

from experiments.files import filetree
from experiments.files.filetree import File, Row

AT = dt.datetime(2026, 11, 25, 12, 0, tzinfo=dt.UTC)


def file(path: str, size: int = 1, minute: int = 0) -> File:
    return File(path, filetree.kind_of(path), size, AT + dt.timedelta(minutes=minute))


def seen(rows: list[Row]) -> list[str]:
    """Each row as it is read: its depth, then a folder with its sums, a file's name, or how many more."""
    said = []
    for row in rows:
        if row.folder is not None:
            said.append(f"{row.depth} {row.folder.name}/ {row.folder.count} {row.folder.size_bytes}")
        else:
            said.append(f"{row.depth} {row.file.name if row.file else f'{row.more} more of {row.more_of}'}")
    return said


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("checkpoint/engine.pt", "checkpoint"),
        ("model/train/model_epoch_3.pth", "checkpoint"),
        ("model/train/model_epoch_3_optimizer_state.pth", "checkpoint"),
        ("model/train/model_epoch_final.pth", "model"),
        ("model/train/model_stopped.pth", "model"),
        ("model/labels.csv", "model"),
        ("out/checkpoint-500/model.safetensors", "checkpoint"),
        ("lightning_logs/checkpoints/epoch=3.ckpt", "checkpoint"),
        ("best.onnx", "model"),
        ("plots/Confusion.PNG", "picture"),
        ("metrics.csv", "table"),
        ("embeddings.npy", "table"),
        ("arrays.npz", "table"),
        ("plots.csv", "table"),
        ("log/driver/console.log", "log"),
        ("runs/events.out.tfevents.1.host", "log"),
        ("journal.jsonl", "log"),
        ("notes.md", "other"),
        ("my_checkpoint_notes.txt", "other"),
    ],
)
def test_a_file_has_a_kind_by_its_place_and_name(path: str, kind: str) -> None:
    assert filetree.kind_of(path) == kind


def test_a_folder_sums_up_what_is_below_it_however_deep() -> None:
    root = filetree.tree([file("a/b/one", 10), file("a/two", 5, minute=7), file("three", 1)])
    assert (root.count, root.size_bytes, root.modified_at) == (3, 16, AT + dt.timedelta(minutes=7))
    assert [(each.path, each.count, each.size_bytes) for each in filetree.folders(root)] == [("a", 2, 15), ("a/b", 1, 10)]


def test_closed_folders_show_their_sums_and_nothing_of_what_is_in_them() -> None:
    root = filetree.tree([file("a/b/one", 10), file("a/two", 5), file("three", 1)])
    assert seen(filetree.rows(root, opened=())) == ["0 a/ 2 15", "0 three"]
    assert seen(filetree.rows(root, opened={"a"})) == ["0 a/ 2 15", "1 b/ 1 10", "1 two", "0 three"]
    assert seen(filetree.rows(root, opened={"a/b"})) == ["0 a/ 2 15", "0 three"], "its own folder is closed"


def test_few_files_are_shown_with_all_folders_open_and_many_are_not() -> None:
    few = filetree.tree([file(f"a/b/{number}") for number in range(20)] + [file("c/x")])
    assert filetree.all_open(few) == {"a", "a/b", "c"}
    many = filetree.tree([file(f"a/b/{number}") for number in range(5000)] + [file("c/x")])
    assert filetree.all_open(many) == set()
    only = filetree.tree([file(f"out/run/{number % 3}/{number}") for number in range(5000)])
    assert filetree.all_open(only) == {"out", "out/run"}, "a folder with nothing beside it says nothing when it is closed"


def test_of_ten_thousand_files_of_a_folder_a_page_shows_some_and_says_how_many_more() -> None:
    root = filetree.tree([file(f"frames/{number}.png") for number in range(10_000)])
    rows = filetree.rows(root, opened={"frames"}, most=200)
    assert len(rows) == 202
    assert seen(rows)[-1] == "1 9800 more of frames"


def test_a_search_finds_every_word_in_any_case_and_a_kind_is_one_of_those() -> None:
    files = [file("model/train/model_epoch_3.pth"), file("model/train/model_epoch_final.pth"), file("plots/Epoch 3.png")]
    assert [each.path for each in filetree.matching(files, q="EPOCH 3")] == ["model/train/model_epoch_3.pth", "plots/Epoch 3.png"]
    assert [each.path for each in filetree.matching(files, q="epoch", kind="model")] == ["model/train/model_epoch_final.pth"]
    assert filetree.matching(files, q="nothing") == []


def test_what_is_below_a_folder_does_not_count_its_namesakes() -> None:
    files = [file("model/a"), file("model-2/b"), file("model"), file("model/train/c")]
    assert [each.path for each in filetree.below(files, "model")] == ["model/a", "model/train/c"]
