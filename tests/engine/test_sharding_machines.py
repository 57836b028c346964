"""The optimizer's step shared out on several machines, on each among its own workers, and by both ways in which gradients meet: the bits of
a run that does not, whatever happens in the midst of it."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter

import pytest

from tests.engine.faults import FAULTS, SHARDED_PHASES
from tests.engine.harness import HERE, until_gone
from tests.engine.scripts import HELD, LONG, SMALL
from tests.engine.test_sharding import COUNTED, SHORT, SOON, same, shared_out
from training_runtime.elastic.multinode.remote_agent import AGAIN

SHARDED = ("--sharded", "parameters")
LONGER = ("--epochs", "36", "--samples", "115", "--checkpoint", "12")


def until_shared(run, *machines) -> None:
    """Until workers of each of these machines have taken steps from each other after now."""
    for machine in machines:
        before = shared_out(run, machine)
        run.until(lambda machine=machine, before=before: shared_out(run, machine) > before + 4, what="steps that are shared out")


@pytest.mark.usefixtures("either_way")
def test_each_machine_shares_the_step_out_among_its_workers_however_many_it_has(together, fixed):
    one = fixed(*LONGER)
    run, near, far = together((0,), (10, 11), (20,), script=SOON + COUNTED + HELD, more=(*SHARDED, *LONGER))
    until_shared(run, near)
    assert shared_out(run) == shared_out(run, near), "one worker has nobody to share a step with"
    near.members()
    run.members(0, 1)
    far.members(20, 21)
    run.until_workers(4)
    until_shared(run, run, far)
    run.members()  # nobody is left at the head node
    run.until_workers(2)
    near.members(10, 11)
    run.until_workers(4)
    until_shared(run, near, far)
    run.members(0)
    far.members()
    run.until_workers(3)
    until_shared(run, near)
    assert run.wait() == 0, run.tail()
    assert (near.wait(), far.wait()) == (0, 0)
    same(run, one)
    assert not run.events("warning"), [warned.message for warned in run.events("warning")]


@pytest.mark.parametrize("workers", [2, 3])
def test_where_gradients_go_through_a_group_the_step_is_shared_out_too(start, fixed, workers):
    run = start(COUNTED + SMALL, *SHORT, *SHARDED, env={"EDT_REDUCE": "collective"})
    run.members(*range(workers))
    assert run.wait() == 0, run.tail()
    same(run, fixed(*SHORT))
    assert shared_out(run) >= workers
    assert not run.events("warning"), [warned.message for warned in run.events("warning")]


@pytest.mark.parametrize(("either_way", "rank"), [("segment", 1), ("collective", 3)], indirect=["either_way"])
@pytest.mark.usefixtures("either_way")
def test_deaths_at_every_phase_of_the_step_cost_a_step_at_most_on_any_machine(together, fixed, rank):
    """At the head node, and on the other machine."""
    one = fixed(*LONG)
    faults = [{"phase": phase, "step": 30 + 35 * i, "rank": rank} for i, phase in enumerate(SHARDED_PHASES)]
    run, other = together((0, 1), (10, 11), script=FAULTS + COUNTED + HELD, more=SHARDED, FAULTS=json.dumps(faults))
    assert run.wait() == 0, run.tail()
    assert other.wait() == 0, other.tail()
    same(run, one)
    assert all((run.result_dir / f"fault-{i}").exists() for i in range(len(faults)))
    assert max(generation.redone for generation in run.events("generation")) == 1
    assert not run.events("resumed")
    assert shared_out(run, run)
    assert shared_out(run, other)


AT = 36  # the fourth step of the fifth epoch


def pages(run, step: int) -> tuple[Counter[int], int]:
    """How often each engine of a step was computed, and by how many workers it was committed."""
    lines = [json.loads(line) for page in (run.result_dir / "ledger").iterdir() for line in page.read_text().splitlines()]
    return Counter(line["engine"] for line in lines if line.get("step") == step), sum(line.get("committed") == step for line in lines)


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize(("either_way", "phase"), [("segment", "stepped"), ("collective", "stepping")], indirect=["either_way"])
def test_who_is_left_does_a_step_to_its_end_that_was_summed_when_somebody_died(together, fixed, phase):
    """One of the two on the other machine dies over its share; those at the head node do not even notice before the next step."""
    one = fixed(*LONG)
    told = json.dumps([{"phase": phase, "step": AT, "rank": 3}])
    run, _ = together((0, 1), (10, 11), script=FAULTS + COUNTED + HELD, more=SHARDED, stays=(4,), FAULTS=told, EDT_LEDGER="1")
    (run.result_dir / "stay-4").unlink()
    assert run.wait() == 0, run.tail()
    same(run, one)
    computed, committed = pages(run, AT)
    assert computed == {engine: 1 for engine in range(4)}, "it was computed again"
    assert committed == 3


# The driver is killed when worker 1 has a step's sum; when worker 0, which waits for its share, has noticed that, worker 1 is killed too.
LEFT_ALONE = """
import os, signal, time
from training_runtime.elastic.comm.segment import ORPHANED as _ORPHANED
from training_runtime.elastic.worker import sharding as _left
def _leave(inner):
    def step(self, group, step):
        if step == 36 and group.rank == 1:
            signal.pidfd_send_signal(group.driver, signal.SIGKILL)
            while not group.segment.words[_ORPHANED]:
                time.sleep(0.001)
            os.kill(os.getpid(), signal.SIGKILL)
        return inner(self, group, step)
    return step
if not os.path.exists(os.environ["RESULT_DIR"] + "/left"):
    open(os.environ["RESULT_DIR"] + "/left", "w").close()
    _left.ShardedOptimizer.step = _leave(_left.ShardedOptimizer.step)
"""


@pytest.mark.usefixtures("either_way")
def test_who_is_left_alone_over_a_step_that_was_summed_writes_down_the_state_after_it(start, fixed):
    run = start(LEFT_ALONE + SMALL, *LONG, *SHARDED)
    run.members(0, 1)
    assert run.wait() == -signal.SIGKILL
    until_gone(run.pid)
    run.again()
    run.members(0, 1)
    assert run.wait() == 0, run.tail()
    assert run.events("resumed")[0].step == 36
    same(run, fixed(*LONG))


STUCK = """
import os, time
from training_runtime.elastic.worker import sharding as _stuck
def _stick(inner):
    def step(self, group, step):
        if step == 36 and group.rank == 3:
            while True:
                time.sleep(0.01)
        return inner(self, group, step)
    return step
_stuck.ShardedOptimizer.step = _stick(_stuck.ShardedOptimizer.step)
"""


def test_who_hangs_over_its_share_is_ended_and_not_who_waits_for_it(together, fixed):
    run, _ = together((0, 1), (10, 11), script=STUCK + HELD, more=SHARDED, stays=(4,), EDT_HANG_TIMEOUT="2")
    (run.result_dir / "stay-4").unlink()
    assert run.wait() == 0, run.tail()
    same(run, fixed(*LONG))
    assert [warned.message.partition(" showed")[0] for warned in run.events("warning")] == ["the worker on slot 11"]


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize(
    ("either_way", "victims"), [("segment", "the whole machine"), ("collective", "the agent")], indirect=["either_way"]
)
def test_a_machine_that_goes_down_is_done_without_and_may_come_back(together, fixed, victims):
    one = fixed(*LONGER)
    run, other = together((0, 1), (10, 11), script=COUNTED + HELD, more=(*SHARDED, *LONGER), stays=(24,))
    until_shared(run, run, other)
    (os.kill if victims == "the agent" else os.killpg)(other.pid, signal.SIGKILL)
    run.until_workers(2)
    until_shared(run, run)
    until_gone(other.pid)
    other.again()
    other.members(10, 11)
    other.until(lambda: {10, 11} <= set(other.workers), what="workers on the machine that has come back")
    (run.result_dir / "stay-24").unlink()
    run.until_workers(4)
    until_shared(run, other)
    assert run.wait() == 0, run.tail()
    assert other.wait() == 0, other.tail()
    same(run, one)
    assert not run.events("resumed")


@pytest.mark.usefixtures("either_way")
def test_a_driver_that_dies_costs_no_step_that_was_shared_out_on_any_machine(together, fixed):
    one = fixed(*LONG)
    run, other = together((0, 1), (10, 11), script=COUNTED + HELD, more=SHARDED)
    until_shared(run, run, other)
    os.kill(run.pid, signal.SIGKILL)
    assert run.wait() == -signal.SIGKILL
    until_gone(run.pid)
    assert other.wait() == AGAIN, other.tail()
    until_gone(other.pid)
    before = run.step()
    for machine in (run, other):
        machine.again()
    run.members(0)
    other.members(10, 11)
    assert run.wait() == 0, run.tail()
    assert run.events("resumed")[0].step >= before
    same(run, one)


@pytest.mark.usefixtures("either_way")
def test_a_run_that_is_suspended_and_moved_goes_on_with_the_next_step(together, fixed):
    one = fixed(*LONGER)
    run, other = together((0, 1), (10, 11), script=COUNTED + HELD, more=(*SHARDED, *LONGER))
    until_shared(run, run, other)
    run.members()
    other.members()
    run.until(lambda: run.events("suspended"), what="suspended")
    other.members(10, 11, 12)
    run.until_workers(3)
    until_shared(run, other)
    run.members(2)
    run.until_workers(4)
    assert run.wait() == 0, run.tail()
    assert run.events("resumed")[0].step == run.events("suspended")[0].step
    same(run, one)


@pytest.mark.usefixtures("either_way")
def test_a_machine_that_comes_when_the_state_is_shared_out_elsewhere_gets_all_of_it(start, join, fixed):
    one = fixed(*LONG)
    run = start(COUNTED + HELD, *LONG, *SHARDED, env=HERE)
    stay = run.result_dir / "stay-6"
    stay.touch()
    run.members(0, 1)
    until_shared(run, run)
    other = join(run)
    other.members(10, 11)
    other.until(lambda: {10, 11} <= set(other.workers), what="workers on the other machine")
    stay.unlink()
    run.until_workers(4)
    run.members()  # what goes on from here came over the line
    run.until_workers(2)
    until_shared(run, other)
    assert run.wait() == 0, run.tail()
    assert other.wait() == 0
    same(run, one)
