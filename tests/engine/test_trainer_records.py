"""What a trainer logs is on the curves at its steps, from one training of a script to the next, and whatever its processes come to."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from training_runtime.elastic.script_logs import trainer_records
from training_runtime.elastic.script_logs.printed_figures import PrintedFigures
from training_runtime.elastic.script_logs.trainer_records import PATH, TrainerRecords
from training_runtime.elastic.trainers.recording import Recorder


def read(results: Path) -> list[tuple]:
    return [(each.group, each.name, each.step, each.value) for each in TrainerRecords(results, 0).read(all_of_it=True)]


def test_what_is_logged_is_at_its_step_with_all_digits(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    recorder.begin(1)
    recorder.record(
        10, {"loss": torch.tensor(1 / 3, dtype=torch.float64), "epoch": 0.5, "note": "words", "ok": True, "many": torch.ones(2)}
    )
    recorder.record(20, {"eval_loss": float("inf"), "eval_runtime": 1, "epoch": 1.0})
    assert read(tmp_path) == [("train", "loss", 10, 1 / 3), ("test", "eval_loss", 20, float("inf")), ("test", "eval_runtime", 20, 1.0)]
    assert all(each.t > 1.7e9 for each in TrainerRecords(tmp_path, 0).read(all_of_it=True))


def test_trainings_of_a_script_go_on_where_the_one_before_has_ended(tmp_path: Path) -> None:
    first = Recorder(tmp_path)
    first.record(0, {"eval_loss": 9.0})
    first.begin(None)
    first.record(30, {"loss": 1.0})
    first.begin(None)
    first.record(5, {"loss": 2.0})
    assert [step for *_, step, _ in read(tmp_path)] == [0, 30, 35]


def test_a_second_evaluation_at_a_step_is_told_where_it_says_something_else(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    recorder.begin(1)
    recorder.record(30, {"eval_loss": 0.5, "eval_runtime": 1.0})
    recorder.record(30, {"train_loss": 0.6, "epoch": 3.0})
    recorder.record(30, {"eval_loss": 0.5, "eval_runtime": 1.1, "eval_steps_per_second": 9.0})  # of the same data
    recorder.record(30, {"eval_loss": 0.75, "eval_runtime": 1.2})
    recorder.record(30, {"eval_loss": 0.25, "eval_runtime": 1.2})
    assert [each[1:] for each in read(tmp_path)] == [
        ("eval_loss", 30, 0.5),
        ("eval_runtime", 30, 1.0),
        ("train_loss", 30, 0.6),
        ("eval_steps_per_second", 30, 9.0),
        ("eval_loss", 31, 0.75),
        ("eval_loss", 32, 0.25),
    ]
    recorder.begin(2)
    recorder.record(1, {"eval_loss": 0.5})
    assert read(tmp_path)[-1] == ("test", "eval_loss", 31, 0.5)


def test_a_process_after_this_one_leaves_out_trainings_and_goes_on_in_others(tmp_path: Path) -> None:
    first = Recorder(tmp_path)
    for number, steps in ((1, 30), (2, 30), (3, 7)):
        first.begin(number)
        first.record(steps, {"loss": float(number)})
    after = Recorder(tmp_path)
    after.begin(3)
    after.record(8, {"loss": 3.5})
    after.begin(4)
    after.record(1, {"loss": 4.0})
    assert [step for *_, step, _ in read(tmp_path)] == [30, 60, 67, 68, 69]


def test_a_line_that_was_left_without_an_end_costs_nothing_else(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    recorder.begin(1)
    recorder.record(1, {"loss": 1.0})
    with (tmp_path / PATH).open("a") as file:
        file.write('{"loss": 0.')
    recorder.record(2, {"loss": 0.5})
    assert read(tmp_path) == [("train", "loss", 1, 1.0), ("train", "loss", 2, 0.5)]


def test_what_the_trainer_prints_says_nothing_more_and_its_bar_does(tmp_path: Path) -> None:
    log = tmp_path / "log" / "driver" / "console.log"
    log.parent.mkdir(parents=True)
    follower = PrintedFigures(tmp_path, {})
    recorder = Recorder(tmp_path)
    recorder.begin(1)
    log.write_bytes(b"{'loss': '0.333', 'epoch': '0.5'}\n\r 50%|#####     | 5/10 [00:05<00:05,  1.0it/s]\r")
    assert follower.read(now=0.0, all_of_it=False) == [], "its record may not be read yet"
    assert follower.progress(now=0.0, all_of_it=False).done == 5
    recorder.record(5, {"loss": 1 / 3})
    assert [(each.step, each.value) for each in follower.read(now=1.0, all_of_it=False)] == [(5, 1 / 3)]
    after = PrintedFigures(tmp_path, follower.offsets)
    assert after.read(now=2.0, all_of_it=True) == [], "it has been told"


def test_more_than_is_read_at_a_time_is_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trainer_records, "MOST_BYTES", 200)
    recorder = Recorder(tmp_path)
    recorder.begin(1)
    for step in range(50):
        recorder.record(step, {"loss": float(step)})
    follower = TrainerRecords(tmp_path, 0)
    assert 0 < len(follower.read(all_of_it=False)) < 50
    follower.read(all_of_it=True)
    assert follower.offset == (tmp_path / PATH).stat().st_size
    assert [step for *_, step, _ in read(tmp_path)] == list(range(50))


@given(st.binary(max_size=300))
def test_whatever_stands_in_the_file_nothing_is_raised(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    results = tmp_path_factory.mktemp("results")
    (results / PATH).parent.mkdir()
    (results / PATH).write_bytes(data)
    read(results)
    recorder = Recorder(results)
    recorder.begin(None)
    recorder.record(1, {"loss": 1.0})
    assert read(results)[-1] == ("train", "loss", 1, 1.0)


def test_what_a_disk_does_not_take_is_written_when_it_does(tmp_path: Path) -> None:
    (tmp_path / "checkpoint").touch()
    recorder = Recorder(tmp_path)
    recorder.begin(1)
    recorder.record(1, {"loss": 1.0})
    (tmp_path / "checkpoint").unlink()
    recorder.record(2, {"loss": 0.5})
    assert read(tmp_path) == [("train", "loss", 1, 1.0), ("train", "loss", 2, 0.5)]


def test_a_training_that_is_begun_again_by_its_library_is_at_its_own_steps(tmp_path: Path) -> None:
    """As with smaller batches, where memory was too small."""
    recorder = Recorder(tmp_path)
    recorder.begin(1)
    recorder.record(10, {"loss": 1.0})
    recorder.record(5, {"loss": 2.0})
    recorder.record(15, {"loss": 0.5})
    assert [step for *_, step, _ in read(tmp_path)] == [10, 5, 15]
