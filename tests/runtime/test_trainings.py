"""What trainers of other libraries go on from when a run is started again, and how its workers agree where they stop."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from torch.distributed import TCPStore

from training_runtime.elastic.trainers import continuing
from training_runtime.elastic.trainers.identity import Identity
from training_runtime.elastic.trainers.interruption import TOLD_TO_END, Interruption
from training_runtime.elastic.trainers.trainings import FOLDER, MOST_SAVED, Training, Trainings, moved


def of(lines: str, loops: str = "") -> Identity:
    return Identity(lines, loops)


def begun(results: Path, rank: str = "0") -> Training:
    """Of a process that has just been started."""
    return Trainings({"RESULT_DIR": str(results), "RANK": rank}).begin(of("one"))


def saved(training: Training, path: Path, step: int) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"step {step}")
    training.note(path, path, step=step)


def test_a_later_process_finds_what_each_training_has_saved(tmp_path: Path) -> None:
    run = Trainings({"RESULT_DIR": str(tmp_path)})
    first, second = run.begin(of("one")), run.begin(of("one"))
    assert first.last() is None
    for step in (5, 10):
        saved(first, tmp_path / "out" / f"{step}", step)
    saved(second, tmp_path / "out" / "other", 3)
    again = Trainings({"RESULT_DIR": str(tmp_path)})
    assert [each.step for each in (again.begin(of("one")).last(), again.begin(of("one")).last()) if each] == [10, 3]
    assert again.begin(of("one")).last() is None, "the third was never begun before"


def test_what_is_gone_or_was_written_anew_by_somebody_else_is_nothing_to_go_on_from(tmp_path: Path) -> None:
    training = begun(tmp_path)
    for step in (1, 2, 3):
        saved(training, tmp_path / f"{step}", step)
    (tmp_path / "3").write_text("of the next fold, which saves under the same names")
    assert begun(tmp_path).last() == training.last()
    assert (training.last() or pytest.fail()).step == 2
    (tmp_path / "2").unlink()
    assert (training.last() or pytest.fail()).step == 1


def test_only_the_first_worker_writes_and_not_without_end(tmp_path: Path) -> None:
    saved(begun(tmp_path, rank="1"), tmp_path / "1", 1)
    assert not (tmp_path / FOLDER / "1.json").exists()
    training = begun(tmp_path)
    for step in range(2 * MOST_SAVED):
        saved(training, tmp_path / f"{step}", step)
    assert (tmp_path / FOLDER / "1.json").read_text().count('"step"') == MOST_SAVED
    assert [path.name for path in (tmp_path / FOLDER / "1.json").parent.iterdir()] == ["1.json"]


def test_a_process_that_leaves_out_what_was_done_finds_what_belongs_to_the_rest(tmp_path: Path) -> None:
    before = Trainings({"RESULT_DIR": str(tmp_path)})
    for step, fold in enumerate(("fold 0", "fold 1", "fold 2"), 1):
        saved(before.begin(of(fold)), tmp_path / "out" / fold, step)
    again = Trainings({"RESULT_DIR": str(tmp_path)})
    steps = [
        (training.number, getattr(training.last(), "step", None)) for training in map(again.begin, map(of, ("fold 2", "fold 3", "fold 1")))
    ]
    assert steps == [(3, 3), (4, None), (2, 2)], "and what is new has a number of its own"
    assert Trainings({"RESULT_DIR": str(tmp_path)}).begin(of("fold 3")).last() is None


def test_what_lies_below_the_results_is_found_where_these_are(tmp_path: Path) -> None:
    before, now = tmp_path / "a", tmp_path / "b"
    for path in (before / "out" / "1", tmp_path / "elsewhere"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("step")
        places = {"folders": [f"{before}/models", f"{before}-too", "models"], "logged": 3}
        begun(before).note(path, path, step=1, places=places)
        before.rename(now)
        last = begun(now).last()
        assert last is not None
        assert last.path == (str(now / "out" / "1") if path.name == "1" else str(path))
        assert last.places == {"folders": [f"{now}/models", f"{before}-too", "models"], "logged": 3}
        assert moved({f"{before}/x": (str(before), 1.5)}, last, {"RESULT_DIR": str(now)}) == {f"{now}/x": (str(now), 1.5)}
        now.rename(before)


def test_a_script_that_goes_on_by_itself_at_another_line_finds_what_was_saved_last(tmp_path: Path) -> None:
    before = Trainings({"RESULT_DIR": str(tmp_path)})
    for step, (line, fold) in enumerate((("10", "0"), ("10", "1"), ("30", "1")), 1):
        saved(before.begin(of(f"{line}, {fold}", fold)), tmp_path / "out" / str(step), step)
    steps = dict[str, int | None]()
    for name, goes_on in (("by itself", True), ("anew", False)):
        again = Trainings({"RESULT_DIR": str(tmp_path)})
        steps[name] = again.begin(of("20, 1", "1"), goes_on=goes_on).number
        steps[f"{name}, and the next"] = again.begin(of("21, 1", "1"), goes_on=goes_on).number
    assert steps == {"by itself": 3, "by itself, and the next": 2, "anew": 4, "anew, and the next": 5}


def test_a_run_that_goes_from_machine_to_machine_finds_all_that_it_has_saved(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    for step, name in enumerate("abc", 1):
        saved(begun(tmp_path / name), tmp_path / name / "out" / str(step), step)
        (tmp_path / name).rename(tmp_path / chr(ord(name) + 1))
    (tmp_path / "d" / "out" / "3").unlink()
    for step in (2, 1):
        last = begun(tmp_path / "d").last()
        assert last is not None
        assert (last.step, last.root) == (step, str(tmp_path / "ab"[step - 1])), "the checkpoint itself says where it was written"
        Path(last.path).unlink()
    assert begun(tmp_path / "d").last() is None


def test_what_an_older_version_has_saved_is_found_by_its_order(tmp_path: Path) -> None:
    before = Trainings({"RESULT_DIR": str(tmp_path)})
    first, second = before.begin(of("x")), before.begin(of("y"))
    saved(first, tmp_path / "a", 1)
    saved(second, tmp_path / "b", 2)
    for path in (tmp_path / FOLDER).iterdir():
        path.write_text(json.dumps(json.loads(path.read_text())["saved"]))
    again = Trainings({"RESULT_DIR": str(tmp_path)})
    assert [getattr(again.begin(of(each)).last(), "step", None) for each in ("of lines", "that know nothing of it")] == [1, 2]


def test_the_first_worker_says_which_training_it_is(tmp_path: Path) -> None:
    store = TCPStore("127.0.0.1", 0, None, is_master=True, wait_for_workers=False)
    saved(begun(tmp_path), tmp_path / "a", 1)
    common = {"RESULT_DIR": str(tmp_path), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port)}
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(Trainings({**common, "RANK": "1"}).begin, of("which nobody else has begun"))
        assert not other.done()
        assert Trainings({**common, "RANK": "0"}).begin(of("one")).number == other.result(60).number == 1


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[1]",
        "[{}]",
        "1",
        '[{"path": 1, "mark": "", "size": 0, "time_ns": 0, "step": 0}]',
        "[" * 9999,
        '{"saved": []}',
        '{"lines": "", "loops": "", "saved": {}}',
    ],
)
def test_a_file_that_is_not_as_it_was_written_says_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / FOLDER / "1.json").parent.mkdir(parents=True)
    (tmp_path / FOLDER / "1.json").write_text(text)
    assert begun(tmp_path).last() is None


def test_of_what_is_ours_only_the_last_is_kept_and_of_what_is_not_everything(tmp_path: Path) -> None:
    training, ours = begun(tmp_path), tmp_path / "ours"
    saved(training, tmp_path / "theirs", 1)
    saved(training, ours / "2", 2)
    (ours / "link").symlink_to(tmp_path / "out")
    saved(training, tmp_path / "out" / "3", 3)
    training.keep_last(ours)
    assert (ours / "2").exists(), "what is to be gone on from is elsewhere"
    saved(training, ours / "4", 4)
    training.keep_last(ours)
    assert sorted(
        str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if "trainings" not in str(path.relative_to(tmp_path))
    ) == [
        "checkpoint",
        "ours",
        "ours/4",
        "out",
        "out/3",
        "theirs",
    ]


def test_one_process_stops_at_once_and_only_where_it_was_told() -> None:
    with Interruption({}, 1, bool) as interruption:
        interruption.listen()
        assert [interruption.is_due() for _ in range(3)] == [False] * 3
        signal.raise_signal(signal.SIGTERM)
        assert interruption.is_due()
        with pytest.raises(SystemExit) as left:
            Interruption({"RANK": "0"}, 1, bool).leave()
        interruption.is_told = False
    assert left.value.code == TOLD_TO_END
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_a_process_that_the_script_forks_meanwhile_ends_as_it_would() -> None:
    with Interruption({}, 1, bool) as interruption:
        interruption.listen()
        pool = multiprocessing.get_context("fork").Pool(1)
        pool.terminate()
        pool.join()
        for _ in range(50):  # told as soon as it is there, and it may not have begun
            pid = os.fork()
            if not pid:
                signal.sigtimedwait([], 30)
                os._exit(0)
            os.kill(pid, signal.SIGTERM)
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGTERM
        assert not interruption.is_told
        assert signal.SIGTERM not in signal.pthread_sigmask(signal.SIG_BLOCK, [])


def test_who_is_told_in_vain_ends_behind_the_training() -> None:
    with pytest.raises(SystemExit), Interruption({}, 1, lambda: True) as interruption:
        interruption.listen()
        signal.raise_signal(signal.SIGTERM)


def test_workers_that_are_none_of_the_runs_are_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RESULT_DIR", str(tmp_path))
    monkeypatch.setattr(continuing, "_trainings", None)
    assert continuing.begin(1) is None, "no run"
    continuing.begin_run()
    assert (continuing.begin(2), getattr(continuing.begin(1), "number", 0)) == (None, 1)
    monkeypatch.setenv(continuing.SWITCH, "0")
    continuing.begin_run()
    assert continuing.begin(1) is None


def test_a_handler_of_the_scripts_own_is_left_alone() -> None:
    heard = list[int]()
    signal.signal(signal.SIGTERM, lambda number, _: heard.append(number))
    try:
        with Interruption({}, 1, bool) as interruption:
            interruption.listen()
            signal.raise_signal(signal.SIGTERM)
            assert not interruption.is_due()
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    assert heard == [signal.SIGTERM]


@pytest.mark.parametrize("told_at", [(3, 3, 3), (3, 4, 4), (4, 3, 4), (4, 3, 3)])
def test_workers_stop_at_the_same_place_whoever_is_told_first(told_at: tuple[int, ...]) -> None:
    """They are at most a step apart, as each step needs all of them: they go through the ticks together here."""
    store = TCPStore("127.0.0.1", 0, None, is_master=True, wait_for_workers=False)
    common = {"WORLD_SIZE": "3", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port)}
    workers = [Interruption({**common, "RANK": str(rank)}, 1, bool) for rank in range(3)]
    ends = list[int | None]([None] * 3)
    with ThreadPoolExecutor(3) as pool:
        for tick in range(1, 8):
            for worker, at in zip(workers, told_at, strict=True):
                worker.is_told = worker.is_told or at <= tick
            for rank, is_due in enumerate(pool.map(Interruption.is_due, workers)):
                ends[rank] = ends[rank] or (tick if is_due else None)
            if any(ends):
                break
    assert ends == [told_at[0] + 1] * 3
