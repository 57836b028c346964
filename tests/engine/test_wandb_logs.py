"""Logs of Weights & Biases are read as its own library writes them, wherever they are cut, and whatever else lies there."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training_runtime.elastic.script_logs import wandb_logs
from training_runtime.elastic.script_logs.event_folders import EventFolders
from training_runtime.elastic.script_logs.wandb_logs import BLOCK_BYTES, MOST_RECORD_BYTES

SCRIPT = """
import wandb

run = wandb.init(project="digits", config={"lr": 0.1, "model": {"width": 8, "name": "LeNet"}, "on": True})
for step in range(400):
    wandb.log({"train/loss": 1 / (step + 1), "val": {"acc": step / 400}, "best": True, "note": "text"})
wandb.log({"train/loss": float("nan"), "weights": wandb.Histogram([1, 2, 3])})
wandb.log({"late": 2}, step=1000)
wandb.log({"large": ["x" * 600_000], "after": 3}, step=1001)
wandb.log({"last": 4}, step=1002)
run.config.update({"added": "later"})
run.finish()
"""


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a script that has ended."""
    folder = tmp_path_factory.mktemp("script")
    environment = {**os.environ, "WANDB_MODE": "offline", "WANDB_SILENT": "true", "WANDB_ERROR_REPORTING": "false", "HOME": str(folder)}
    subprocess.run([sys.executable, "-c", SCRIPT], cwd=folder, env=environment, check=True, timeout=120, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def log(written: Path) -> bytes:
    (file,) = (written / "wandb").glob("offline-run-*/run-*.wandb")
    return file.read_bytes()


def test_the_numbers_that_a_script_logs_are_read_and_nothing_else(log: bytes) -> None:
    assert len(log) > 2 * BLOCK_BYTES, "records go over the ends of blocks"
    chunk = wandb_logs.read(log, 0)
    assert (chunk.offset, chunk.broken, chunk.damaged, chunk.too_large) == (len(log), False, 0, 2), "the large row, and the summary of it"
    found = {(each.tag, each.step): each.value for each in chunk.scalars}
    assert found["train/loss", 399] == pytest.approx(1 / 400)
    assert found["val.acc", 399] == pytest.approx(399 / 400)
    assert math.isnan(found["train/loss", 400])
    assert (found["late", 1000], found["last", 1002]) == (2.0, 4.0)
    assert {tag for tag, _ in found} == {"train/loss", "val.acc", "late", "last"}, "of a histogram, a text and what is too large none"
    assert len(chunk.scalars) == 401 + 400 + 1 + 1
    assert all(1.7e9 < each.t < 4e9 for each in chunk.scalars)


def test_its_config_are_parameters_of_the_run(log: bytes) -> None:
    said: dict[str, str] = {}
    for some in wandb_logs.read(log, 0).parameters:
        said |= some
    assert said == {"lr": "0.1", "model.width": "8", "model.name": "LeNet", "on": "true", "added": "later"}


@given(st.data())
def test_wherever_it_is_cut_it_is_read_to_the_same_end(log: bytes, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(log)), max_size=8)))
    found = []
    offset = 0
    for end in (*cuts, len(log)):
        chunk = wandb_logs.read(log[offset:end], offset)
        found += chunk.scalars
        offset = chunk.offset
    assert offset == len(log)
    assert [str(each) for each in found] == [str(each) for each in wandb_logs.read(log, 0).scalars]


@given(st.data())
def test_whatever_a_file_holds_nothing_is_raised_and_it_goes_on(log: bytes, data: st.DataObject) -> None:
    begin = data.draw(st.integers(0, BLOCK_BYTES))
    damage = data.draw(st.binary(min_size=1, max_size=40))
    broken = log[:begin] + damage + log[begin + len(damage) : 2 * BLOCK_BYTES]
    chunk = wandb_logs.read(broken, 0)
    assert 0 <= chunk.offset <= len(broken) + BLOCK_BYTES
    assert wandb_logs.read(data.draw(st.binary(max_size=200)), data.draw(st.integers(0, 1 << 40))).offset >= 0


def test_a_file_that_ends_in_zeros_is_read_however_many_there_are(log: bytes) -> None:
    """As some file systems leave it when the power fails."""
    assert wandb_logs.read(log + bytes(2000 * BLOCK_BYTES), 0).scalars == wandb_logs.read(log, 0).scalars


def test_a_record_that_never_ends_is_passed_over_before_a_reader_waits_for_it() -> None:
    size = BLOCK_BYTES - wandb_logs.CHUNK_HEAD_BYTES
    middle = b"\0\0\0\0" + size.to_bytes(2, "little") + b"\2" + b"x" * size
    data = middle + (b"\0\0\0\0" + size.to_bytes(2, "little") + b"\3" + b"x" * size) * 31
    assert len(data) == 1 << 20 > MOST_RECORD_BYTES, "what is read of a file at a time"
    chunk = wandb_logs.read(data, BLOCK_BYTES)
    assert (chunk.too_large, chunk.offset) == (1, BLOCK_BYTES + len(data))


def test_it_is_found_below_the_working_folder_and_followed(written: Path, log: bytes, tmp_path: Path) -> None:
    folder = tmp_path / "wandb/offline-run-20261124_120000-abc"
    folder.mkdir(parents=True)
    (tmp_path / "wandb/latest-run").symlink_to(folder)
    file = folder / "run-abc.wandb"
    file.write_bytes(log[:30_000])
    events = EventFolders(tmp_path, {})
    first = events.read(now=1.0, all_of_it=False)
    assert first.parameters["lr"] == "0.1"
    assert {(figure.group, figure.name) for figure in first.figures} == {("train", "train/loss"), ("test", "val.acc")}
    file.write_bytes(log)
    rest = events.read(now=2.0, all_of_it=True)
    assert len(first.figures) + len(rest.figures) == 803
    (folder / "run-def.wandb").write_text("not what its name says")
    assert events.read(now=9.0, all_of_it=True).figures == []
