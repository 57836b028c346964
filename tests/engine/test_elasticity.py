"""Members change, die, vanish and come back: nothing is lost, nothing restarts that need not."""

from __future__ import annotations

import pytest

from tests.engine.scripts import SMALL

LONG = ("--epochs", "24", "--samples", "115")  # 8 steps an epoch, 192 in all


def same(run, other) -> None:
    assert run.train_lines() == other.train_lines()
    assert run.test_lines() == other.test_lines()
    assert run.weights() == other.weights()


@pytest.mark.usefixtures("either_way")
def test_a_worker_killed_in_the_middle_costs_one_step_at_most_and_is_replaced(start, fixed):
    one = fixed(*LONG)
    run = start(SMALL, *LONG)
    run.members(0, 1, 2, 3)
    run.until_step(30)
    stayed = {slot: pid for slot, pid in run.workers.items() if slot != 2}
    run.kill(2)
    run.until(lambda: any("died" in g.reason for g in run.events("generation")), what="the survivors' generation")
    run.until_workers(4)
    assert {slot: pid for slot, pid in run.workers.items() if slot != 2} == stayed
    run.kill(0)
    run.until(lambda: sum("died" in g.reason for g in run.events("generation")) == 2, what="the second generation of survivors")
    assert run.wait() == 0, run.tail()
    assert all(g.redone <= 1 for g in run.events("generation"))
    same(run, one)


def test_two_of_three_workers_killed_together(start, fixed):
    one = fixed(*LONG)
    run = start(SMALL, *LONG)
    run.members(0, 1, 2)
    run.until_step(40)
    run.kill(0)
    run.kill(1)
    assert run.wait() == 0, run.tail()
    same(run, one)


def test_all_workers_killed_at_once_go_on_from_what_was_saved(start, fixed):
    one = fixed(*LONG)
    run = start(SMALL, *LONG)
    run.members(0, 1)
    run.until_step(50)
    run.kill(0)
    run.kill(1)
    assert run.wait() == 0, run.tail()
    assert len(run.events("resumed")) == 1
    same(run, one)


def test_suspended_in_the_middle_of_an_epoch_and_resumed_on_other_slots(start, fixed):
    one = fixed(*LONG)
    run = start(SMALL, *LONG)
    run.members(0, 1, 2)
    run.until_step(50)
    run.members(reason="bob's run needs the slots")
    run.until(lambda: run.events("suspended") and run.holding == (), what="suspended")
    assert run.events("suspended")[0].reason == "bob's run needs the slots"
    at = run.step()
    assert run.events("suspended")[0].step == at
    run.members(5, 6)
    assert run.wait() == 0, run.tail()
    assert run.events("resumed")[0].step == at
    same(run, one)


def test_stop_ends_the_run_at_a_step_with_status_0(start):
    run = start(SMALL, "--epochs", "1000")
    run.members(0, 1)
    run.until_step(20)
    run.stop()
    assert run.wait() == 0, run.tail()
    end = run.events("finished")[-1]
    assert (end.outcome, end.step) == ("stopped", run.step())
    run.until(lambda: run.holding == (), what="no slot held")


def test_stop_before_any_slot_is_granted(start):
    run = start(SMALL)
    run.until(lambda: run.events("started"), what="started")
    run.stop()
    assert run.wait() == 0, run.tail()
    assert run.events("finished")[-1].outcome == "stopped"


def test_more_slots_than_engines_leave_the_surplus_unused(start):
    run = start(SMALL, "--engines", "2", max_slots=6)
    run.members(0, 1, 2, 3, 4)
    assert run.wait() == 0, run.tail()
    assert {len(g.members) for g in run.events("generation")} == {2}


def test_a_host_that_comes_back_is_told_who_holds_what(start):
    run = start(SMALL, "--epochs", "1000")
    run.members(0, 1)
    run.until(lambda: run.holding == (0, 1), what="holding")
    run.connection.close()
    run.holding = ()
    run.connect()
    run.until(lambda: run.holding == (0, 1), what="holding after the reconnection")
    run.stop()
    assert run.wait() == 0, run.tail()


def test_changes_in_a_row_that_overtake_each_other(start, fixed):
    one = fixed(*LONG)
    run = start(SMALL, *LONG)
    run.members(0, 1)
    run.until_step(10)
    for slots in ((0,), (0, 1, 2, 3), (2, 3), (1, 2), (0, 3), (3, 0, 1)):
        run.members(*slots)
        run.pump(0.01)
    run.until(lambda: run.holding == (0, 1, 3), what="the last of the wishes")
    assert run.wait() == 0, run.tail()
    same(run, one)


STEPPED = """
import os
def stepped(*_):
    with open(f"{os.environ['RESULT_DIR']}/stepped-{os.getpid()}", "a") as file:
        file.write(".")
optimizer.register_step_post_hook(stepped)
FabricModel("""


def test_who_leaves_takes_no_part_in_the_rest_of_its_last_step(start):
    """Nobody waits for it then, so the sums that it would read may be those of the next step."""
    run = start(SMALL.replace("FabricModel(", STEPPED[1:]), "--samples", "100000")
    run.members(0, 1)
    run.until_workers(2)
    run.until_step(20)
    leaves = run.workers[1]
    run.members(0)
    run.until_workers(1)
    run.until(lambda: 1 not in run.workers, what="it has left")
    first_without = run.events("generation")[-1].step
    assert len((run.result_dir / f"stepped-{leaves}").read_text()) == first_without - 2
    run.stop()
    assert run.wait() == 0, run.tail()
