"""The end of a training: slots go back as soon as nobody needs them, and a death in it loses nothing."""

from __future__ import annotations

import os
import signal

import pytest

from tests.engine.harness import until_gone
from tests.engine.scripts import SMALL
from tests.engine.test_user_code import script

ARGUMENTS = ("--epochs", "3", "--samples", "115", "--checkpoint")
WAITS = """
import os, time
from pathlib import Path
from training_runtime.elastic.worker import main as _worker
_results, _save = Path(os.environ["RESULT_DIR"]), _worker.Worker._save
def _slowly(self, unit, name="", **how):
    if name == "model_epoch_final":
        (_results / f"writes-{os.getpid()}").touch()
        while not (_results / "go").exists():
            time.sleep(0.005)
    _save(self, unit, name, **how)
_worker.Worker._save = _slowly
"""


def same(run, one) -> None:
    assert run.train_lines() == one.train_lines()
    assert run.test_lines() == one.test_lines()
    assert run.weights() == one.weights()
    until_gone(run.pid)


def ending(start, checkpoint: str):
    """A run of which one worker of three is left, which waits before it writes the final model; that worker's slot."""
    run = start(WAITS + SMALL, *ARGUMENTS, checkpoint)
    run.members(0, 1, 2)
    run.until(lambda: list(run.result_dir.glob("writes-*")) and len(run.holding) == 1, what="one worker left")
    return run, run.holding[0]


def test_only_the_worker_that_writes_the_final_model_keeps_its_slot(start, fixed):
    run, _ = ending(start, "0")
    assert run.events("trained") == []
    run.members(0, 1, 2)  # as it was: nobody comes back for it
    (run.result_dir / "go").touch()
    assert run.wait() == 0, run.tail()
    assert [e.step for e in run.events("trained")] == [24]
    assert len(run.events("generation")) == 1
    same(run, fixed(*ARGUMENTS, "0"))


@pytest.mark.parametrize(("who", "checkpoint"), [("worker", "0"), ("driver", "1")])
def test_a_death_while_the_final_model_is_written_is_made_good_by_another_worker(start, fixed, who, checkpoint):
    run, slot = ending(start, checkpoint)
    os.kill(run.workers[slot] if who == "worker" else run.pid, signal.SIGKILL)
    (run.result_dir / "go").touch()
    if who == "driver":
        assert run.wait() == -signal.SIGKILL
        until_gone(run.pid)
        run.again()
        run.members(1, 2)
    assert run.wait() == 0, run.tail()
    assert len(run.events("resumed")) == 1
    same(run, fixed(*ARGUMENTS, "0"))  # which has no other weights for its checkpoints


def test_what_follows_the_training_holds_no_slot_and_is_done_again_without_one(start):
    waits = "import os, time\nresults = os.environ['RESULT_DIR']\nopen(results + '/after', 'a').write('x')\n"
    waits += "while not os.path.exists(results + '/go'):\n    time.sleep(0.005)"
    run = start(script(bottom=waits))
    run.members(0, 1)
    run.until(lambda: (run.result_dir / "after").exists() and run.holding == (), what="the rest of the script, without a slot")
    assert [e.step for e in run.events("trained")] == [8]
    os.kill(run.pid, signal.SIGKILL)
    assert run.wait() == -signal.SIGKILL
    run.again()  # and it is granted nothing
    (run.result_dir / "go").touch()
    assert run.wait() == 0, run.tail()
    assert (run.result_dir / "after").read_text() == "xx"
    assert len(run.events("trained")) == 1
    assert run.events("finished")[-1].outcome == "completed"
