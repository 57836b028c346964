"""Deaths and hangs in every phase of a step, of a change and of an epoch's end: nothing is lost, nothing differs."""

from __future__ import annotations

import json
import signal

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.engine.faults import FAULTS, PHASES
from tests.engine.scripts import HELD, SMALL
from training_runtime.elastic.driver.hang_rules import BarrierWatchdog, Sign, TimeoutWatchdog, deadline_s

LONG = ("--epochs", "12", "--samples", "115")  # 8 steps an epoch, 96 in all
SCRIPT = FAULTS + SMALL


def play(start, faults, schedule=((0, (0, 1, 2)),), **env):
    """Run with `faults`, granting the slots of `schedule` at its steps; the run when it has ended."""
    run = start(SCRIPT, *LONG, env={"FAULTS": json.dumps(faults), **env})
    for step, slots in schedule:
        run.until_step(step)
        run.members(*slots)
    assert run.wait() == 0, run.tail()
    return run


def same(run, one) -> None:
    assert run.train_lines() == one.train_lines()
    assert run.test_lines() == one.test_lines()
    assert run.weights() == one.weights()


WHERE = {  # phase -> step, rank (-1: whoever comes there)
    "forward": (8, 0),
    "backward": (20, 1),
    "exchange": (35, 0),
    "summed": (50, 1),
    "optimizer": (10, 0),
    "committed": (23, 0),
    "validation": (38, 1),
    "tested": (46, 1),
    "checkpoint": (53, 0),
    "saving": (61, 0),
    "handing over": (2, 0),
    "taking over": (1, -1),  # a newcomer has done no step
    "entered": (30, 0),
}


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize("phases", [PHASES[:4], PHASES[4:8], PHASES[8:]])
def test_a_death_in_each_phase_changes_nothing(start, fixed, phases):
    faults = [{"phase": phase, "step": WHERE[phase][0], "rank": WHERE[phase][1]} for phase in phases]
    run = play(start, faults, ((0, (0, 1)), (5, (0, 1, 2)), (20, (0, 1, 2, 3)), (40, (1, 3))))
    happened = [f["phase"] for i, f in enumerate(faults) if (run.result_dir / f"fault-{i}").exists()]
    assert happened == list(phases)
    assert all(g.redone <= 1 for g in run.events("generation"))
    same(run, fixed(*LONG))


def test_a_death_over_the_record_of_a_step_after_which_all_were_to_leave_costs_nothing(start, fixed):
    """Who is left records the step for it, and has come to a generation without members before it heard of that death."""
    run = start(FAULTS + HELD, *LONG, env={"FAULTS": json.dumps([{"phase": "committed", "step": 26, "rank": 0}])})
    stay = run.result_dir / "stay-3"
    stay.touch()
    run.members(0, 1)
    run.until_step(24)
    run.members()
    run.until(lambda: run.settled == run.revision, what="the driver knows that all are to leave")
    stay.unlink()
    run.until(lambda: run.events("suspended"), what="suspended")
    run.members(0, 1)
    assert run.wait() == 0, run.tail()
    assert (run.result_dir / "fault-0").exists()
    assert run.events("train")[24].workers == 2
    same(run, fixed(*LONG))


def test_all_workers_die_in_a_validation_and_go_on_before_the_one_that_came_before(start, fixed):
    run = play(start, [{"phase": "tested", "step": 52, "rank": rank} for rank in (0, 1)], ((0, (0, 1)),))
    assert len(run.events("resumed")) == 1
    same(run, fixed(*LONG))


@pytest.mark.parametrize("phase", ["forward", "validation", "saving"])  # the last one may take long, but not while it is stopped
def test_a_worker_that_hangs_is_found_and_its_death_answered(start, fixed, phase):
    faults = [{"phase": phase, "step": 30, "rank": 0, "signal": "SIGSTOP"}]
    run = play(start, faults, EDT_HANG_TIMEOUT="0.7")
    assert any("showed no progress" in w.message for w in run.events("warning"))
    same(run, fixed(*LONG))


def test_workers_of_several_slots_stopped_from_outside(start, fixed):
    run = start(SCRIPT, *LONG, env={"EDT_HANG_TIMEOUT": "0.7"})
    run.members(0, 1, 2)
    run.until_step(20)
    run.kill(0, signal.SIGSTOP)
    run.kill(2, signal.SIGSTOP)
    assert run.wait() == 0, run.tail()
    same(run, fixed(*LONG))


slots = st.lists(st.integers(0, 4), min_size=1, max_size=4, unique=True).map(tuple)
schedules = st.lists(st.tuples(st.integers(1, 80), slots), max_size=4).map(sorted)
faults = st.lists(
    st.fixed_dictionaries({"phase": st.sampled_from(PHASES), "step": st.integers(1, 90), "rank": st.integers(0, 3)}), max_size=3
)


@pytest.mark.usefixtures("either_way")
@settings(
    max_examples=4,
    deadline=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.data())
def test_any_schedule_of_slots_and_deaths_gives_the_same_weights(start, fixed, data):
    first, schedule, killed = data.draw(slots), data.draw(schedules), data.draw(faults)
    same(play(start, killed, [(0, first), *schedule]), fixed(*LONG))


def test_every_sample_is_used_once_an_epoch_by_the_ledger(start):
    faults = [{"phase": "exchange", "step": 20, "rank": 1}, {"phase": "optimizer", "step": 40, "rank": 0}]
    run = play(start, faults, ((0, (0, 1)), (10, (0, 1, 2)), (50, (2,))), EDT_LEDGER="1")
    from training_runtime.elastic.worker.ledger import replay

    found = replay(run.result_dir)
    assert found.problems == ()
    assert (found.epochs, found.steps, found.samples) == (12, 96, 115)


def signs(**phases: int) -> dict[int, Sign]:
    return {i: Sign(phase, 0) for i, phase in enumerate(phases.values())}


def test_who_waits_does_not_hang_and_who_is_waited_for_does():
    watchdog = BarrierWatchdog()
    assert watchdog.hung(0, signs(a=5, b=4), 2) == ()
    assert watchdog.hung(1.9, signs(a=5, b=4), 2) == ()
    assert watchdog.hung(2.1, signs(a=5, b=4), 2) == (1,)


def test_a_long_wait_for_a_slow_peer_is_not_held_against_the_one_who_waited():
    watchdog = BarrierWatchdog()
    watchdog.hung(0, signs(a=5, b=4), 2)
    watchdog.hung(1.9, signs(a=5, b=5), 2)
    assert watchdog.hung(3.0, signs(a=5, b=6), 2) == ()
    assert watchdog.hung(4.0, signs(a=5, b=6), 2) == (0,)


def test_who_writes_a_checkpoint_is_given_time():
    watchdog = BarrierWatchdog()
    writing = {0: Sign(5, 0, excused=True), 1: Sign(6, 0)}
    watchdog.hung(0, writing, 2)
    assert watchdog.hung(100, writing, 2) == ()


def test_the_deadline_follows_the_steps_unless_it_is_set():
    assert deadline_s([], None) == 300
    assert deadline_s([0.1, 0.2], None) == 60
    assert deadline_s([1.0, 4.0], None) == 80
    assert deadline_s([1.0], 0.5) == 0.5


def test_who_is_alone_has_its_own_time_which_a_new_sign_begins_anew():
    watchdog = TimeoutWatchdog()
    assert watchdog.expired(0, {3: ("starting", 5), 4: ("stopped", 1)}) == ()
    assert watchdog.expired(2, {3: ("starting", 5), 4: ("stopped", 1)}) == (4,)
    assert watchdog.expired(2.5, {3: ("ready", 5), 4: ("stopped", 1)}) == ()
    assert watchdog.expired(6, {3: ("ready", 5)}) == ()
    assert watchdog.expired(8, {3: ("ready", 5)}) == (3,)
