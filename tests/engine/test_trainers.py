"""Scripts with Transformers' and Lightning's trainers, which say nothing of checkpoints: started again they go on where they were."""

from __future__ import annotations

import json
import os
import signal

import pytest

from tests.engine.gates import allow, move, noted
from tests.engine.harness import Run
from tests.engine.trainer_scripts import FOLDS, LIGHTNING, LOGS, PACKAGES, RESUMES, TRANSFORMERS, TWO

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(not (PACKAGES / "transformers").is_dir(), reason="trainers are not installed: make setup-test"),
]
BEST = "note(best=os.path.relpath(trainer.state.best_model_checkpoint, RESULTS), end="
SCRIPTS = {"transformers": TRANSFORMERS, "lightning": LIGHTNING}


def until_step(run: Run, step: int) -> None:
    run.until(lambda: noted(run, "step")[-1:] == [step], what=f"step {step}\n{run.tail()}")


def until_in_step(run: Run, step: int, workers: int = 1) -> None:
    """Not before it: who is told between two steps ends with the one that is done."""
    run.until(lambda: len(list(run.result_dir.glob(f"waits-{step}-*"))) == workers, what=f"{workers} are in step {step}\n{run.tail()}")


def until_told(run: Run, workers: int) -> None:
    run.until(lambda: len(list(run.result_dir.glob("told-*"))) == workers, what=f"{workers} are told to end\n{run.tail()}")


@pytest.fixture
def begin(start):
    def begin(script: str, steps: int, **options) -> Run:
        run = start(SCRIPTS.get(script, script), **options)
        allow(run, steps)
        return run

    return begin


def learning_rates(run: Run) -> list[tuple[int, float]]:
    """By their steps, as its curve has them."""
    return sorted({(step, value) for group, step, name, value in curves(run) if (group, name) == ("train", "learning_rate")})


def ended_by_sigterm(run: Run, allowed: int) -> int:
    until_in_step(run, allowed)
    os.kill(run.pid, signal.SIGTERM)
    run.until((run.result_dir / f"told-{run.pid}").exists, what=f"it is told to end\n{run.tail()}")
    allow(run, allowed)
    return run.wait()


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_training_that_is_told_in_its_last_step_is_not_done_again(begin, name):
    script = (
        SCRIPTS[name].replace('"eval_strategy": "epoch"', '"eval_strategy": "no"').replace(", torch.utils.data.DataLoader(data, 80))", ")")
    )
    run = begin(script.replace('[EarlyStopping("val_loss", patience=9)]', "[]"), 59, elastic=False, max_slots=1)
    run.members(0)
    assert ended_by_sigterm(run, 60) == -signal.SIGTERM, run.tail()
    run.again()
    run.members(0)
    assert run.wait() == 0, run.tail()
    assert noted(run, "step") == list(range(1, 61))
    assert noted(run, "end") == [60]


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_single_process_that_is_displaced_goes_on_to_the_same_weights(begin, name):
    env = {"MORE": json.dumps({"logging_steps": 5})} if name == "transformers" else {}
    straight = begin(name, 60, elastic=False, max_slots=1, env=env)
    straight.members(0)
    run = begin(name, 25, elastic=False, max_slots=1, env=env)
    run.members(0)
    assert ended_by_sigterm(run, 26) == -signal.SIGTERM, run.tail()
    assert noted(run, "step") == list(range(1, 27)), "it ends with the step that it was in"
    allow(run, 60)
    run.again()
    run.members(0)
    assert run.wait() == 0, run.tail()
    assert noted(run, "step") == list(range(1, 61)), "each step once"
    assert straight.wait() == 0, straight.tail()
    assert noted(run, "evaluated") == noted(straight, "evaluated")
    assert noted(run, "end") == [60]
    assert noted(run, "weights") == noted(straight, "weights")
    assert [(last.done, last.total) for last in run.events("progress")[-1:]] == [(60, 60)], "of all epochs"
    if name == "transformers":
        assert learning_rates(run) == learning_rates(straight)
        assert [step for step, _ in learning_rates(run)] == list(range(5, 61, 5)), "of the training, not lines that were printed"


@pytest.mark.parametrize(
    ("name", "batch", "evaluated"),
    [("transformers", "", [21, 40, 60]), ("lightning", "0", [20, 40, 60]), ("lightning", "1", [20, 40, 60])],
    ids=["of Transformers, after the next step", "of Lightning in its first batch", "of Lightning in its last"],
)
def test_an_evaluation_that_is_interrupted_is_begun_again_and_what_is_best_by_it_is_kept(begin, name, batch, evaluated):
    best = {"save_strategy": "epoch", "load_best_model_at_end": True}
    run = begin(name, 60, elastic=False, max_slots=1, env={"MORE": json.dumps(best), "HOLDS": batch or "0"})
    (run.result_dir / "held").touch()
    run.members(0)
    until_step(run, 20)
    os.kill(run.pid, signal.SIGTERM)
    (run.result_dir / "held").unlink()
    assert run.wait() == -signal.SIGTERM, run.tail()
    assert not noted(run, "evaluated")
    run.again()
    run.members(0)
    assert run.wait() == 0, run.tail()
    assert noted(run, "step") == list(range(1, 61))
    assert noted(run, "evaluated") == evaluated
    if name == "transformers":
        assert {path.name for path in (run.code_dir / "out").iterdir()} == {f"checkpoint-{step}" for step in evaluated}


def test_a_process_that_is_killed_goes_on_from_what_the_script_saves(begin):
    run = begin("transformers", 31, elastic=False, max_slots=1, env={"MORE": json.dumps({"save_strategy": "steps", "save_steps": 7})})
    run.members(0)
    until_step(run, 31)
    run.kill(0)
    run.wait()
    (run.code_dir / "out" / "checkpoint-28" / "trainer_state.json").write_text("{}")
    allow(run, 60)
    run.again()
    run.members(0)
    assert run.wait() == 0, run.tail()
    assert noted(run, "step") == [*range(1, 32), *range(22, 61)], "from the last one that is as it was written"


def until_starts(run: Run, number: int) -> None:
    run.until(lambda: len(run.events("generation")) == number, what=f"{number} starts\n{run.tail()}")


def interrupted(run: Run, *slots: int, at: int, reason: str) -> None:
    """With other slots after the step `at`, which its workers were in when they were told to end, or the next, as several need."""
    until_step(run, at - 1)
    until_in_step(run, at, len(run.holding))
    starts = len(run.events("generation"))
    for path in run.result_dir.glob("told-*"):
        path.unlink()
    run.members(*slots, reason=reason)
    until_told(run, len(run.holding))
    allow(run, at + 1)
    until_starts(run, starts + 1)


def by_workers(run: Run) -> list[tuple[int, int, int]]:
    """(workers, the first step that they did, the last) of each start."""
    path, found = run.result_dir / "noted", list[tuple[int, int, int]]()
    for line in filter(lambda line: "step" in line, map(json.loads, path.read_text().splitlines())):
        workers, first, _ = found.pop() if found and found[-1][0] == line["workers"] else (line["workers"], line["step"], 0)
        found.append((workers, first, line["step"]))
    return found


@pytest.mark.parametrize(
    ("name", "at", "starts", "evaluated"),
    [
        ("transformers", (26, 24), [(1, 1, 26), (2, 14, 25), (1, 51, 60)], [20, 20, 60]),  # 26 steps of one worker are 13 of two
        (
            "lightning",
            (26, 35),
            [(1, 1, 26), (2, 27, 36), (1, 37, 50)],
            [20, 33, 50],
        ),  # 6 of 20 batches are 3 of 10, and 3 of 10 are 6 of 20
    ],
)
def test_workers_that_come_and_go_cost_no_step(begin, name, at, starts, evaluated):
    run = begin(name, at[0] - 1, torchrun="elastic", env={"EDT_GROW_AFTER_S": "0", "EDT_WORKER_GRACE_S": "60"})
    run.members(0)
    interrupted(run, 0, 1, at=at[0], reason="another is free")
    allow(run, at[1] - 1)
    interrupted(run, 1, at=at[1], reason="bob needs one")
    allow(run, 60)
    assert run.wait() == 0, run.tail()
    assert by_workers(run) == starts
    assert noted(run, "evaluated") == evaluated
    assert noted(run, "end") == [starts[-1][-1]]


def test_a_run_that_is_stopped_saves_what_it_has_and_says_that_it_was_stopped(begin):
    run = begin("transformers", 12, elastic=False, max_slots=1)
    run.members(0)
    until_in_step(run, 13)
    run.stop()
    until_told(run, 1)
    allow(run, 13)
    assert run.wait() == 0, run.tail()
    assert [event.outcome for event in run.events("finished")] == ["stopped"]
    assert not run.events("error")
    assert (run.result_dir / "checkpoint" / "transformers-1" / "checkpoint-13" / "trainer_state.json").is_file()


def test_trainings_of_one_script_that_save_under_the_same_names_are_told_apart(begin):
    env = {"MORE": json.dumps({"save_strategy": "epoch", "eval_strategy": "no"})}
    straight = begin(TWO, 60, elastic=False, max_slots=1, env=env)
    straight.members(0)
    assert straight.wait() == 0, straight.tail()
    run = begin(TWO, 60, elastic=False, max_slots=1, env=env)
    (run.result_dir / "allowed").unlink()
    allow(run, 60)
    run.members(0)
    run.until(lambda: len(noted(run, "step")) >= 70, what="the second is at work")
    run.kill(0)
    run.wait()
    run.again()
    run.members(0)
    assert run.wait() == 0, run.tail()
    assert noted(run, "weights")[-2:] == noted(straight, "weights")


def test_a_script_that_leaves_out_the_folds_that_are_done_gets_the_rest(begin):
    env = {"MORE": json.dumps({"save_strategy": "epoch", "eval_strategy": "no", "logging_steps": 5})}
    straight = begin(FOLDS, 60, elastic=False, max_slots=1, env=env)
    straight.members(0)
    assert straight.wait() == 0, straight.tail()
    run = begin(FOLDS, 60, elastic=False, max_slots=1, env=env)
    run.members(0)
    run.until(lambda: len(noted(run, "step")) >= 30, what="the second is at work")
    run.kill(0)
    run.wait()
    run.again()
    run.members(0)
    assert run.wait() == 0, run.tail()
    assert noted(run, "fold") == noted(straight, "fold") == [0, 1, 2]
    assert noted(run, "weights") == noted(straight, "weights")
    assert learning_rates(run) == learning_rates(straight)
    assert [step for step, _ in learning_rates(run)] == list(range(5, 61, 5)), "a fold goes on where the one before has ended"


def curves(run: Run) -> set[tuple[str, int, str, float]]:
    """A table that gets another column is read anew."""
    return {(each.group, each.step, name, value) for each in run.events("logged") for name, value in each.metrics.items()}


@pytest.mark.parametrize("logger", ["CSVLogger", "TensorBoardLogger"])
def test_a_training_of_lightnings_goes_on_writing_where_it_wrote_and_knows_what_was_best(begin, logger):
    straight, run = (begin(LOGS, steps, elastic=False, max_slots=1, env={"LOGGER": logger}) for steps in (60, 9))
    straight.members(0)
    run.members(0)
    for step, allowed in ((10, 25), (26, 60)):
        assert ended_by_sigterm(run, step) == -signal.SIGTERM, run.tail()
        allow(run, allowed)
        run.again()
        run.members(0)
    assert run.wait() == 0, run.tail()
    assert straight.wait() == 0, straight.tail()
    assert [noted(run, key) for key in ("best", "score")] == [["lightning_logs/version_0/checkpoints/epoch=0-step=20.ckpt"], [20]]
    assert [noted(run, key) for key in ("best", "score")] == [noted(straight, key) for key in ("best", "score")]
    assert curves(run) == curves(straight)
    assert {name for _, _, name, _ in curves(run)} - {"epoch"} == {"val_loss", "train_loss", "lr-AdamW"}
    if logger == "CSVLogger":
        table = "lightning_logs/version_0/metrics.csv"
        assert (run.result_dir / table).read_text() == (straight.result_dir / table).read_text()


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_run_that_goes_on_on_another_machine_finds_what_it_has_saved(begin, name, tmp_path):
    """Where its results have another path, as a machine's home has: also what the libraries wrote of the best models."""
    script = LOGS if name == "lightning" else TRANSFORMERS.replace('"out"', 'str(RESULTS / "out")').replace("note(end=", BEST)
    best = {"save_strategy": "epoch", "load_best_model_at_end": True, "metric_for_best_model": "eval_loss", "greater_is_better": True}
    run = begin(script, 25, elastic=False, max_slots=1, env={"LOGGER": "CSVLogger", "MORE": json.dumps(best)})
    run.members(0)
    assert ended_by_sigterm(run, 26) == -signal.SIGTERM, run.tail()
    move(run, tmp_path / "elsewhere")
    allow(run, 60)
    run.again()
    run.members(0)
    assert run.wait() == 0, run.tail()
    assert noted(run, "step") == list(range(1, 61))
    found = {"lightning": "lightning_logs/version_0/checkpoints/epoch=0-step=20.ckpt", "transformers": "out/checkpoint-20"}
    assert noted(run, "best") == [found[name]]
    assert (run.result_dir / found[name]).exists()
    assert "Could not locate the best model" not in run.log.read_text()


def test_a_script_that_goes_on_from_a_checkpoint_of_its_own_goes_on_from_the_newest(begin):
    run = begin(RESUMES, 25, elastic=False, max_slots=1, env={"MORE": json.dumps({"save_strategy": "epoch"})})
    run.members(0)
    for step, allowed in ((26, 30), (31, 60)):
        assert ended_by_sigterm(run, step) == -signal.SIGTERM, run.tail()
        allow(run, allowed)
        run.again()
        run.members(0)
    assert run.wait() == 0, run.tail()
    assert noted(run, "step") == list(range(1, 61)), "each step once"
