"""One run on several machines, each a node host with a process of the run: the same bits, whoever comes, goes or dies."""

from __future__ import annotations

import os
import signal

import pytest

from tests.engine.harness import HERE
from tests.engine.scripts import SMALL

LONG = ("--epochs", "24", "--samples", "115")


def test_a_run_that_goes_over_three_machines_and_leaves_home_equals_a_fixed_one(start, join, fixed):
    one = fixed(*LONG)
    run = start(SMALL, *LONG, env=HERE)
    near, far = join(run), join(run)
    run.members(0, 1)
    run.until_step(10)
    near.members(10, 11)
    run.until_workers(4)
    far.members(20)
    near.members(10)
    run.until_workers(4)
    run.members()  # nobody is left at home
    run.until_workers(2)
    far.members()
    run.until_workers(1)
    run.members(1, 2)
    near.members()
    run.until_workers(2)
    assert run.wait() == 0, run.tail()
    assert (near.wait(), far.wait()) == (0, 0)
    assert run.weights() == one.weights()
    assert run.train_lines() == one.train_lines()
    assert run.test_lines() == one.test_lines()


def test_a_worker_that_dies_on_either_machine_costs_a_step_and_not_a_bit(start, join, fixed):
    one = fixed(*LONG)
    run = start(SMALL, *LONG, env=HERE)
    other = join(run)
    run.members(0, 1)
    other.members(10, 11)
    run.until_workers(4)
    for machine, slot in ((other, 10), (run, 1), (other, 11)):
        machine.until(lambda machine=machine, slot=slot: slot in machine.workers, what=f"a worker on slot {slot}")
        machine.kill(slot)
        run.until_workers(3)
        run.until_workers(4)
    assert run.wait() == 0, run.tail()
    assert run.weights() == one.weights()
    assert run.train_lines() == one.train_lines()
    assert all(g.redone <= 1 for g in run.events("generation"))
    assert not run.events("resumed")


@pytest.mark.parametrize("at_home", [True, False], ids=["beside those at home", "alone"])
def test_a_machine_that_goes_down_is_done_without(start, join, fixed, at_home):
    one = fixed(*LONG)
    run = start(SMALL, *LONG, env=HERE)
    other = join(run)
    run.members(0, 1)
    other.members(10, 11)
    run.until_workers(4)
    if not at_home:
        run.members()
        run.until_workers(2)
    os.killpg(other.pid, signal.SIGKILL)  # all of its processes at once
    if not at_home:
        run.members(0)
    assert run.wait() == 0, run.tail()
    assert run.weights() == one.weights()
    assert run.train_lines() == one.train_lines()
    assert len(run.events("resumed")) == (not at_home), run.events("generation")
