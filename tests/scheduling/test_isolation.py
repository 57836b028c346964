"""Whether people's code may run on a machine whose box does not keep it apart: the table, and where runs go then."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.scheduling.cast import a_run, decide, machine, sizes
from training_runtime.host.sandbox.levels import LEVELS
from training_runtime.scheduling.facts import Rules
from training_runtime.scheduling.isolation import KEEP_APART, REMEDY, standing, waits

RULES = Rules(one_machine=True)
WEAK, STRONG = machine(4, node="weak"), machine(2, node="strong", first=5)
ALICE = a_run(1, "alice", max_slots=4)
BOB = a_run(2, "bob", max_slots=4)
ONLY_STRONG = frozenset({"strong"})


@pytest.mark.parametrize(
    ("level", "people", "trusted", "state"),
    [
        *((level, people, False, "isolated") for level in ("user+landlock", "user") for people in (0, 1, 2, 50)),
        *((level, people, False, "alone") for level in ("landlock", "limits", "off") for people in (0, 1)),
        *((level, people, False, "refuses") for level in ("landlock", "limits", "off") for people in (2, 50)),
        *((level, people, True, "trusted") for level in ("landlock", "limits", "off") for people in (1, 2)),
        ("user", 2, True, "isolated"),
        ("", 2, False, "unknown"),
        ("", 2, True, "unknown"),
        ("of a later version", 1, False, "alone"),
        ("of a later version", 2, False, "refuses"),
    ],
)
def test_what_a_machine_runs(level: str, people: int, trusted: bool, state: str) -> None:
    found = standing(level, people=people, trusted=trusted)
    assert (found.state, found.may_run) == (state, state != "refuses")
    assert found.words.endswith(".")


def test_every_level_of_the_box_is_in_the_table() -> None:
    assert set(LEVELS) >= KEEP_APART
    assert {standing(level, people=2, trusted=False).state for level in set(LEVELS) - KEEP_APART} == {"refuses"}


def test_who_is_refused_reads_what_to_do() -> None:
    assert REMEDY in standing("landlock", people=3, trusted=False).words
    assert "3 people" in standing("landlock", people=3, trusted=False).words
    assert waits([("local", "limits")]) == (
        f"waits: the box of local (limits) does not keep people's code apart, and more than one person can run code here; {REMEDY}"
    )
    two = waits([("b", "limits"), ("a", "landlock")])
    assert two.startswith("waits: the boxes of a and b (landlock and limits) do not keep people's code apart")


def test_who_starts_goes_to_a_machine_that_keeps_people_apart_and_nowhere_else() -> None:
    runs = [replace(run, isolated_in=ONLY_STRONG) for run in (ALICE, BOB)]
    made = decide([*WEAK, *STRONG], runs, RULES)
    assert sizes(made) == {1: 1, 2: 1}
    assert all(slots <= {5, 6} for slots in made.grants.values())
    third = decide([*WEAK, *STRONG], [replace(run, min_slots=2) for run in runs], RULES)
    assert third.reasons[2].startswith(
        "waits: needs 2 slots at once, and none are free on strong, where people's code is kept apart: elsewhere nothing new is run until "
        "an administrator says that they trust each other; first in the queue"
    )


def test_who_needs_more_than_those_machines_have_is_told_so_and_not_to_begin_anew() -> None:
    large = replace(ALICE, min_slots=4, isolated_in=ONLY_STRONG)
    said = decide([*WEAK, *STRONG], [large], RULES).reasons[1]
    assert said.startswith("waits: needs 4 slots at once, and 2 are free on strong, where people's code is kept apart")
    assert "continued as a new run" not in said


def test_who_is_at_work_on_another_machine_stays_there_and_may_grow() -> None:
    there = replace(ALICE, held=frozenset({1, 2}), node="weak", engines=4, isolated_in=ONLY_STRONG)
    made = decide([*WEAK, *STRONG], [there, replace(BOB, isolated_in=ONLY_STRONG)], RULES)
    assert made.grants == {1: frozenset({1, 2, 3, 4}), 2: frozenset({5, 6})}


def test_who_has_just_moved_to_a_machine_that_refuses_need_not_wait_there() -> None:
    moved = replace(ALICE, node="weak", moved_at=999.0, prologue_s=600.0, engines=4, isolated_in=ONLY_STRONG)
    assert decide([*WEAK, *STRONG], [moved], RULES).grants[1] == frozenset({5, 6})


def test_where_only_machines_that_refuse_are_of_its_kind_it_waits_and_reads_that() -> None:
    slots = [*(replace(slot, kind="old") for slot in WEAK), *(replace(slot, kind="new") for slot in STRONG)]
    trained = replace(ALICE, node="weak", kind="old", engines=4, isolated_in=ONLY_STRONG)
    made = decide(slots, [trained], RULES)
    assert not made.grants[1]
    assert "none are free on any machine that it can use, where people's code is kept apart" in made.reasons[1]
