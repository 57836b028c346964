"""Several machines, and runs that train on one of them each."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.scheduling.cast import a_run, applied, decide, machine, sizes
from training_runtime.scheduling.changes import difference
from training_runtime.scheduling.facts import Plan, Rules, RunFacts

ONE = Rules(one_machine=True)
ONE_PRIORITY = Rules(policy="priority", one_machine=True)
TWO = [*machine(4, node="n1"), *machine(4, node="n2", first=5)]
ON_N1, ON_N2 = frozenset({1, 2, 3, 4}), frozenset({5, 6, 7, 8})
ALICE = a_run(1, "alice", name="digits-1")
BOB = a_run(2, "bob", name="digits-2")
CAROL = a_run(3, "carol", name="faces")


def on(run: RunFacts, *slots: int, node: str) -> RunFacts:
    return replace(run, held=frozenset(slots), node=node)


def nodes_of(made: Plan) -> dict[int, set[str]]:
    where = {slot.id: slot.node for slot in TWO}
    return {run: {where[slot] for slot in granted} for run, granted in made.grants.items()}


def test_two_people_get_a_machine_each():
    made = decide(TWO, [ALICE, BOB], ONE)
    assert made.grants == {1: ON_N1, 2: ON_N2}
    assert made.reasons[1] == "starts with 4 of 4 slots on n1: all there are on n1, and a run trains on one machine"


def test_a_third_shares_with_one_of_them_and_the_other_loses_nothing():
    made = decide(TWO, [on(ALICE, *ON_N1, node="n1"), on(BOB, *ON_N2, node="n2"), CAROL], ONE)
    assert sizes(made) == {1: 2, 2: 4, 3: 2}
    assert made.reasons[1] == "gave 2 slots to carol's run faces and holds 2 of 4 slots on n1: fair share between alice and carol"
    assert made.reasons[2] == "holds 4 of 4 slots on n2: all there are on n2, and a run trains on one machine"


def test_small_runs_are_put_together_so_that_a_large_one_finds_a_whole_machine():
    small = [replace(ALICE, max_slots=2), replace(BOB, max_slots=2)]
    made = decide(TWO, [*small, CAROL], ONE)
    assert nodes_of(made) == {1: {"n1"}, 2: {"n1"}, 3: {"n2"}}
    assert sizes(made) == {1: 2, 2: 2, 3: 4}


def test_a_higher_priority_goes_where_it_suspends_nobody():
    boss = replace(CAROL, priority=9000)
    made = decide(TWO, [on(ALICE, *ON_N1, node="n1"), boss], ONE_PRIORITY)
    assert made.grants == {1: ON_N1, 3: ON_N2}


def test_whoever_is_displaced_goes_on_where_there_is_room():
    """Bob needs a whole machine and only Alice's is in service for it: she moves to what is free elsewhere."""
    slots = [*machine(4, node="n1"), *machine(2, node="n2", first=5)]
    boss = replace(BOB, priority=9000, min_slots=4)
    made = decide(slots, [on(ALICE, *ON_N1, node="n1"), boss], ONE_PRIORITY)
    assert made.grants == {1: frozenset({5, 6}), 2: ON_N1}
    assert made.reasons[1] == (
        "gave 4 slots to bob's run digits-2 (priority 9000), moves from n1 to n2 and holds 2 of 2 slots on n2: "
        "all there are on n2, and a run trains on one machine"
    )
    settled = decide(*applied(made, slots, [ALICE, boss]), ONE_PRIORITY)
    assert settled.grants == made.grants


def test_a_machine_that_is_taken_out_of_service_hands_its_runs_over():
    draining = [*machine(4, node="n1", draining=True), *machine(4, node="n2", first=5)]
    made = decide(draining, [on(ALICE, *ON_N1, node="n1"), on(BOB, *ON_N2, node="n2")], ONE)
    assert (sizes(made), nodes_of(made)) == ({1: 2, 2: 2}, {1: {"n2"}, 2: {"n2"}})
    before = decide(TWO, [on(ALICE, *ON_N1, node="n1"), on(BOB, *ON_N2, node="n2")], ONE)
    assert difference(before, made, [ALICE, BOB], TWO) == [
        "alice's run digits-1: 4 -> 2 slots, moves from n1 to n2",
        "bob's run digits-2: 4 -> 2 slots",
    ]
    assert made.reasons[1].startswith("left 4 slots that will be out of service, moves from n1 to n2 and holds 2 of 4 slots")


def test_a_run_moves_to_a_machine_that_lies_idle_and_what_it_leaves_goes_to_the_other():
    runs = [on(ALICE, 1, 2, node="n1"), on(BOB, 3, 4, node="n1")]
    made = decide(TWO, runs, ONE)
    assert made.grants == {1: ON_N2, 2: frozenset({3, 4})}
    assert made.reasons[1] == (
        "moves from n1 to n2, where more is free, and holds 4 of 4 slots on n2: all there are on n2, and a run trains on one machine"
    )
    assert decide(*applied(made, TWO, runs), ONE).grants == {1: ON_N2, 2: ON_N1}


@pytest.mark.parametrize(
    "why_not",
    [
        {"remaining_s": 30.0},  # it is nearly done
        {"engines": 5},  # four slots would make it half as fast again
        {"max_slots": 2},
    ],
)
def test_a_run_does_not_move_for_little(why_not):
    runs = [on(replace(ALICE, **why_not), 1, 2, node="n1"), on(replace(BOB, **why_not), 3, 4, node="n1")]
    made = decide(TWO, runs, ONE)
    assert made.grants == {1: frozenset({1, 2}), 2: frozenset({3, 4})}


def test_a_run_does_not_move_beyond_its_quota():
    runs = [on(ALICE, 1, 2, node="n1"), on(BOB, 3, 4, node="n1")]
    made = decide(TWO, runs, replace(ONE, person_quota={"alice": 2, "bob": 3}))
    assert nodes_of(made) == {1: {"n1"}, 2: {"n1"}}


def test_a_run_that_holds_nothing_prefers_the_machine_where_its_process_waits():
    made = decide(TWO, [on(ALICE, node="n2")], ONE)
    assert nodes_of(made) == {1: {"n2"}}
    taken = [on(BOB, *ON_N2, node="n2"), on(ALICE, node="n2")]
    assert nodes_of(decide(TWO, taken, ONE))[1] == {"n1"}


def test_a_run_waits_for_so_many_slots_on_one_machine_and_is_told_so():
    running = [
        on(replace(ALICE, max_slots=2, remaining_s=600.0), 1, 2, node="n1"),
        on(replace(BOB, max_slots=3, remaining_s=60.0), 5, 6, 7, node="n2"),
    ]
    large = replace(CAROL, priority=4000, min_slots=3)
    made = decide(TWO, [*running, large], ONE_PRIORITY)
    assert sizes(made)[3] == 0
    assert made.reasons[3] == (
        "waits: needs 3 slots at once, and 2 are free on one machine; first in the queue; expected in about 1 min, "
        "when bob's run digits-2 ends"
    )


def test_more_than_any_machine_has_is_more_than_there_is():
    made = decide(TWO, [replace(ALICE, min_slots=6)], ONE)
    assert made.reasons[1] == "waits: needs 6 slots at once, and only 4 are in service on one machine"


def test_quotas_count_over_all_machines():
    rules = replace(ONE, person_quota={"alice": 5})
    made = decide(TWO, [ALICE, replace(BOB, person="alice")], rules)
    assert sum(sizes(made).values()) == 5


@pytest.mark.parametrize("rules", [ONE, ONE_PRIORITY])
def test_a_run_on_a_machine_that_is_not_heard_of_keeps_just_what_it_holds(rules: Rules):
    """Nobody could use what it gave up, and it could use nothing more; it counts as her part all the same."""
    slots = [*machine(4, node="n1"), *machine(4, node="n2", first=5)]
    slots = [replace(slot, draining=slot.id in (3, 4)) for slot in slots]
    lost = replace(on(ALICE, 1, 2, node="n1"), pinned=True)
    made = decide(slots, [lost, replace(ALICE, id=4, name="digits-4"), BOB, CAROL], rules)
    assert made.grants[1] == frozenset({1, 2})
    assert made.reasons[1] == "holds 2 of 2 slots on n1: n1 is offline, so nothing changes there until it is back"
    assert sizes(made) == {1: 2, 4: 0, 2: 2, 3: 2} if rules is ONE else sizes(made)[4] <= 1
