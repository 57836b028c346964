"""A run that needs several slots at once and is overtaken by smaller ones gets its turn."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.scheduling.cast import a_run, applied, decide, machine, sizes
from training_runtime.scheduling.ageing import AGEING_S, TURN_S
from training_runtime.scheduling.facts import Policy, Rules

NOW = 1000.0  # of `decide`
TWO = [*machine(4, node="n1"), *machine(4, node="n2", first=5)]
SMALL = [
    a_run(
        number,
        ("alice", "bob", "carol")[number % 3 if number > 1 else 0],
        held=frozenset({number}),
        node=f"n{1 + (number > 4)}",
        max_slots=1,
    )
    for number in range(1, 9)
]
LARGE = a_run(20, "alice", min_slots=4, max_slots=4)


@pytest.mark.parametrize("policy", ["fair_share", "priority"])
def test_it_goes_first_once_it_has_waited_long_and_for_a_while(policy: Policy) -> None:
    """Its owner holds a slot, so it is nobody's turn by fair share; every machine is full of smaller runs."""
    rules = Rules(policy=policy, one_machine=True)
    waits = replace(LARGE, waits_since=NOW - AGEING_S + 1)
    assert sizes(decide(TWO, [*SMALL, waits], rules))[20] == 0
    made = decide(TWO, [*SMALL, replace(waits, waits_since=NOW - AGEING_S)], rules)
    assert (sizes(made)[20], made.favoured) == (4, {20})
    assert made.reasons[20].endswith("it goes first for a while, because it had waited too long")
    slots, runs = applied(made, TWO, [*SMALL, waits])
    in_turn = [replace(run, favoured_since=NOW - TURN_S + 1, waits_since=None) if run.id == 20 else run for run in runs]
    again = decide(slots, in_turn, rules)
    assert (again.grants, again.favoured) == (made.grants, {20})


def test_one_at_a_time_goes_first_the_one_that_waited_longest() -> None:
    rules = Rules(one_machine=True)
    both = [replace(LARGE, waits_since=NOW - 2 * AGEING_S), replace(LARGE, id=21, person="bob", waits_since=NOW - 3 * AGEING_S)]
    assert decide(TWO, [*SMALL, *both], rules).favoured == {21}
    begun = replace(both[0], favoured_since=NOW - 1.0)
    assert decide(TWO, [*SMALL, begun, both[1]], rules).favoured == {20}, "a turn that has begun is not cut short"


def test_a_priority_is_not_overcome_by_waiting() -> None:
    rules = Rules(policy="priority", one_machine=True)
    waits = replace(LARGE, waits_since=NOW - 10 * AGEING_S, priority=4000)
    assert sizes(decide(TWO, [*SMALL, waits], rules))[20] == 0


@pytest.mark.parametrize("one_machine", [False, True])
def test_it_may_be_the_only_one_there_is(one_machine: bool) -> None:
    made = decide(TWO, [replace(LARGE, waits_since=NOW - AGEING_S)], Rules(one_machine=one_machine))
    assert (sizes(made), made.favoured) == ({20: 4}, {20})
