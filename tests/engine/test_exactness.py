"""Law 1 with real processes: the weights do not depend on who computed them."""

from __future__ import annotations

import pytest

from tests.engine.scripts import SMALL

LONG = ("--epochs", "24", "--samples", "115")


@pytest.mark.parametrize("optimizer", ["SGD", "Adam", "Adadelta"])
def test_weights_optimizer_state_and_metrics_are_equal_for_any_number_of_workers(start, fixed, optimizer):
    one = fixed("--optimizer", optimizer, "--samples", "115")
    assert len(one.train_lines()) == 3 * 8
    for workers in (2, 3, 4):
        other = start(SMALL, "--optimizer", optimizer, "--samples", "115")
        other.members(*range(workers))
        assert other.wait() == 0, other.tail()
        assert other.weights() == one.weights()
        assert other.train_lines() == one.train_lines()
        assert other.test_lines() == one.test_lines()


def test_a_run_that_goes_4_2_3_1_4_equals_a_fixed_one(start, fixed):
    one = fixed(*LONG)
    run = start(SMALL, *LONG)
    run.members(0, 1, 2, 3)
    for at, slots in ((20, (0, 1)), (50, (0, 1, 3)), (90, (3,)), (130, (0, 1, 2, 3))):
        run.until_step(at)
        run.members(*slots)
        run.until_workers(len(slots))
    assert run.wait() == 0, run.tail()
    assert [len(g.members) for g in run.events("generation")] == [4, 2, 3, 1, 4]
    assert run.weights() == one.weights()
    assert run.train_lines() == one.train_lines()
    assert run.test_lines() == one.test_lines()
