"""The decisions of a node host: wanted and seen runs in, actions out. Pure, so every case is one call."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training_runtime.host.actions import Action, AskToStop, Decline, Forget, Kill, Start, TellMembers, Terminate
from training_runtime.host.reconcile import Phase, Rules, SeenRun, decide
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
    assert told == (TellMembers(7, (), "the studio is shutting down", suspend=True),)
    (alone,) = actions(wish(1), seen("alive", members=(), holding=()), shutdown_since=100)
    assert isinstance(alone, TellMembers), "its workers on other machines are to stop, too"


def test_shutting_down_waits_for_the_slots_and_not_longer_than_the_grace_period() -> None:
    observed = seen("alive", members=(), holding=(1,), suspended=True)
    assert decide(wish(1), observed, now=105, rules=RULES, shutdown_since=100).wake_at == 110
    (late,) = actions(wish(1), observed, now=110, shutdown_since=100)
    assert isinstance(late, Kill)
    assert late.interrupts
    (idle,) = actions(wish(1), seen("alive", members=(), suspended=True), now=101, shutdown_since=100)
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
