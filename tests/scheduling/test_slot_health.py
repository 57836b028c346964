"""Which slots are taken out of service because workers keep dying on them: cases, and what always holds."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training_runtime.scheduling.slot_health import HALF_LIFE_S, WELL_S, Decision, SlotCondition, Stay, faded, judge

HOUR_S = 3600.0
ALPHA = tuple(SlotCondition(slot, "alpha", "gpu") for slot in range(4))
BETA = tuple(SlotCondition(slot, "beta", "gpu") for slot in range(4, 8))
BOTH = (*ALPHA, *BETA)


def run(number: int, person: str, deaths: Mapping[int, float], *, slots: Iterable[int] = range(4), worked: bool = True) -> list[Stay]:
    """A run that has held these slots for an hour, with so many deaths on each."""
    return [Stay(number, person, slot, HOUR_S, deaths.get(slot, 0.0), worked=worked) for slot in slots]


def asked(*runs: list[Stay], slots: Iterable[SlotCondition] = BOTH, several_people: bool = True) -> Decision:
    return judge(slots, [stay for its in runs for stay in its], several_people=several_people)


CASES: dict[str, tuple[list[list[Stay]], set[int]]] = {
    "nothing has happened": ([], set()),
    "runs of two people die there, and do well beside it": ([run(1, "alice", {2: 6}), run(2, "bob", {2: 6})], {2}),
    "one person's runs alone": ([run(number, "alice", {2: 9}) for number in range(9)], set()),
    "a script that crashes everywhere": ([run(1, "alice", dict.fromkeys(range(4), 9)), run(2, "bob", dict.fromkeys(range(4), 9))], set()),
    "two people's scripts that crash now and then, wherever they are": (
        [run(1, "alice", {2: 2, 0: 1}), run(2, "bob", {2: 1, 1: 1}), run(3, "alice", {3: 2})],
        set(),
    ),
    "a death each": ([run(1, "alice", {2: 1}), run(2, "bob", {2: 1})], set()),
    "they had no other slot": ([run(1, "alice", {2: 9}, slots=[2]), run(2, "bob", {2: 9}, slots=[2])], set()),
    "they never made a step": ([run(1, "alice", {2: 9}, worked=False), run(2, "bob", {2: 9}, worked=False)], set()),
    "one dies there alone, the other everywhere": ([run(1, "alice", {2: 9}), run(2, "bob", dict.fromkeys(range(4), 3))], set()),
    "two slots that hide each other": ([run(1, "alice", {1: 6, 2: 6}), run(2, "bob", {1: 9, 2: 9})], {1, 2}),
    "two slots of eight": ([run(1, "alice", {0: 6, 5: 6}, slots=range(8)), run(2, "bob", {0: 6, 5: 6}, slots=range(8))], {0, 5}),
    "a whole machine": (
        [run(1, "alice", dict.fromkeys(range(4), 3), slots=range(8)), run(2, "bob", dict.fromkeys(range(4), 3), slots=range(8))],
        {0, 1, 2, 3},
    ),
    "most of a machine": (
        [run(1, "alice", dict.fromkeys(range(3), 4), slots=range(8)), run(2, "bob", dict.fromkeys(range(3), 4), slots=range(8))],
        {0, 1, 2},
    ),
    "what was long ago": ([run(1, "alice", {2: faded(6, 3 * HALF_LIFE_S)}), run(2, "bob", {2: faded(6, 3 * HALF_LIFE_S)})], set()),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_slots_are_taken_out_where(case: str) -> None:
    runs, out = CASES[case]
    assert set(asked(*runs).out) == out


def test_the_reason_says_what_speaks_against_it() -> None:
    found = asked(run(1, "alice", {2: 6}), run(2, "bob", {2: 6}))
    assert found.out == {2: "Workers of 2 runs of 2 people keep dying on it, and the same runs do well on 3 other slots."}


def test_where_there_is_one_person_their_runs_are_believed_but_not_one_alone() -> None:
    runs = [run(number, "alice", {2: 6}) for number in (1, 2)]
    assert set(asked(*runs, several_people=False).out) == {2}
    assert not asked(runs[0], several_people=False).out


def test_the_last_slot_of_its_kind_stays_and_says_so() -> None:
    runs = (run(1, "alice", {2: 6}), run(2, "bob", {2: 6}))
    busy = [dataclasses.replace(slot, in_service=slot.id == 2) for slot in BOTH]
    found = asked(*runs, slots=[*busy, SlotCondition(9, "gamma", "cpu")])
    assert not found.out
    assert found.kept[2].endswith("It stays in service because it is the last GPU slot that is.")


def test_a_machine_whose_slots_look_ill_together_is_named() -> None:
    runs, out = CASES["a whole machine"]
    reasons = asked(*runs).out
    assert set(reasons) == out
    assert len(set(reasons.values())) == 1
    assert reasons[0].startswith(
        "Workers of 2 runs of 2 people keep dying on the slots of alpha, and the same runs do well on 4 other slots."
    )
    assert reasons[0].endswith("All slots of alpha look ill: look at the machine.")


def test_a_machine_that_lost_its_slots_one_by_one_is_named_with_the_last() -> None:
    gone = [dataclasses.replace(slot, in_service=slot.id > 2, out=slot.id <= 2) for slot in ALPHA]
    runs = (run(1, "alice", {3: 6}, slots=range(8)), run(2, "bob", {3: 6}, slots=range(8)))
    assert asked(*runs, slots=[*gone, *BETA]).out[3].endswith("All slots of alpha look ill: look at the machine.")


def test_what_happened_on_slots_that_are_out_speaks_for_no_other() -> None:
    out = [dataclasses.replace(slot, in_service=slot.id != 2, out=slot.id == 2) for slot in BOTH]
    runs = (run(1, "alice", {2: 50, 1: 6}), run(2, "bob", {2: 50, 1: 6}))
    assert set(asked(*runs, slots=out).out) == {1}


def test_a_death_counts_half_after_its_half_life() -> None:
    assert faded(8, HALF_LIFE_S) == pytest.approx(4)
    assert faded(8, -5) == 8, "clocks differ"


stays = st.lists(
    st.builds(
        Stay,
        run=st.integers(1, 6),
        person=st.just("alice"),
        slot=st.integers(0, 7),
        held_s=st.floats(0, 1e6),
        deaths=st.sampled_from([0.0, 0.3, 1.0, 2.0, 8.0, 500.0]),
        worked=st.booleans(),
    ),
    max_size=30,
    unique_by=lambda stay: (stay.run, stay.slot),
).map(lambda found: [dataclasses.replace(stay, person="alice" if stay.run % 2 else "bob") for stay in found])


@given(stays)
def test_nobody_is_believed_alone(found: list[Stay]) -> None:
    of_alice = [stay for stay in found if stay.person == "alice"]
    assert not judge(BOTH, of_alice, several_people=True).out


@given(stays)
def test_a_slot_is_left_in_service_and_only_those_with_deaths_go(found: list[Stay]) -> None:
    decision = judge(BOTH, found, several_people=True)
    assert len(decision.out) < len(BOTH)
    assert not decision.out.keys() & decision.kept.keys()
    died = {stay.slot for stay in found if stay.deaths}
    nodes = {slot.node for slot in BOTH if slot.id in died}
    assert {slot.node for slot in BOTH if slot.id in decision.out} <= nodes
    assert all(reason.startswith("Workers of ") for reason in decision.out.values())


@given(stays, st.floats(1, 100))
def test_a_script_that_dies_on_each_of_its_slots_alike_takes_nothing_out(found: list[Stay], deaths: float) -> None:
    alike = [dataclasses.replace(stay, deaths=deaths, held_s=HOUR_S) for stay in found]
    assert not judge(BOTH, alike, several_people=True).out


@given(stays)
def test_the_order_of_the_facts_does_not_matter(found: list[Stay]) -> None:
    assert judge(BOTH, found, several_people=True) == judge(BOTH[::-1], found[::-1], several_people=True)


@given(stays, st.integers(0, 7))
def test_a_run_that_does_well_everywhere_changes_nothing(found: list[Stay], more: int) -> None:
    fine = [Stay(99, "victor", slot, 10 * WELL_S) for slot in range(more)]
    assert judge(BOTH, [*found, *fine], several_people=True).out.keys() == judge(BOTH, found, several_people=True).out.keys()


def test_scripts_that_crash_at_random_take_out_one_slot_in_ten_thousand_at_most() -> None:
    """What the test promises: by its mathematics (Ville's inequality) 10 ** -ENOUGH a slot. Here 2,000 clusters, fixed draws."""
    draws, out = iter(_draws(11)), 0
    for _ in range(2000):
        counts: dict[tuple[int, int], int] = {}
        for _ in range(24):
            key = (int(next(draws) * 4), int(next(draws) * 8))
            counts[key] = counts.get(key, 0) + 1
        died = [{slot: counts.get((number, slot), 0) for slot in range(8)} for number in range(4)]
        runs = [run(number, f"person {number}", died[number], slots=range(8)) for number in range(4)]
        out += len(asked(*runs).out)
    assert out <= 2


def _draws(seed: int) -> Iterable[float]:
    """Numbers from 0 to 1, the same each time."""
    at = seed
    while True:
        at = (at * 6364136223846793005 + 1442695040888963407) % 2**64
        yield math.ldexp(at >> 11, -53)
