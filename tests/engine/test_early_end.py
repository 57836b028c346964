"""A loop that ends before its time: by a rule on what was learnt, by a worker's clock, whoever dies over it."""

from __future__ import annotations

import json
import os
import signal

from benchmarks._stage import HOLD
from tests.engine.faults import FAULTS
from tests.engine.harness import Run
from tests.engine.scripts import LOOP

EPOCHS = ("--epochs", "6")  # of 8 steps


def stops(condition: str) -> str:
    return LOOP.replace("        scheduler.step()\n", f"        scheduler.step()\n        if {condition}:\n            step.stop()\n")


BY_RULE = stops("step.epoch > 1 and step.index == 2 and step.evaluated['loss'] < 10")


def same(run: Run, one: Run) -> None:
    assert (run.weights(), run.train_lines(), run.test_lines()) == (one.weights(), one.train_lines(), one.test_lines())
    assert (run.result_dir / "after").read_text() == (one.result_dir / "after").read_text()


def test_a_loop_ends_one_step_after_it_was_asked_to_whatever_becomes_of_its_workers(start, fixed) -> None:
    one = fixed(*EPOCHS, script=BY_RULE)
    assert [line[0] for line in one.train_lines()] == list(range(1, 21))
    assert [e.message for e in one.events("warning")] == ["The script has ended the training by step.stop(): after step 20 of 48."]
    faults = [{"phase": "optimizer", "step": 19, "rank": 0}, {"phase": "backward", "step": 20, "rank": 0}]
    run = start(FAULTS + HOLD + BY_RULE, *EPOCHS, env={"FAULTS": json.dumps(faults), "HOLDS": json.dumps([12])})
    run.members(0, 1, 2)
    run.until_step(11)
    run.members()
    run.until(lambda: run.events("suspended"), what="suspended")
    run.members(0, 3)
    assert run.wait() == 0, run.tail()
    assert all((run.result_dir / f"fault-{i}").exists() for i in range(len(faults)))
    same(run, one)


AT_THE_FINAL_MODEL = """
from training_runtime.elastic.worker import main as _worker
_save = _worker.Worker._save
def _held(self, unit, name="", **how):
    import os, signal, time
    here = os.environ["RESULT_DIR"]
    if name == "model_epoch_final" and not os.path.exists(here + "/reached"):
        open(here + "/reached", "w").close()
        {then}
    _save(self, unit, name, **how)
_worker.Worker._save = _held
"""


def test_a_worker_that_dies_over_the_final_model_is_replaced_at_the_early_end(start, fixed) -> None:
    run = start(AT_THE_FINAL_MODEL.format(then="os.kill(os.getpid(), signal.SIGKILL)") + BY_RULE, *EPOCHS)
    run.members(0, 1)
    assert run.wait() == 0, run.tail()
    same(run, fixed(*EPOCHS, script=BY_RULE))


def test_a_driver_that_dies_over_the_early_end_comes_to_the_same(start, fixed) -> None:
    waits = "while not os.path.exists(here + '/killed'): time.sleep(0.002)"
    run = start(AT_THE_FINAL_MODEL.format(then=waits) + BY_RULE, *EPOCHS)
    run.members(0, 1)
    run.until((run.result_dir / "reached").exists, what="all but the final model")
    os.kill(run.pid, signal.SIGKILL)
    run.wait()
    (run.result_dir / "killed").touch()
    run.again()
    run.members(0, 1)
    assert run.wait() == 0, run.tail()
    same(run, fixed(*EPOCHS, script=BY_RULE))


def test_one_worker_that_asks_by_its_clock_ends_the_training_of_all(start) -> None:
    asks = stops("step.number >= 5 and step._worker.worker_id == 1")
    run = start(asks, *EPOCHS)
    run.members(0, 1, 2)
    assert run.wait() == 0, run.tail()
    done = run.step()
    assert 6 <= done < 48
    assert [e.step for e in run.events("train")] == list(range(1, done + 1))
    assert len((run.result_dir / "after").read_text().splitlines()) == 1


def test_in_the_last_step_it_has_no_effect_and_in_the_last_of_an_epoch_the_next_epoch_begins(start, fixed) -> None:
    last = fixed(*EPOCHS, script=stops("step.number == step.steps"))
    assert last.step() == 48
    assert not last.events("warning")
    of_an_epoch = fixed(*EPOCHS, script=stops("step.number == 15"))
    assert of_an_epoch.step() == 16
    assert [line[0] for line in of_an_epoch.test_lines()] == [8, 16], "its evaluation is done"


def test_among_the_batches_it_is_refused(start) -> None:
    run = start(LOOP.replace("            step.measure(", "            step.stop()\n            step.measure("), *EPOCHS)
    run.members(0)
    assert run.wait() == 1
    assert "step.stop() belongs behind the loop over the step's batches" in run.events("error")[0].message
