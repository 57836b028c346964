"""A training that one of its callbacks ends early, whoever computes it and whatever becomes of them."""

from __future__ import annotations

import pytest

from tests.engine.scripts import HELD

STOPS = """
class Early:
    best, patience = None, 0
    def on_epoch_end(self, epoch):
        loss = float(sum(p.detach().abs().sum() for p in model.parameters()))
        self.patience = 0 if self.best is None or loss < self.best - 1000 else self.patience + 1
        self.best = loss if self.best is None else min(loss, self.best)
        if self.patience == 2:
            OWNER.stop_training = True
    def on_epoch_begin(self, epoch):
        print("begins", epoch, flush=True)
"""
ARGUMENTS = ("--epochs", "9", "--samples", "115")


def stopping(owner: str) -> str:
    text = HELD.replace("class Stay:", STOPS.replace("OWNER", owner) + "class Stay:").replace("[Stay()]", "[Early(), Stay()]")
    return text + "\nopen(folder + '/after', 'w').write('behind train()')\n"


@pytest.mark.parametrize("owner", ["self", "self.model"])
def test_stop_training_of_a_callback_ends_the_training_with_the_epoch(start, owner) -> None:
    run = start(stopping(owner), *ARGUMENTS)
    run.members(0, 1)
    assert run.wait() == 0, run.tail()
    assert [each.epoch for each in run.events("test")] == [1, 2, 3]
    assert run.step() == 24
    assert [each.message for each in run.events("warning")] == ["The script has ended the training by stop_training: after step 24 of 72."]
    assert run.events("finished")[-1].outcome == "completed"
    assert (run.result_dir / "after").exists()
    assert "begins 3" not in (run.result_dir / "log" / "worker-0" / "console.log").read_text()


def test_it_ends_there_whoever_comes_goes_and_dies(start) -> None:
    fixed = start(stopping("self"), *ARGUMENTS)
    fixed.members(0)
    assert fixed.wait() == 0, fixed.tail()
    run = start(stopping("self"), *ARGUMENTS)
    for epoch in (1, 2):
        (run.result_dir / f"stay-{epoch}").touch()
    run.members(0, 1)
    run.until_step(8)
    run.members(0, 1, 2)
    run.until(lambda: len((run.result_dir / "ready").read_text().split()) == 3, what="a third is ready")
    (run.result_dir / "stay-1").unlink()
    run.until_step(16)
    run.kill(0)
    run.members(1, suspend=True)
    (run.result_dir / "stay-2").unlink()
    run.until(lambda: run.events("suspended"), what="it is suspended")
    run.members(3, 2)
    assert run.wait() == 0, run.tail()
    assert (run.weights(), run.train_lines(), run.test_lines()) == (fixed.weights(), fixed.train_lines(), fixed.test_lines())
    assert run.step() == 24


def test_workers_that_do_not_agree_end_the_run_with_a_sentence(start) -> None:
    text = stopping("self").replace("if self.patience == 2:", "if epoch == 1 and is_second():")
    second = "def is_second():\n    with open(folder + '/turns', 'a') as file:\n        file.write('.')\n        return file.tell() == 2\n"
    run = start(text.replace("class Early:", second + "class Early:"), *ARGUMENTS)
    run.members(0, 1)
    assert run.wait() != 0
    (error,) = run.events("error")
    assert "stop_training differ between slot" in error.message
