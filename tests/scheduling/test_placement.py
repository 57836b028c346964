"""Which slots a run gets."""

from __future__ import annotations

from dataclasses import replace

from tests.scheduling.cast import a_run, applied, decide, machine, sizes

TWO_MACHINES = [*machine(4, node="n1"), *machine(4, node="n2", first=5)]


def test_a_run_fills_a_machine_before_it_spreads():
    runs = [a_run(1, "alice", max_slots=3), a_run(2, "bob", max_slots=4)]
    grants = decide(TWO_MACHINES, runs).grants
    assert grants[2] in (frozenset({1, 2, 3, 4}), frozenset({5, 6, 7, 8}))
    assert len({slot.node for slot in TWO_MACHINES if slot.id in grants[1]}) == 1


def test_a_small_run_goes_to_the_fullest_machine_that_takes_it():
    runs = [a_run(1, "alice", max_slots=3, held=frozenset({5, 6, 7})), a_run(2, "bob", max_slots=1)]
    assert decide(TWO_MACHINES, runs).grants[2] == frozenset({8})


def test_a_run_grows_on_the_machine_it_is_on():
    assert decide(TWO_MACHINES, [a_run(1, "alice", max_slots=3, held=frozenset({6}))]).grants == {1: frozenset({5, 6, 7})}


def test_a_run_gives_up_the_machine_where_it_has_least():
    runs = [a_run(1, "alice", held=frozenset({1, 2, 3, 5, 6, 7, 8, 4}), max_slots=4), a_run(2, "bob", max_slots=4)]
    assert decide(TWO_MACHINES, runs).grants == {1: frozenset({1, 2, 3, 4}), 2: frozenset({5, 6, 7, 8})}
    uneven = [a_run(1, "alice", held=frozenset({4, 5, 6, 7}), max_slots=3)]
    assert decide(TWO_MACHINES, uneven).grants == {1: frozenset({5, 6, 7})}


def test_a_spread_run_gathers_on_one_machine_when_there_is_room():
    made = decide(TWO_MACHINES, [a_run(1, "alice", max_slots=2, held=frozenset({4, 5}))])
    assert made.grants[1] in (frozenset({5, 6}), frozenset({1, 4}), frozenset({3, 4}))
    assert made.reasons[1] == "moves 1 slot (to be on fewer machines) and holds 2 of 8 slots: its maximum"


def test_a_run_on_one_machine_is_never_moved():
    held = frozenset({2, 3})
    others = a_run(2, "bob", max_slots=1, held=frozenset({1}))
    assert decide(TWO_MACHINES, [a_run(1, "alice", max_slots=2, held=held), others]).grants == {1: held, 2: frozenset({1})}


def test_a_newcomer_gets_slots_that_are_really_free_first():
    """Slots 1 and 2 still have the process of a run that has ended."""
    slots = [replace(slot, holder=99) if slot.id < 3 else slot for slot in machine(4)]
    assert decide(slots, [a_run(1, "alice", max_slots=2)]).grants == {1: frozenset({3, 4})}
    across = [*machine(2, holder=99), *machine(2, node="n2", first=3)]
    assert decide(across, [a_run(1, "alice", max_slots=2)]).grants == {1: frozenset({3, 4})}


def test_a_newcomer_does_not_wait_for_a_slow_leaver_on_a_fuller_machine():
    slots = [*machine(2, holder=99), *machine(4, node="n2", first=3)]
    assert decide(slots, [a_run(1, "alice", max_slots=2)]).grants == {1: frozenset({3, 4})}


def test_slots_not_yet_free_are_promised_all_the_same():
    slots = machine(2, holder=99)
    assert sizes(decide(slots, [a_run(1, "alice")])) == {1: 2}


def test_a_slot_that_two_runs_claim_goes_to_the_older_one():
    runs = [a_run(1, "alice", max_slots=1, held=frozenset({1})), a_run(2, "bob", max_slots=1, held=frozenset({1}))]
    assert decide(machine(2), runs).grants == {1: frozenset({1}), 2: frozenset({2})}


def test_a_slot_that_left_the_cluster_is_not_kept():
    assert decide(machine(2), [a_run(1, "alice", held=frozenset({1, 77}))]).grants == {1: frozenset({1, 2})}


def test_a_plan_carried_out_stays_as_it_is():
    runs = [a_run(number, person, max_slots=3) for number, person in enumerate(["alice", "bob", "carol"], start=1)]
    made = decide(TWO_MACHINES, runs)
    slots, held = applied(made, TWO_MACHINES, runs)
    assert decide(slots, held).grants == made.grants
