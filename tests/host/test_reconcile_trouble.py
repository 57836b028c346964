"""The decisions of a node host where something is wrong: a driver crashes or hangs, a slot is kept, nothing can be written."""

from __future__ import annotations

import dataclasses

import pytest

from tests.host.test_reconcile import RULES, actions, seen, slots, wish
from training_runtime.host.actions import AskToStop, Kill, KillDriver, KillWorkers, Start, TellMembers, Terminate
from training_runtime.host.reconcile import Decision, SeenRun, decide, goes_on


def test_workers_without_a_driver_may_write_down_their_state_before_they_are_killed() -> None:
    orphaned = seen("clearing", orphaned_at=90.0)
    assert decide(wish(1), orphaned, now=100.0, rules=RULES) == Decision((), 120.0)
    assert actions(wish(1), orphaned, now=120.0) == (Kill(7, "not all of its processes are gone yet"),)
    assert actions(None, orphaned, now=100.0) == ()
    assert actions(wish(1), seen("clearing", orphaned_at=90.0, killed_at=99.0)) == (Kill(7, "not all of its processes are gone yet"),)


def test_who_writes_its_state_has_its_time_from_the_last_byte_on() -> None:
    orphaned = seen("clearing", orphaned_at=90.0, wrote_at=130.0)
    assert decide(wish(1), orphaned, now=140.0, rules=RULES) == Decision((), 160.0)
    assert actions(wish(1), orphaned, now=160.0) == (Kill(7, "not all of its processes are gone yet"),)
    suspends = seen("alive", members=(), holding=(1,), wrote_at=125.0, suspended=True)
    assert decide(wish(1), suspends, now=130.0, rules=RULES, shutdown_since=100.0) == Decision((), 135.0)
    stops = seen("alive", members=slots(1), stop_asked_at=90.0, wrote_at=125.0)
    assert decide(wish(1), stops, now=130.0, rules=RULES) == Decision((), 135.0)


def test_a_state_that_is_written_for_ever_is_not_waited_for_for_ever() -> None:
    orphaned = seen("clearing", orphaned_at=90.0, wrote_at=2000.0)
    assert actions(wish(1), orphaned, now=90.0 + 900.0 + 30.0) == (Kill(7, "not all of its processes are gone yet"),)


def test_a_driver_that_is_stopped_by_a_signal_is_killed_alone_after_a_while() -> None:
    members = slots(1)
    assert decide(wish(1), seen("alive", members=members, stopped_at=95.0), now=100.0, rules=RULES) == Decision((), 115.0)
    assert actions(wish(1), seen("alive", members=members, stopped_at=95.0), now=115.0) == (
        KillDriver(7, "the driver was stopped for 20 s"),
    )


def test_a_crash_is_answered_at_once_and_the_next_ones_after_growing_pauses() -> None:
    assert isinstance(actions(wish(1), seen("ended", exit_code=-9, ended_at=100.0), now=100.0)[0], Start)
    pauses = []
    for restarts in (1, 2):
        waiting = decide(wish(1), seen("ended", exit_code=-9, ended_at=100.0, restarts=restarts), now=100.0, rules=RULES)
        assert (waiting.actions, waiting.wake_at is not None) == ((), True)
        pauses.append(waiting.wake_at - 100.0)  # type: ignore[operator]
    assert 0 < pauses[0] < pauses[1]


@pytest.mark.parametrize("remote", [False, True])
def test_one_that_may_crash_a_thousand_times_may(remote: bool) -> None:
    rules = dataclasses.replace(RULES, max_restarts=1000)
    crashed = seen("ended", exit_code=-9, ended_at=100.0, restarts=600, remote=remote)
    wanted = {7: dataclasses.replace(wish(1)[7], spec=dataclasses.replace(wish(1)[7].spec, remote=remote))}
    waiting = decide(wanted, crashed, now=100.0, rules=rules)
    assert waiting == Decision((), 100.0 + (rules.agent_longest_pause_s if remote else rules.restart_longest_pause_s))
    assert isinstance(decide(wanted, crashed, now=200.0, rules=rules).actions[0], Start)


def test_a_driver_that_has_run_for_long_begins_to_count_its_crashes_anew() -> None:
    often = seen("ended", exit_code=-9, attempt=9, restarts=3, ended_at=50.0, lived_s=600.0)
    assert goes_on(often[7], RULES)
    assert actions(wish(1), often) == (Start(7, 10, 1, "the driver was killed by SIGKILL; restart 1 of 3"),)
    assert not goes_on(dataclasses.replace(often[7], lived_s=599.0), RULES)


def test_a_driver_that_has_trained_for_a_while_begins_to_count_its_crashes_anew_too() -> None:
    often = seen("ended", exit_code=-9, attempt=9, restarts=3, ended_at=50.0, lived_s=10.0, got_on=True)
    assert actions(wish(1), often) == (Start(7, 10, 1, "the driver was killed by SIGKILL; restart 1 of 3"),)
    for too_little in ({"got_on": False}, {"lived_s": 9.9}):
        assert not goes_on(dataclasses.replace(often[7], **too_little), RULES)  # type: ignore[arg-type]


def test_a_driver_that_found_its_disk_full_is_started_again_for_ever_and_less_and_less_often() -> None:
    pauses = []
    for losses in range(20):
        facts = seen("ended", exit_code=75, attempt=5, restarts=3, losses=min(losses, 16), ended_at=100.0)
        assert goes_on(facts[7], RULES)
        pauses.append(decide(wish(1), facts, now=100.0, rules=RULES).wake_at - 100.0)  # type: ignore[operator]
        (start,) = actions(wish(1), facts, now=100.0 + pauses[-1])
        assert (start.attempt, start.restarts, start.losses) == (6, 3, min(losses + 1, 16))  # type: ignore[union-attr]
    assert pauses == sorted(pauses)
    assert pauses[-1] == RULES.restart_longest_pause_s
    stopped = dataclasses.replace(facts[7], stop_asked_at=90.0)
    assert not goes_on(stopped, RULES), "alice stopped it meanwhile"


FULL = "The disk is full."


def test_what_runs_is_suspended_where_nothing_can_be_written_and_goes_on_when_it_can() -> None:
    running = seen("alive", members=slots(1), holding=(1,))
    assert decide(wish(1), running, now=1, rules=RULES, storage=FULL).actions == (TellMembers(7, (), FULL),)
    suspended = seen("alive", members=())
    assert decide(wish(1), suspended, now=1, rules=RULES, storage=FULL).actions == ()
    assert decide(wish(1), suspended, now=1, rules=RULES).actions == (TellMembers(7, slots(1), "alice asked"),)


@pytest.mark.parametrize(
    "facts", [{}, seen("ended", exit_code=-9), seen("ended", exit_code=75), seen("ended", exit_code=-9, interrupted=True)]
)
def test_nothing_begins_where_nothing_can_be_written(facts: dict[int, SeenRun]) -> None:
    assert decide(wish(1), facts, now=100, rules=RULES, storage=FULL).actions == ()
    assert isinstance(decide(wish(1), facts, now=100, rules=RULES).actions[0], Start)


def test_a_run_can_be_stopped_where_nothing_can_be_written() -> None:
    asked = decide(wish(1, stop=True), seen("alive", members=(), holding=(1,)), now=1, rules=RULES, storage=FULL).actions
    assert [type(action) for action in asked] == [AskToStop]


def test_a_slot_that_is_not_given_back_costs_its_worker_and_then_the_driver() -> None:
    late = seen("alive", members=slots(1), holding=(1, 2), overdue_since=100.0)
    assert decide(wish(1), late, now=101, rules=RULES) == Decision((), 130.0)
    assert [type(action) for action in actions(wish(1), late, now=130.0)] == [KillWorkers]
    evicted = seen("alive", members=slots(1), holding=(1, 2), overdue_since=100.0, evicted_at=130.0)
    assert decide(wish(1), evicted, now=131, rules=RULES) == Decision((), 160.0)
    (last,) = actions(wish(1), evicted, now=160.0)
    assert isinstance(last, KillDriver)
    assert last.interrupts, "for no crash of its own"


def test_a_run_with_a_time_of_its_own_for_leaving_slots_has_that() -> None:
    late = seen("alive", members=slots(1), holding=(1, 2), overdue_since=100.0, release_grace_s=5.0)
    assert decide(wish(1), late, now=101, rules=RULES) == Decision((), 105.0)
    assert actions(wish(1), late, now=105.0) == (KillWorkers(7, "a slot that was asked back was still in use after 5 s"),)


def test_a_driver_that_is_on_its_slots_itself_is_told_to_end_and_begins_again() -> None:
    """No worker can be taken from it: nobody but the script knows what it has computed."""
    late = seen("alive", members=(), holding=(1, 2), overdue_since=100.0, in_driver=True)
    (told,) = actions(wish(), late, now=100.0)
    assert (type(told), told.interrupts) == (Terminate, True)
    swapped = seen("alive", members=slots(1, 3), holding=(1, 2, 3), overdue_since=100.0, in_driver=True)
    assert [type(action) for action in actions(wish(1, 3), swapped, now=100.0)] == [Terminate], "it cannot leave one of them"
    deaf = seen("alive", members=slots(1, 3), holding=(1, 2, 3), overdue_since=100.0, in_driver=True, terminated_at=100.0)
    assert decide(wish(1, 3), deaf, now=101.0, rules=RULES) == Decision((), 130.0)
    (killed,) = actions(wish(1, 3), deaf, now=130.0)
    assert (type(killed), killed.interrupts) == (KillDriver, True)
    ended = seen("ended", exit_code=-15, interrupted=True)
    assert [type(action) for action in actions(wish(), ended, now=131.0)] == [Start]
    leaving = seen("alive", members=(), holding=(1,), in_driver=True, suspended=True)
    assert [type(action) for action in actions(wish(1), leaving, now=100.0, shutdown_since=100.0)] == [Terminate]


def test_workers_of_a_run_that_does_not_suspend_may_write_down_their_state() -> None:
    late = seen("alive", members=(), holding=(1,), overdue_since=100.0)
    assert [type(action) for action in actions(wish(), late, now=130.0)] == [KillDriver]
    full = decide(wish(), late, now=1000.0, rules=RULES, storage=FULL)
    assert full == Decision((), None), "where they cannot be written they must not be lost"


def test_a_run_whose_folder_is_gone_is_ended_and_not_started_again() -> None:
    assert [type(a) for a in actions(wish(1), seen("alive", members=slots(1), doomed="its folder was moved"))] == [Kill]
    assert actions(wish(1), seen("ended", exit_code=-9, doomed="its folder was moved")) == ()


@pytest.mark.parametrize(
    "facts",
    [
        {"members": slots(1), "storage": FULL},
        {"stop_asked_at": 99.0, "wrote_at": 100.0},  # it writes state, which is waited for otherwise
        {"phase": "clearing", "orphaned_at": 99.0, "wrote_at": 100.0},
        {"members": slots(1), "holding": (1,), "shutdown_since": 99.0},
    ],
)
def test_a_run_that_takes_too_much_of_the_disk_is_given_no_time_to_take_more(facts: dict) -> None:
    known = {name: value for name, value in facts.items() if name not in ("phase", "storage", "shutdown_since")}
    for doomed in ("", "it takes too much of the disk"):
        decision = decide(
            wish(1),
            seen(facts.get("phase", "alive"), doomed=doomed, **known),
            now=100.0,
            rules=RULES,
            storage=facts.get("storage", ""),
            shutdown_since=facts.get("shutdown_since"),
        )
        assert any(isinstance(action, Kill) for action in decision.actions) is bool(doomed), decision
