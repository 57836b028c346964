"""Scripts with Keras' `fit`, which say nothing of checkpoints: started again they go on where they were."""

from __future__ import annotations

import json
import os
import signal
from importlib.machinery import PathFinder

import pytest

from tests.engine.gates import allow, move, noted
from tests.engine.harness import Run
from tests.engine.keras_scripts import FOLDS, OWN, SCRIPT, TWO

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(PathFinder.find_spec("keras") is None, reason="Keras is not installed here: make packages"),
]
BACKENDS = [
    pytest.param(name, marks=pytest.mark.skipif(PathFinder.find_spec(name) is None, reason=f"{name} is not installed here"))
    for name in ("torch", "tensorflow", "jax")
]


def until_there(run: Run, name: str) -> None:
    run.until(lambda: (run.result_dir / name).exists(), what=f"{name}\n{run.tail()}")


@pytest.fixture
def begin(start):
    def begin(script: str, steps: int, *, backend: str = "torch", env: dict[str, str] | None = None, **more) -> Run:
        settings = {"KERAS_BACKEND": backend, "MORE": json.dumps(more), **(env or {})}
        run = start(script, elastic=False, max_slots=1, env=settings)
        allow(run, steps)
        run.members(0)
        return run

    return begin


def tell_in_step(run: Run, step: int) -> None:
    """Not before it: who is told between two steps ends with the one that is done."""
    until_there(run, f"waits-{step}")
    os.kill(run.pid, signal.SIGTERM)
    until_there(run, "told")
    (run.result_dir / "told").unlink()
    allow(run, step)
    assert run.wait() == -signal.SIGTERM, run.tail()
    assert noted(run, "step")[-1] == step, "it ends with the step that it was in"


def go_on(run: Run, steps: int = 1000) -> None:
    allow(run, steps)
    run.again()
    run.members(0)


def assert_as(run: Run, straight: Run) -> None:
    """To the bit, and each step once."""
    assert run.wait() == 0, run.tail()
    assert straight.wait() == 0, straight.tail()
    for key in ("step", "batch", "epoch", "rate", "end", "begun", "epochs", "history", "weights", "drawn"):
        assert noted(run, key) == noted(straight, key), key
    assert (run.result_dir / "table.csv").read_text() == (straight.result_dir / "table.csv").read_text()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", ["arrays", "passes", "rows", "stream", "loader", "dataset"])
def test_a_fit_that_is_displaced_goes_on_to_the_same_weights(begin, kind, backend):
    if kind == "dataset" and backend != "tensorflow":
        pytest.skip("it is TensorFlow's")
    straight, run = begin(SCRIPT, 1000, kind=kind, backend=backend), begin(SCRIPT, 12, kind=kind, backend=backend)
    tell_in_step(run, 13)
    go_on(run)
    assert_as(run, straight)
    told = run.events("progress")[-1]
    assert told.done == told.total == straight.events("progress")[-1].total, "of all epochs"


def test_a_fit_goes_on_on_a_machine_where_its_results_have_another_path(begin, tmp_path):
    straight, run = begin(SCRIPT, 1000), begin(SCRIPT, 12)
    tell_in_step(run, 13)
    move(run, tmp_path / "elsewhere")
    go_on(run)
    assert_as(run, straight)


def test_a_validation_that_is_interrupted_is_begun_again(begin):
    straight, run = begin(SCRIPT, 1000), begin(SCRIPT, 10)
    until_there(run, "waits-11")
    (run.result_dir / "held").touch()
    allow(run, 1000)
    until_there(run, "validates")
    os.kill(run.pid, signal.SIGTERM)
    (run.result_dir / "held").unlink()
    assert run.wait() == -signal.SIGTERM, run.tail()
    assert noted(run, "epoch") == [0, 1]
    go_on(run)
    assert_as(run, straight)


@pytest.mark.parametrize("patience", [9, 1], ids=["of the last epoch", "before an early end"])
def test_a_fit_that_is_told_in_a_last_step_is_not_done_again(begin, patience):
    straight = begin(SCRIPT, 1000, patience=patience, rate=0.3)
    assert straight.wait() == 0, straight.tail()
    last = noted(straight, "step")[-1]
    run = begin(SCRIPT, last - 1, patience=patience, rate=0.3)
    tell_in_step(run, last)
    go_on(run)
    assert_as(run, straight)
    assert (last < 30) == (patience == 1)


@pytest.mark.parametrize("kind", ["rows", "passes"])
def test_a_process_that_is_killed_goes_on_from_the_end_of_an_epoch(begin, kind):
    more = {"kind": kind, "epochs": 200, "patience": 200}
    straight, run = begin(SCRIPT, 1000, **more), begin(SCRIPT, 999, **more)
    until_there(run, "checkpoint/trainings/1.json")
    os.killpg(run.pid, signal.SIGKILL)
    run.wait()
    steps = json.loads((run.result_dir / "checkpoint" / "trainings" / "1.json").read_text())["saved"][-1]["step"]
    done = noted(run, "step")
    (run.result_dir / "noted").unlink()
    go_on(run)
    assert run.wait() == 0, run.tail()
    assert straight.wait() == 0, straight.tail()
    assert noted(run, "step") == list(range(steps + 1, 1001))
    assert steps <= done[-1] and not steps % 5
    assert [noted(run, key) for key in ("history", "weights")] == [noted(straight, key) for key in ("history", "weights")]
    assert (run.result_dir / "table.csv").read_text() == (straight.result_dir / "table.csv").read_text()
    assert len(list((run.result_dir / "checkpoint" / "keras-1").iterdir())) == 1


def test_fits_of_one_script_are_told_apart_and_one_that_was_complete_is_not_done_again(begin):
    straight, run = begin(TWO, 1000), begin(TWO, 7)
    tell_in_step(run, 8)
    go_on(run, 19)
    tell_in_step(run, 20)
    go_on(run)
    assert run.wait() == 0, run.tail()
    assert straight.wait() == 0, straight.tail()
    for key in ("history", "epochs", "weights"):
        assert noted(run, key)[-2:] == noted(straight, key), key
    assert noted(run, "step") == noted(straight, "step")


def test_a_script_that_leaves_out_the_folds_that_are_done_gets_the_rest(begin):
    """Each of twelve steps; in the second start the second fold is the first fit."""
    straight, run = begin(FOLDS, 1000), begin(FOLDS, 14)
    tell_in_step(run, 15)
    go_on(run)
    assert run.wait() == 0, run.tail()
    assert straight.wait() == 0, straight.tail()
    assert noted(run, "fold") == noted(straight, "fold") == [0, 1, 2]
    assert noted(run, "weights") == noted(straight, "weights")


@pytest.mark.parametrize(
    ("script", "env"),
    [
        (SCRIPT, {"EDT_CONTINUE_TRAINERS": "0"}),
        (SCRIPT.replace("    gate,\n", "    gate,\n    keras.callbacks.BackupAndRestore('backup', save_freq=1),\n"), {}),
    ],
    ids=["by the switch", "by Keras' own callback"],
)
def test_a_script_that_sees_to_that_itself_is_left_alone(begin, script, env):
    run = begin(script, 7, env=env)
    until_there(run, "waits-8")
    os.kill(run.pid, signal.SIGTERM)
    assert run.wait() == -signal.SIGTERM, run.tail()
    assert noted(run, "step") == list(range(1, 8))
    assert not (run.result_dir / "checkpoint").exists()


@pytest.mark.parametrize("step", [8, 15])
def test_a_model_that_cannot_be_saved_with_steps_of_its_own_and_data_without_length_goes_on(begin, step):
    straight, run = begin(OWN, 1000), begin(OWN, step - 1)
    tell_in_step(run, step)
    go_on(run)
    assert_as(run, straight)


def test_a_run_that_is_stopped_saves_what_it_has(begin):
    run = begin(SCRIPT, 12)
    until_there(run, "waits-13")
    run.stop()
    until_there(run, "told")
    allow(run, 13)
    assert run.wait() == 0, run.tail()
    assert [event.outcome for event in run.events("finished")] == ["stopped"]
    assert [path.name for path in (run.result_dir / "checkpoint" / "keras-1").iterdir()] == ["epoch-2-batch-3.npz"]


def test_what_cannot_be_saved_is_said_once_and_the_training_goes_on(begin):
    run = begin(SCRIPT, 0, epochs=200, patience=200)
    until_there(run, "waits-1")
    (run.result_dir / "checkpoint").write_text("no folder")
    allow(run, 999)
    run.until(lambda: "could not be saved" in run.log.read_text(), what=run.tail())
    tell_in_step(run, 1000)
    assert run.log.read_text().count("could not be saved") == 1
