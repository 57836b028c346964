"""Which batches a training of Lightning's has when it goes on in an epoch: those that were left, to the same weights."""

from __future__ import annotations

import json
import os
import signal

import pytest

from tests.engine.gates import allow, noted
from tests.engine.harness import Run
from tests.engine.trainer_scripts import BATCHES, PACKAGES

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(not (PACKAGES / "lightning").is_dir(), reason="trainers are not installed: make setup-test"),
]


@pytest.fixture
def begin(start):
    def begin(kind: str, steps: int, **more) -> Run:
        run = start(BATCHES, elastic=False, max_slots=1, env={"KIND": kind, "MORE": json.dumps(more)})
        allow(run, steps)
        run.members(0)
        return run

    return begin


def until_there(run: Run, pattern: str) -> None:
    run.until(lambda: list(run.result_dir.glob(pattern)), what=f"{pattern}\n{run.tail()}")


def tell_in_batch(run: Run, batch: int) -> None:
    until_there(run, f"waits-{batch}-{run.pid}")
    os.kill(run.pid, signal.SIGTERM)
    until_there(run, f"told-{run.pid}")
    allow(run, batch)


def ended(run: Run) -> None:
    assert run.wait() == -signal.SIGTERM, run.tail()


def go_on(run: Run, batches: int = 60) -> None:
    allow(run, batches)
    run.again()
    run.members(0)


def batches(run: Run, rank: int = 0) -> list[list[int]]:
    return [json.loads(line) for line in (run.result_dir / f"ids-{rank}").read_text().splitlines()]


def assert_as(run: Run, straight: Run) -> None:
    """Each batch once, in the same order, to the bit."""
    assert run.wait() == 0, run.tail()
    assert straight.wait() == 0, straight.tail()
    assert batches(run) == batches(straight)
    for key in ("end", "weights"):
        assert noted(run, key) == noted(straight, key), key


@pytest.mark.parametrize("kind", ["shuffled", "in order", "in other processes", "by a generator", "without length"])
def test_no_batch_is_done_twice_and_none_is_left_out(begin, kind):
    straight, run = begin(kind, 60), begin(kind, 25)
    tell_in_batch(run, 26)
    ended(run)
    go_on(run, 39)
    tell_in_batch(run, 40)  # the last of its epoch
    ended(run)
    go_on(run, 40)
    tell_in_batch(run, 41)
    ended(run)
    go_on(run)
    assert_as(run, straight)
    for epoch in range(3):
        assert sorted(each for batch in batches(run)[epoch * 20 :][:20] for each in batch) == list(range(160))


@pytest.mark.parametrize("batch", [25, 28])
def test_gradients_that_wait_for_a_step_of_the_optimizer_are_kept(begin, batch):
    straight, run = begin("shuffled", 60, accumulate_grad_batches=4), begin("shuffled", batch - 1, accumulate_grad_batches=4)
    tell_in_batch(run, batch)
    ended(run)
    assert len(batches(run)) == batch, "a step may take longer than there is time"
    go_on(run)
    assert_as(run, straight)


@pytest.mark.parametrize("more", [{}, {"val_check_interval": 0.25}], ids=["behind an epoch", "within it"])
def test_a_validation_that_is_interrupted_is_begun_again_with_the_same_numbers(begin, more):
    straight = begin("shuffled", 60, num_sanity_val_steps=0, **more)
    run = begin("shuffled", 19 if not more else 24, num_sanity_val_steps=0, **more)
    until_there(run, f"waits-*-{run.pid}")
    (run.result_dir / "held").touch()
    allow(run, 60)
    until_there(run, "validates")
    before = len(noted(run, "validated"))
    os.kill(run.pid, signal.SIGTERM)
    (run.result_dir / "held").unlink()
    ended(run)
    go_on(run)
    assert_as(run, straight)
    validated = noted(run, "validated")
    assert validated[:before] + validated[len(validated) - len(noted(straight, "validated")) + before :] == noted(straight, "validated")


def test_two_workers_go_on_with_what_their_epoch_had_left(start):
    env = {"KIND": "shuffled", "EDT_GROW_AFTER_S": "0", "EDT_WORKER_GRACE_S": "60"}
    run = start(BATCHES, torchrun="elastic", env=env)
    allow(run, 13)
    run.members(0, 1)
    run.until(lambda: len(list(run.result_dir.glob("waits-14-*"))) == 2, what=f"both are in batch 14\n{run.tail()}")
    run.members(1, 2, reason="bob needs the first")
    run.until(lambda: len(list(run.result_dir.glob("told-*"))) == 2, what=f"both are told to end\n{run.tail()}")
    allow(run, 30)
    assert run.wait() == 0, run.tail()
    assert len(run.events("generation")) == 2
    assert [len(batches(run, rank)) for rank in (0, 1)] == [30, 30]
    for epoch in range(3):
        had = [each for rank in (0, 1) for batch in batches(run, rank)[epoch * 10 :][:10] for each in batch]
        assert sorted(had) == list(range(160)), "each sample once, and none is left out"
