"""How many pilots are held of an engine that lends machines: cases, and what always holds."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training_runtime.scheduling.capacity import (
    LONGEST_PAUSE_S,
    SETTLED_S,
    Decision,
    Need,
    Phase,
    Pilot,
    Policy,
    Shape,
    Trouble,
    decide,
    needed,
    pause_s,
)
from training_runtime.scheduling.facts import Rules, RunFacts, SlotFacts

NOW = 10_000.0
POLICY = Policy(least=0, most=4, idle_s=600, notice_s=120)
HERE = [SlotFacts(1, "local", "cpu"), SlotFacts(2, "local", "cpu")]


def run(number: int, *, least: int = 1, most: int = 1, held: frozenset[int] = frozenset(), **more: object) -> RunFacts:
    facts = RunFacts(number, f"run {number}", "alice", "1", float(number), min_slots=least, max_slots=most, held=held)
    return dataclasses.replace(facts, **{"node": "local" if held else None, **more})  # type: ignore[arg-type]


def pilot(name: str, phase: Phase = "here", **more: object) -> Pilot:
    return dataclasses.replace(Pilot(name, phase), **more)  # type: ignore[arg-type]


NEEDED: dict[str, tuple[list[RunFacts], dict[str, object], Need]] = {
    "nobody waits": ([], {}, Need()),
    "what waits has room here": ([run(1), run(2)], {}, Need()),
    "one more than there is room for": ([run(1), run(2), run(3)], {}, Need(1, ("run 3",))),
    "as many as runs": ([run(number) for number in range(1, 8)], {}, Need(3, ("run 3", "run 4", "run 5", "run 6", "run 7"))),
    "at most so many": ([run(number) for number in range(1, 30)], {"most": 2}, Need(2, ("run 3", "run 4", "run 5", "run 6"))),
    "a run larger than a pilot": ([run(1, least=3, most=3)], {}, Need()),
    "a run of another device": ([run(1, device="gpu")], {}, Need()),
    "a run that is paused": ([run(1), run(2), run(3, paused=True)], {}, Need()),
    "a run that could grow": ([run(1, most=4, held=frozenset({1, 2}))], {}, Need()),
    "a run that could grow, and may": ([run(1, most=2), run(2, most=2)], {"grow": True}, Need(1, ("run 1", "run 2"))),
    "a quota, which more machines do not change": (
        [run(1, held=frozenset({1})), run(2, held=frozenset({2})), run(3)],
        {"rules": Rules(person_quota={"alice": 2}, one_machine=True)},
        Need(),
    ),
    "a run of another kind of machine": ([run(1), run(2), run(3, kind="other", node="gone")], {"shape": Shape(2, "cpu", "kind")}, Need()),
    "a kind that is not known yet": ([run(1), run(2), run(3, kind="other", node="gone")], {}, Need(1, ("run 3",))),
}


@pytest.mark.parametrize("case", NEEDED)
def test_as_many_machines_help_as_the_planner_says(case: str) -> None:
    runs, more, expected = NEEDED[case]
    if "grow" in more:
        assert _needed(runs, **{**more, "grow": False}) == Need(), "it begins without"
    found = _needed(runs, **more)
    assert found.pilots == expected.pilots
    assert len(found.runs) == len(expected.runs) or "grow" in more


def _needed(runs: list[RunFacts], **more: object) -> Need:
    usual: dict[str, object] = {"rules": Rules(one_machine=True), "shape": Shape(2, "cpu"), "most": 4, "grow": False}
    return needed(HERE, runs, now=NOW, **{**usual, **more})  # type: ignore[arg-type]


CASES: dict[str, tuple[Policy, list[Pilot], Need, Trouble, tuple[int, set[str], set[str]]]] = {
    "nothing to do": (POLICY, [], Need(), Trouble(), (0, set(), set())),
    "what would help is asked for": (POLICY, [], Need(2), Trouble(), (2, set(), set())),
    "what is on its way counts": (POLICY, [pilot("a", "waiting"), pilot("b", "starting")], Need(3), Trouble(), (1, set(), set())),
    "never more than the most": (POLICY, [pilot("a", granted=1), pilot("b", "leaving", granted=1)], Need(9), Trouble(), (2, set(), set())),
    "the least is held": (dataclasses.replace(POLICY, least=2), [], Need(), Trouble(), (2, set(), set())),
    "what is idle goes after a while": (POLICY, [pilot("a", idle_since=NOW - 600)], Need(), Trouble(), (0, {"a"}, set())),
    "and not before": (POLICY, [pilot("a", idle_since=NOW - 599)], Need(), Trouble(), (0, set(), set())),
    "the least stays though idle": (
        dataclasses.replace(POLICY, least=1),
        [pilot("a", idle_since=0.0)],
        Need(),
        Trouble(),
        (0, set(), set()),
    ),
    "in the queue too": (POLICY, [pilot("a", "waiting", idle_since=NOW - 600)], Need(), Trouble(), (0, {"a"}, set())),
    "one in the queue that would help stays": (
        POLICY,
        [pilot("a", "waiting", idle_since=NOW - 900)],
        Need(1),
        Trouble(),
        (0, set(), set()),
    ),
    "one that is empty is given back": (POLICY, [pilot("a", "leaving")], Need(), Trouble(), (0, set(), {"a"})),
    "one with a run is not": (POLICY, [pilot("a", "leaving", granted=2)], Need(), Trouble(), (0, set(), set())),
    "in time before its allocation ends": (POLICY, [pilot("a", granted=1, left_s=100)], Need(), Trouble(), (0, {"a"}, set())),
    "and another one is had for it": (
        dataclasses.replace(POLICY, least=1),
        [pilot("a", granted=1, left_s=100)],
        Need(),
        Trouble(),
        (1, {"a"}, set()),
    ),
    "what has failed is not tried at once": (POLICY, [], Need(1), Trouble(3, NOW - 59, "no"), (0, set(), set())),
    "but in the end": (POLICY, [], Need(1), Trouble(3, NOW - 60, "no"), (1, set(), set())),
    "where one stands idle another does not help": (POLICY, [pilot("a", idle_since=NOW - 60)], Need(1), Trouble(), (0, set(), set())),
    "a moment of idleness says nothing": (POLICY, [pilot("a", idle_since=NOW - 5)], Need(1), Trouble(), (1, set(), set())),
    "more than are allowed now": (
        dataclasses.replace(POLICY, most=1),
        [pilot("a", granted=1), pilot("b", since=3.0), pilot("c", granted=2)],
        Need(),
        Trouble(),
        (0, {"a", "b"}, set()),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_asked_for_and_given_back(case: str) -> None:
    policy, pilots, need, trouble, (start, leave, release) = CASES[case]
    found = decide(policy, pilots, need=need, trouble=trouble, now=NOW)
    assert (found.start, set(found.leave), set(found.release)) == (start, leave, release), found.words


def test_every_decision_is_told_in_words() -> None:
    need = Need(2, ("digits", "cnn"))
    assert decide(POLICY, [], need=need, now=NOW).words == (
        "Slurm was asked for 0 pilots; at least 0, at most 4.",
        "Asks for 2 more: with 2 pilots more digits, cnn would begin or grow.",
    )
    refused = decide(POLICY, [], need=need, trouble=Trouble(2, NOW - 10, "Invalid partition name specified"), now=NOW)
    assert (
        refused.words[1] == "Would ask for 2 more, after 2 attempts that came to nothing, again in 20 s: Invalid partition name specified"
    )
    idle = decide(POLICY, [pilot("a", idle_since=NOW - 660)], need=Need(), now=NOW)
    assert idle.words[-1] == "a is given back: nobody has needed it for 11 min."
    vain = decide(POLICY, [pilot("a", idle_since=NOW - 660)], need=need, now=NOW)
    assert vain.in_vain == {"a"}
    assert vain.words[-2:] == (
        "a is here and nobody can use it, so another one would not help.",
        "a is given back: nobody could use it for 11 min.",
    )


def test_pauses_grow_and_end_somewhere() -> None:
    pauses = [pause_s(failures) for failures in range(1, 30)]
    assert pauses == sorted(pauses)
    assert (pauses[0], pauses[-1]) == (15.0, LONGEST_PAUSE_S)


PILOTS = st.lists(
    st.builds(
        Pilot,
        name=st.uuids().map(str),
        phase=st.sampled_from(("waiting", "starting", "here", "leaving", "ending")),
        granted=st.integers(0, 3),
        idle_since=st.none() | st.floats(0, NOW),
        left_s=st.none() | st.floats(0, 3600),
        since=st.floats(0, NOW),
    ).map(lambda each: dataclasses.replace(each, granted=each.granted if each.phase in ("here", "leaving") else 0)),
    max_size=8,
    unique_by=lambda each: each.name,
)
POLICIES = st.builds(
    lambda least, more, idle_s: Policy(least, least + more, idle_s, 120.0), st.integers(0, 3), st.integers(0, 4), st.floats(0, 3600)
)
NEEDS = st.builds(Need, st.integers(0, 6))
TROUBLES = st.builds(Trouble, st.integers(0, 5), st.floats(0, NOW), st.just("no"))


def carried_out(pilots: list[Pilot], decision: Decision, now: float) -> list[Pilot]:
    """The pilots once the decision is carried out, and nothing else has happened."""
    after = []
    for each in pilots:
        phase: Phase = "ending" if each.name in decision.release else "leaving" if each.name in decision.leave else each.phase
        idle = each.name in decision.idle
        after.append(
            dataclasses.replace(each, phase=phase, idle_since=(each.idle_since if each.idle_since is not None else now) if idle else None)
        )
    return [*after, *(Pilot(f"new {number}", "waiting", since=now) for number in range(decision.start))]


@given(POLICIES, PILOTS, NEEDS, TROUBLES)
def test_never_over_the_most_nor_under_the_least_nor_with_work_on_it(
    policy: Policy, pilots: list[Pilot], need: Need, trouble: Trouble
) -> None:
    decision = decide(policy, pilots, need=need, trouble=trouble, now=NOW)
    known = {each.name: each for each in pilots}
    assert decision.start == 0 or len(pilots) + decision.start <= policy.most
    assert all(known[name].phase == "leaving" and not known[name].granted for name in decision.release)
    assert all(known[name].phase in ("waiting", "starting", "here") for name in decision.leave)
    by_itself = {name for name, why in decision.leave.items() if "ends in" not in why}
    assert all(not known[name].granted for name in by_itself if "at most" not in decision.leave[name])
    if by_itself:
        held = [each for each in pilots if each.phase in ("waiting", "starting", "here") and each.name not in decision.leave]
        assert len(held) + decision.start >= policy.least
    assert not (decision.start and by_itself), "it does not ask and give back at once"


@given(POLICIES, PILOTS, NEEDS, TROUBLES, st.floats(0, SETTLED_S))
def test_asked_again_it_goes_on_with_what_it_began_and_does_no_more(
    policy: Policy, pilots: list[Pilot], need: Need, trouble: Trouble, later_s: float
) -> None:
    first = decide(policy, pilots, need=need, trouble=Trouble(), now=NOW)
    after = carried_out(pilots, first, NOW)
    again = decide(policy, after, need=need, now=NOW)
    assert again.start == 0 or first.leave, "what was asked for is on its way"
    assert not again.leave.keys() & {each.name for each in after if each.name.startswith("new")}
    if first.start and not first.leave:
        soon = decide(policy, after, need=need, now=NOW + min(later_s, policy.idle_s / 2))
        assert not [name for name in soon.leave if name.startswith("new")], "nothing that was just asked for is given back"


@given(st.lists(st.integers(1, 3), max_size=6), st.integers(1, 3), st.integers(0, 5))
def test_with_what_would_help_nothing_more_would(sizes: list[int], slots: int, most: int) -> None:
    runs = [run(number, least=size, most=size) for number, size in enumerate(sizes, 1)]
    shape = Shape(slots, "cpu")
    found = _needed(runs, shape=shape, most=most)
    assert 0 <= found.pilots <= most
    there = [SlotFacts(100 + 10 * machine + slot, f"pilot-{machine}", "cpu") for machine in range(found.pilots) for slot in range(slots)]
    left = needed([*HERE, *there], runs, now=NOW, rules=Rules(one_machine=True), shape=shape, most=most - found.pilots, grow=False)
    assert left.pilots == 0
