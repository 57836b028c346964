"""The decisions of a node host: wanted and seen runs in, actions out. Pure, so every case is one call."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training_runtime.host.actions import Action, AskToStop, Decline, Forget, Kill, KillDriver, KillWorkers, Start, TellMembers, Terminate
from training_runtime.host.reconcile import Decision, Phase, Rules, SeenRun, decide, goes_on
from training_runtime.host.runs.live import holding
from training_runtime.protocol import RunSpec, SlotRef, WantedRun

RULES = Rules(stop_grace_s=10, term_grace_s=2, kill_again_s=0.5, max_restarts=3)


def slots(*ids: int) -> tuple[SlotRef, ...]:
    return tuple(SlotRef(i, "here", i, "cpu") for i in ids)


def wish(*ids: int, run: int = 7, stop: bool = False, attempt: int = 1) -> dict[int, WantedRun]:
    spec = RunSpec(run, "x", "alice", ("main.py",), "/code", "/result", "/data", 4, attempt=attempt)
    return {run: WantedRun(spec, slots(*ids), "alice asked", stop)}


def seen(phase: Phase, run: int = 7, **facts: object) -> dict[int, SeenRun]:
    return {run: SeenRun(run=run, attempt=facts.pop("attempt", 1), phase=phase, **facts)}  # type: ignore[arg-type]


def actions(wanted: dict | None, observed: dict, now: float = 100.0, shutdown_since: float | None = None) -> tuple[Action, ...]:
    return decide(wanted, observed, now=now, rules=RULES, shutdown_since=shutdown_since).actions


def test_a_wanted_run_that_is_not_there_is_started_even_without_slots() -> None:
    assert actions(wish(), {}) == (Start(7, 1, 0, "alice asked"),)


def test_a_run_that_is_being_launched_is_left_alone() -> None:
    assert actions(wish(1), seen("launching")) == ()


def test_a_run_is_told_its_slots_when_they_differ_from_those_it_was_told() -> None:
    assert actions(wish(1, 2), seen("alive")) == (TellMembers(7, slots(1, 2), "alice asked"),)
    assert actions(wish(1, 2), seen("alive", members=slots(1))) == (TellMembers(7, slots(1, 2), "alice asked"),)
    assert actions(wish(1, 2), seen("alive", members=slots(1, 2))) == ()
    assert actions(wish(), seen("alive", members=slots(1))) == (TellMembers(7, (), "alice asked"),)


def test_a_run_that_cannot_be_reached_now_is_not_told() -> None:
    assert actions(wish(1), seen("alive", connected=False)) == ()


@pytest.mark.parametrize("wanted", [wish(1, stop=True), {}])
def test_stopping_asks_then_terminates_then_kills(wanted: dict) -> None:
    alive = seen("alive", members=slots(1), holding=(1,))
    (asked,) = actions(wanted, alive)
    assert isinstance(asked, AskToStop)
    waiting = decide(wanted, seen("alive", stop_asked_at=100.0), now=105, rules=RULES)
    assert (waiting.actions, waiting.wake_at) == ((), 110.0)
    assert actions(wanted, seen("alive", stop_asked_at=100.0), now=110) == (Terminate(7, "it did not stop within 10 s"),)
    waiting = decide(wanted, seen("alive", stop_asked_at=100.0, terminated_at=110.0), now=111, rules=RULES)
    assert (waiting.actions, waiting.wake_at) == ((), 112.0)
    (killed,) = actions(wanted, seen("alive", stop_asked_at=100.0, terminated_at=110.0), now=112)
    assert killed == Kill(7, "SIGTERM did not end it within 2 s")


def test_killing_is_repeated_until_nothing_is_left() -> None:
    facts = {"stop_asked_at": 100.0, "terminated_at": 110.0, "killed_at": 112.0}
    assert decide({}, seen("alive", **facts), now=112.1, rules=RULES).wake_at == 112.5
    assert isinstance(actions({}, seen("alive", **facts), now=112.5)[0], Kill)
    assert isinstance(actions({}, seen("clearing", **facts), now=112.5)[0], Kill)


def test_what_a_dead_driver_left_behind_is_killed_at_once_and_before_anything_is_started() -> None:
    assert [type(action) for action in actions(wish(1), seen("clearing", exit_code=-9))] == [Kill]
    assert [type(action) for action in actions(None, seen("clearing", exit_code=-9))] == [Kill]


def test_a_crash_is_followed_by_the_next_attempt_a_limited_number_of_times() -> None:
    (start,) = actions(wish(1), seen("ended", exit_code=-11, attempt=2, restarts=1))
    assert start == Start(7, 3, 2, "the driver was killed by SIGSEGV; restart 2 of 3")
    assert actions(wish(1), seen("ended", exit_code=-11, attempt=4, restarts=3)) == ()


@pytest.mark.parametrize("code", [0, 1, 137])
def test_a_driver_that_ended_by_itself_is_not_restarted(code: int) -> None:
    assert actions(wish(1), seen("ended", exit_code=code)) == ()


def test_a_driver_killed_on_request_is_not_restarted() -> None:
    assert actions(wish(1), seen("ended", exit_code=-9, stop_asked_at=1.0)) == ()


def test_an_ended_run_is_started_again_only_for_a_later_attempt() -> None:
    assert actions(wish(1, attempt=1), seen("ended", exit_code=1)) == ()
    assert actions(wish(1, attempt=2), seen("ended", exit_code=1)) == (Start(7, 2, 0, "alice asked"),)


def test_an_interrupted_run_goes_on_without_counting_as_a_crash() -> None:
    (start,) = actions(wish(1), seen("ended", exit_code=-9, interrupted=True, attempt=5, restarts=3))
    assert (start.attempt, start.restarts) == (6, 3)


def test_a_run_that_was_to_be_stopped_before_it_was_there_is_declined() -> None:
    assert actions(wish(stop=True), {}) == (Decline(7, 1, "alice asked"),)


def test_an_ended_run_is_forgotten_once_the_studio_no_longer_lists_it() -> None:
    assert [type(a) for a in actions({}, seen("ended", exit_code=0))] == [Forget]
    assert actions(wish(1, stop=True), seen("ended", exit_code=0)) == ()


def test_a_suspended_run_that_is_no_longer_listed_is_ended_at_once_for_it_may_go_on_elsewhere() -> None:
    (kill,) = actions({}, seen("alive", members=()))
    assert isinstance(kill, Kill)
    assert kill.interrupts
    assert actions({}, seen("alive", members=(), killed_at=4.9), now=5.0) == (), "it takes a moment"
    assert [type(a) for a in actions({}, seen("alive", members=slots(1), holding=(1,)))] == [AskToStop]


@pytest.mark.parametrize("phase", ["launching", "alive", "ended"])
def test_nothing_is_decided_before_the_studio_has_spoken(phase: Phase) -> None:
    assert actions(None, seen(phase, exit_code=-9 if phase == "ended" else None)) == ()


def test_a_run_that_is_no_longer_wanted_while_it_is_launched_never_runs_user_code() -> None:
    assert [type(a) for a in actions({}, seen("launching"))] == [Kill]


def test_shutting_down_suspends_first() -> None:
    told = actions(wish(1), seen("alive", members=slots(1), holding=(1,)), shutdown_since=100)
    assert told == (TellMembers(7, (), "the studio is shutting down"),)


def test_shutting_down_waits_for_the_slots_and_not_longer_than_the_grace_period() -> None:
    observed = seen("alive", members=(), holding=(1,))
    assert decide(wish(1), observed, now=105, rules=RULES, shutdown_since=100).wake_at == 110
    (late,) = actions(wish(1), observed, now=110, shutdown_since=100)
    assert isinstance(late, Kill)
    assert late.interrupts
    (idle,) = actions(wish(1), seen("alive", members=()), now=101, shutdown_since=100)
    assert isinstance(idle, Kill)
    assert idle.interrupts


def test_shutting_down_starts_nothing() -> None:
    assert actions(wish(1), {}, shutdown_since=100) == ()
    assert actions(wish(1), seen("ended", exit_code=-9), shutdown_since=100) == ()


def test_a_slot_is_held_from_when_it_is_told_until_its_return_is_taken_in_and_its_process_gone() -> None:
    assert holding("alive", [(3, (1, 2)), (4, (1,))], [5]) == (1, 2, 5)
    assert holding("clearing", [(4, (1,))], []) == (1,)
    assert holding("ended", [(4, (1,))], [5]) == ()


PHASES = st.sampled_from(["launching", "alive", "clearing", "ended"])
TIMES = st.none() | st.floats(0, 200)
SEEN = st.builds(
    SeenRun,
    run=st.integers(1, 4),
    attempt=st.integers(1, 5),
    phase=PHASES,
    members=st.none() | st.sampled_from([(), slots(1), slots(1, 2)]),
    holding=st.sampled_from([(), (1,)]),
    stop_asked_at=TIMES,
    terminated_at=TIMES,
    killed_at=TIMES,
    exit_code=st.none() | st.integers(-15, 2),
    restarts=st.integers(0, 3),
    interrupted=st.booleans(),
    connected=st.booleans(),
    overdue_since=TIMES,
    evicted_at=TIMES,
    doomed=st.sampled_from(("", "its folder was moved or deleted")),
    lived_s=st.sampled_from([0.0, 20.0, 1000.0]),
    got_on=st.booleans(),
    in_driver=st.booleans(),
)
WISHES = st.dictionaries(st.integers(1, 4), st.tuples(st.sampled_from([(), (1,), (1, 2)]), st.booleans(), st.integers(1, 6)), max_size=4)


@given(SEEN, WISHES, st.floats(0, 300), TIMES)
def test_a_run_gets_one_action_at_most_and_never_a_start_while_anything_of_it_is_left(
    facts: SeenRun, raw: dict[int, tuple[tuple[int, ...], bool, int]], now: float, shutdown_since: float | None
) -> None:
    wanted = {run: wish(*ids, run=run, stop=stop, attempt=attempt)[run] for run, (ids, stop, attempt) in raw.items()}
    decided = actions(wanted, {facts.run: facts}, now=now, shutdown_since=shutdown_since)
    assert len({action.run for action in decided}) == len(decided)
    for action in decided:
        if isinstance(action, Start) and action.run == facts.run:
            assert facts.phase == "ended"
            assert action.attempt > facts.attempt
            assert not wanted[facts.run].stop
        if isinstance(action, (TellMembers, AskToStop, Terminate)):
            assert facts.phase == "alive"
        if isinstance(action, Forget):
            assert facts.phase == "ended"
        assert action.reason or isinstance(action, Kill)


@given(SEEN, st.floats(0, 300))
def test_a_run_that_is_not_wanted_always_comes_to_its_end(facts: SeenRun, now: float) -> None:
    """Whatever its state, following the decisions alone leads to SIGKILL and then to being forgotten."""
    for _ in range(10):
        decision = decide({}, {facts.run: facts}, now=now, rules=RULES)
        if not decision.actions:
            assert decision.wake_at is not None
            now = max(now, decision.wake_at)
            continue
        (action,) = decision.actions
        if isinstance(action, Forget):
            return
        if isinstance(action, AskToStop):
            facts = dataclasses.replace(facts, stop_asked_at=now)
        elif isinstance(action, Terminate):
            facts = dataclasses.replace(facts, terminated_at=now)
        elif isinstance(action, Kill):
            facts = dataclasses.replace(facts, killed_at=now, phase="ended", exit_code=-9)
    raise AssertionError(f"still {facts}")


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
    suspends = seen("alive", members=(), holding=(1,), wrote_at=125.0)
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
    leaving = seen("alive", members=(), holding=(1,), in_driver=True)
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
