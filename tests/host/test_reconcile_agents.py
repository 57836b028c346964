"""The decisions of a node host about remote agents: those of runs whose driver is on another machine. Pure, so every case is one call."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.host.test_reconcile import RULES, SEEN, actions, slots
from training_runtime.host.actions import Action, AskToStop, Decline, Forget, Kill, Start, TellMembers
from training_runtime.host.reconcile import LOST, SeenRun, decide, goes_on, has_given_up
from training_runtime.protocol import RunSpec, WantedRun

HERE = "the run's slots here"


def wish(*ids: int, stop: bool = False, attempt: int = 1, remote: bool = True) -> dict[int, WantedRun]:
    spec = RunSpec(7, "x", "alice", ("main.py",), "/code", "/result", "/data", 4, attempt=attempt, remote=remote)
    return {7: WantedRun(spec, slots(*ids), HERE, stop)}


def agent(phase: str, **facts: object) -> dict[int, SeenRun]:
    return {7: SeenRun(**{"run": 7, "attempt": 1, "phase": phase, "remote": True, **facts})}  # type: ignore[arg-type]


def ended(code: int, **facts: object) -> dict[int, SeenRun]:
    return agent("ended", exit_code=code, ended_at=100.0, **facts)


def test_a_remote_agent_is_started_for_slots_and_not_without() -> None:
    assert actions(wish(1), {}) == (Start(7, 1, 0, HERE),)
    assert actions(wish(), {}) == ()
    assert actions(wish(1, stop=True), {}) == ()


def test_a_remote_agent_is_told_this_machines_slots() -> None:
    assert actions(wish(1, 2), agent("alive", members=slots(1))) == (TellMembers(7, slots(1, 2), HERE),)
    assert actions(wish(), agent("alive", members=slots(1))) == (TellMembers(7, (), HERE),)


@pytest.mark.parametrize("holding", [(), (1,)])
def test_a_remote_agent_that_is_no_longer_listed_is_asked_to_stop(holding: tuple[int, ...]) -> None:
    """Also without slots, when a driver would be killed: it has somebody to say goodbye to."""
    assert [type(action) for action in actions({}, agent("alive", members=(), holding=holding))] == [AskToStop]


@pytest.mark.parametrize(("losses", "pause_s"), [(0, 0.5), (1, 1.0), (2, 2.0), (4, 8.0), (16, 8.0)])
def test_a_remote_agent_that_has_lost_its_driver_comes_again_after_a_growing_pause(losses: int, pause_s: float) -> None:
    lost = ended(LOST, losses=losses, restarts=2)
    assert decide(wish(1), lost, now=100.0, rules=RULES).wake_at == 100.0 + pause_s
    (start,) = actions(wish(1), lost, now=100.0 + pause_s)
    assert isinstance(start, Start)
    assert (start.attempt, start.restarts, start.losses) == (1, 2, min(losses + 1, 16))


@pytest.mark.parametrize(("restarts", "pause_s"), [(0, 2.0), (1, 8.0), (2, 8.0)])
@pytest.mark.parametrize("code", [1, 137, -9])
def test_a_remote_agent_that_fails_comes_again_a_few_times_after_longer_pauses(code: int, restarts: int, pause_s: float) -> None:
    failed = ended(code, restarts=restarts)
    assert decide(wish(1), failed, now=100.0, rules=RULES).wake_at == 100.0 + pause_s
    (start,) = actions(wish(1), failed, now=100.0 + pause_s)
    assert isinstance(start, Start)
    assert (start.restarts, start.losses) == (restarts + 1, 0)


def test_a_remote_agent_that_failed_too_often_is_left_until_the_run_begins_anew() -> None:
    left = ended(1, restarts=3)
    assert has_given_up(left[7], RULES)
    assert not goes_on(left[7], RULES)
    assert decide(wish(1), left, now=1e6, rules=RULES) == decide({}, {}, now=0, rules=RULES)
    assert actions(wish(1, attempt=2), left) == (Start(7, 2, 0, HERE),)
    assert [type(action) for action in actions({}, left)] == [Forget]


def test_a_remote_agent_that_worked_for_long_before_it_failed_counts_from_the_beginning() -> None:
    worked = ended(1, restarts=3, losses=9, lived_s=3600.0)
    assert not has_given_up(worked[7], RULES)
    (start,) = actions(wish(1), worked, now=102.0)
    assert isinstance(start, Start)
    assert (start.restarts, start.losses) == (1, 0)


def test_a_remote_agent_whose_training_is_over_is_not_hurried_back() -> None:
    assert decide(wish(1), ended(0), now=100.0, rules=RULES).wake_at == 108.0
    assert actions(wish(), ended(0), now=200.0) == ()


@pytest.mark.parametrize("facts", [{"interrupted": True}, {"stop_asked_at": 90.0}])
def test_a_remote_agent_that_was_ended_from_here_comes_again_at_once_when_it_is_wanted_again(facts: dict[str, object]) -> None:
    (start,) = actions(wish(1), ended(-9, restarts=3, **facts), now=100.0)
    assert isinstance(start, Start)
    assert start.restarts == 3


@pytest.mark.parametrize("code", [0, LOST, 1, -9])
def test_no_remote_agent_comes_back_for_nothing(code: int) -> None:
    assert actions(wish(), ended(code), now=1e6) == ()


def test_the_driver_begins_only_when_the_remote_agent_is_gone() -> None:
    driver = wish(1, attempt=2, remote=False)
    assert [type(action) for action in actions(driver, agent("alive", members=slots(1), holding=(1,)))] == [AskToStop]
    assert [type(action) for action in actions(driver, agent("clearing", exit_code=0))] == [Kill]
    assert [type(action) for action in actions(driver, ended(0))] == [Forget]
    assert actions(driver, {}) == (Start(7, 2, 0, HERE),)
    assert actions(wish(stop=True, remote=False), {}) == (Decline(7, 1, HERE),)


def test_a_remote_agent_begins_only_when_the_driver_is_gone() -> None:
    alive = {7: SeenRun(7, 1, "alive", members=slots(1), holding=(1,))}
    assert [type(action) for action in actions(wish(1), alive)] == [AskToStop]
    (kill,) = actions(wish(1), {7: SeenRun(7, 1, "alive", members=())})
    assert isinstance(kill, Kill)
    assert [type(action) for action in actions(wish(1), {7: SeenRun(7, 1, "ended", exit_code=1)})] == [Forget]


AGENTS = st.builds(
    lambda facts, remote, losses, ended_at, lived_s, code: dataclasses.replace(
        facts, run=7, remote=remote, losses=losses, ended_at=ended_at, lived_s=lived_s, exit_code=code
    ),
    SEEN,
    st.booleans(),
    st.integers(0, 16),
    st.floats(0, 200),
    st.floats(0, 100),
    st.sampled_from([None, 0, 1, LOST, -9]),
)
WISHES = st.builds(
    lambda ids, stop, attempt, remote: wish(*ids, stop=stop, attempt=attempt, remote=remote),
    st.sampled_from([(), (1,), (1, 2)]),
    st.booleans(),
    st.integers(1, 6),
    st.booleans(),
)


def carried_out(action: Action, facts: SeenRun, wanted: WantedRun | None, now: float) -> SeenRun | None:
    """The facts after a host has done it and everything has obeyed."""
    if isinstance(action, Forget):
        return None
    if isinstance(action, TellMembers):
        return dataclasses.replace(facts, members=action.slots, holding=tuple(slot.id for slot in action.slots))
    if isinstance(action, AskToStop):
        return dataclasses.replace(facts, stop_asked_at=now, phase="ended", exit_code=0, holding=(), ended_at=now)
    if isinstance(action, Start):
        assert wanted is not None
        return SeenRun(7, action.attempt, "alive", remote=wanted.spec.remote, restarts=action.restarts, losses=action.losses)
    return dataclasses.replace(facts, killed_at=now, terminated_at=now, phase="ended", exit_code=-9, holding=(), ended_at=now)


@given(AGENTS, WISHES, st.floats(0, 300))
def test_two_roles_of_a_run_are_never_on_one_machine_and_what_is_wanted_comes_about(
    facts: SeenRun, wanted: dict[int, WantedRun], now: float
) -> None:
    seen: SeenRun | None = facts
    for _ in range(12):
        decision = decide(wanted, {7: seen} if seen is not None else {}, now=now, rules=RULES)
        if not decision.actions:
            if decision.wake_at is None:
                break
            now = max(now, decision.wake_at)
            continue
        (action,) = decision.actions
        if isinstance(action, Start):
            assert seen is None or (seen.phase == "ended" and seen.remote == wanted[7].spec.remote)
        if isinstance(action, Decline):
            return
        seen = SeenRun(7, 1, "alive") if seen is None and not isinstance(action, Start) else seen
        seen = carried_out(action, seen or SeenRun(7, 0, "ended"), wanted[7], now)
    else:
        raise AssertionError(f"it does not come to rest: {seen}")
    if seen is not None:
        assert seen.remote == wanted[7].spec.remote
        if seen.phase == "alive" and seen.connected and not wanted[7].stop:
            assert seen.members == wanted[7].slots


@given(AGENTS, st.floats(0, 300))
def test_a_remote_agent_that_is_not_wanted_comes_to_its_end_and_is_never_started(facts: SeenRun, now: float) -> None:
    seen: SeenRun | None = facts
    for _ in range(12):
        decision = decide({}, {7: seen} if seen is not None else {}, now=now, rules=RULES)
        assert not any(isinstance(action, (Start, TellMembers)) for action in decision.actions)
        if seen is None:
            return
        if not decision.actions:
            assert decision.wake_at is not None
            now = max(now, decision.wake_at)
            continue
        seen = carried_out(decision.actions[0], seen, None, now)
    raise AssertionError(f"still {seen}")
