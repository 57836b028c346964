"""How far a library's trainer is, is told by itself: of all of its epochs, until it has ended."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training_runtime.elastic.script_logs.printed_figures import PrintedFigures
from training_runtime.elastic.script_logs.trainer_progress import PATH, TrainerProgress
from training_runtime.elastic.trainers.reporting import EVERY_S, ProgressReports
from training_runtime.journal import Progress


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr("training_runtime.elastic.trainers.reporting.time.monotonic", lambda: now[0])
    return now


def test_what_is_left_is_told_by_the_pace_of_the_last_minute(tmp_path: Path, clock: list[float]) -> None:
    reports, reader = ProgressReports({"RESULT_DIR": str(tmp_path)}), TrainerProgress(tmp_path)
    reports.report(1, 1000, "Batches")
    assert reader.read() == Progress(1.0, 1000.0, None, "Batches", is_whole=True)
    clock[0] += EVERY_S / 2
    reports.report(2, 1000, "Batches")
    assert reader.read() is None, "it is not told at each of them"
    for done in range(11, 511, 10):  # slowly
        clock[0] += 10.0
        reports.report(done, 1000, "Batches")
    for done in range(520, 900, 10):
        clock[0] += 2.0
        reports.report(done, 1000, "Batches")
    assert reader.read() == Progress(890.0, 1000.0, pytest.approx(110 / 5), "Batches", is_whole=True)


def test_a_training_that_has_ended_leaves_the_word_to_other_bars(tmp_path: Path) -> None:
    log = tmp_path / "log" / "driver" / "console.log"
    log.parent.mkdir(parents=True)
    reports, follower = ProgressReports({"RESULT_DIR": str(tmp_path)}), PrintedFigures(tmp_path, {})

    def drawn(text: str, now: float) -> tuple[float, float] | None:
        with log.open("a") as file:
            file.write(f"\r{text}\r")
        follower.read(now=now, all_of_it=False)
        told = follower.progress(now=now, all_of_it=True)
        return told and (told.done, told.total)

    assert drawn(" 50%|#####     | 5/10 [00:05<00:05,  1.0it/s]", 0.0) == (5, 10)
    reports.report(7, 40, "Steps")
    assert drawn(" 60%|######    | 6/10 [00:06<00:04,  1.0it/s]", 1.0) == (7, 40)
    assert drawn(" 70%|#######   | 7/10 [00:07<00:03,  1.0it/s]", 2.0) is None, "the bar of an epoch"
    reports.report(8, 40, "Steps")
    reports.end()
    assert drawn(" 80%|########  | 8/10 [00:08<00:02,  1.0it/s]", 3.0) == (8, 40), "where it was ended"
    assert drawn(" 90%|######### | 9/10 [00:09<00:01,  1.0it/s]", 4.0) == (9, 10)


@pytest.mark.parametrize(("done", "total"), [(1, float("inf")), (1, float("nan")), (1, 0), (0, -1)])
def test_what_is_no_part_of_a_whole_is_not_told(tmp_path: Path, done: float, total: float) -> None:
    reports = ProgressReports({"RESULT_DIR": str(tmp_path)})
    reports.report(done, total, "Batches")
    reports.end()
    assert not (tmp_path / PATH).exists()


def test_only_the_first_worker_tells_it(tmp_path: Path) -> None:
    ProgressReports({"RESULT_DIR": str(tmp_path), "RANK": "1"}).report(1, 2, "Steps")
    assert not (tmp_path / PATH).exists()


def test_a_disk_that_takes_nothing_is_no_matter_of_the_script(tmp_path: Path) -> None:
    (tmp_path / "checkpoint").touch()
    reports = ProgressReports({"RESULT_DIR": str(tmp_path)})
    reports.report(1, 2, "Steps")
    reports.end()


@given(
    st.binary(max_size=100) | st.sampled_from([b"[]", b'{"done": 1}', b'{"done": 2, "total": 1, "left_s": null, "label": 7, "is_over": 0}'])
)
def test_whatever_stands_in_the_file_nothing_is_raised(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    results = tmp_path_factory.mktemp("results")
    (results / PATH).parent.mkdir()
    (results / PATH).write_bytes(data)
    assert TrainerProgress(results).read() is None
