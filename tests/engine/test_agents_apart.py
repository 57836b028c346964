"""One run on machines that share no folder: what counts of it is what the head node has, and it is the same bits."""

from __future__ import annotations

import os
import signal

import pytest

from tests.engine.harness import HERE, Apart, until_gone
from tests.engine.scripts import HELD, LONG
from training_runtime.elastic.multinode.remote_agent import AGAIN
from training_runtime.elastic.state import checkpoint


@pytest.fixture
def apart(start, join):
    """apart(home, others, script=HELD, **env) -> the run and a remote agent with a folder of its own, with workers on these slots from the
    third epoch on. `waits`: those of the remote agent wait again before the 21st."""

    def begin(home: tuple[int, ...], others: tuple[int, ...], *, script: str = HELD, waits: bool = False, **env: str):
        run = start(script, *LONG, env={**HERE, **env})
        stays = [run.result_dir / "stay-2"]
        stays[0].touch()
        run.members(*(home or (0,)))
        agent = join(run, kind=Apart)
        stays.append(agent.result_dir / "stay-2")
        stays[1].touch()
        if waits:
            (agent.result_dir / "stay-20").touch()
        agent.members(*others)
        agent.until(lambda: set(others) <= set(agent.workers), what=f"workers on {others}")
        for stay in stays:
            stay.unlink()
        run.until_workers(len(others) + len(home or (0,)))
        if not home:
            run.members()
            run.until_workers(len(others))
        return run, agent

    return begin


def same(run, one) -> None:
    assert run.weights() == one.weights()
    assert run.train_lines() == one.train_lines()
    assert run.test_lines() == one.test_lines()


@pytest.mark.usefixtures("either_way")
def test_what_is_written_elsewhere_is_at_the_head_node_before_it_is_in_the_journal(apart, fixed):
    one = fixed(*LONG)
    run, other = apart((), (10, 11))
    assert (run.wait(), other.wait()) == (0, 0), run.tail()
    same(run, one)
    written = {path for event in run.events("checkpoint") for path in event.paths}
    assert {"model/train/model_epoch_final.pth", "model/train/model_epoch_20.pth", "checkpoint/engine.pt"} <= written
    assert all((run.result_dir / path).is_file() for path in written)
    assert not run.events("resumed"), run.tail()


def test_workers_elsewhere_begin_with_the_state_that_the_head_node_has(apart, fixed):
    one = fixed(*LONG)
    run, other = apart((0,), (10,))
    other.members()
    run.until_workers(1)
    run.members()
    run.until(lambda: run.events("suspended"), what="suspended")
    assert not checkpoint.engine_path(other.result_dir).exists(), "the head node's worker has written it"
    other.members(10, 11)
    run.until_workers(2)
    other.members()
    run.until(lambda: len(run.events("suspended")) == 2, what="suspended, by a worker elsewhere")
    run.members(0)
    assert run.wait() == 0, run.tail()
    same(run, one)
    for before, after in zip(run.events("suspended"), run.events("resumed"), strict=True):
        assert after.step == before.step


def test_a_driver_that_dies_costs_no_step_where_home_has_a_worker(apart, fixed):
    one = fixed(*LONG)
    run, other = apart((0,), (10, 11))
    os.kill(run.pid, signal.SIGKILL)
    assert run.wait() == -signal.SIGKILL
    until_gone(run.pid)
    assert other.wait() == AGAIN, other.tail()
    until_gone(other.pid)
    before, run.met = run.step(), None
    run.again()
    run.members(0)
    other.again()
    other.members(10)
    assert run.wait() == 0, run.tail()
    assert run.events("resumed")[0].step >= before
    same(run, one)


def test_a_driver_that_dies_without_a_worker_at_the_head_node_goes_on_from_the_last_state_that_the_head_node_has(apart, fixed):
    one = fixed(*LONG)
    run, other = apart((), (10, 11))
    os.kill(run.pid, signal.SIGKILL)
    assert run.wait() == -signal.SIGKILL
    until_gone(run.pid)
    assert other.wait() == AGAIN, other.tail()
    until_gone(other.pid)
    run.met = None
    run.again()
    other.again()
    other.members(10)
    assert run.wait() == 0, run.tail()
    same(run, one)


def test_a_machine_that_goes_down_is_done_without(apart, fixed):
    one = fixed(*LONG)
    run, other = apart((0, 1), (10, 11))
    os.killpg(other.pid, signal.SIGKILL)
    assert run.wait() == 0, run.tail()
    same(run, one)
    assert not run.events("resumed")


FAILS = """
    def on_epoch_begin(self, epoch):
        if os.path.exists(folder + "/fail"):
            os.unlink(folder + "/fail")
            raise RuntimeError("a device that fails once")
"""


def test_a_worker_elsewhere_that_fails_alone_leaves_its_state_at_the_head_node(apart, fixed):
    one = fixed(*LONG)
    run, other = apart((), (10,), script=HELD.replace("\n    def on_epoch_begin(self, epoch):\n", FAILS), waits=True)
    (other.result_dir / "fail").touch()
    (other.result_dir / "stay-20").unlink()
    assert run.wait() == 0, run.tail()
    same(run, one)
    assert len(run.events("resumed")) == 1
    steps = [event.step for event in run.events("train")]
    assert run.events("resumed")[0].step in steps


def test_a_head_node_that_must_not_go_on_takes_the_others_along(apart, fixed):
    one = fixed(*LONG)
    run, _ = apart((0,), (10,))
    run.members(suspend=True)
    run.until(lambda: run.events("suspended"), what="nobody trains, though slots are offered elsewhere")
    run.members(0)
    assert run.wait() == 0, run.tail()
    same(run, one)
