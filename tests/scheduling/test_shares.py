"""How many slots each run gets, as tables that read like the policy's description."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from tests.scheduling.cast import FAIR, PRIORITY, a_run, applied, decide, machine, sizes
from training_runtime.scheduling.facts import Rules
from training_runtime.scheduling.sizes import next_size, speed

ALONE = [a_run(1, "alice")]
TWO_PEOPLE = [a_run(1, "alice"), a_run(2, "bob")]
MANY_AGAINST_ONE = [a_run(1, "alice"), a_run(2, "alice"), a_run(3, "alice"), a_run(4, "bob")]


@pytest.mark.parametrize(
    ("description", "slots", "runs", "expected"),
    [
        ("a run alone gets everything", 4, ALONE, {1: 4}),
        ("but never more than its maximum", 4, [a_run(1, "alice", max_slots=3)], {1: 3}),
        ("two people share in halves", 4, TWO_PEOPLE, {1: 2, 2: 2}),
        ("an odd slot goes to the older run", 5, TWO_PEOPLE, {1: 3, 2: 2}),
        ("people come first: three runs do not outweigh one", 6, MANY_AGAINST_ONE, {1: 1, 2: 1, 3: 1, 4: 3}),
        ("a person's own runs share what is theirs", 12, MANY_AGAINST_ONE, {1: 2, 2: 2, 3: 2, 4: 6}),
        ("within a person's share, starting a run comes before growing one", 4, MANY_AGAINST_ONE, {1: 1, 2: 1, 3: 0, 4: 2}),
        ("what one cannot use goes to the other", 6, [a_run(1, "alice", max_slots=1), a_run(2, "bob")], {1: 1, 2: 5}),
        ("with fewer slots than people, the older runs go first", 2, [a_run(3, "carol"), *TWO_PEOPLE], {1: 1, 2: 1, 3: 0}),
        ("a run below its minimum holds nothing", 3, [a_run(1, "alice", min_slots=2), a_run(2, "bob", min_slots=2)], {1: 3, 2: 0}),
        (
            "what does not fit lets the next one in",
            3,
            [a_run(1, "alice"), a_run(2, "bob", min_slots=4), a_run(3, "carol")],
            {1: 2, 2: 0, 3: 1},
        ),
        ("a paused run gets nothing", 4, [a_run(1, "alice", paused=True), a_run(2, "bob")], {1: 0, 2: 4}),
        ("four engines: three workers are no faster than two", 3, [a_run(1, "alice", engines=4)], {1: 2}),
        ("so the third slot is better used elsewhere", 6, [a_run(1, "alice", engines=4), a_run(2, "bob", engines=4)], {1: 4, 2: 2}),
        ("nobody gets more slots than engines", 8, [a_run(1, "alice", engines=4)], {1: 4}),
        ("a run's weight divides its person's share", 6, [a_run(1, "alice", weight=2.0), a_run(2, "alice")], {1: 4, 2: 2}),
        (
            "an odd slot of one person goes to their run with least time left",
            5,
            [a_run(1, "alice", remaining_s=900.0), a_run(2, "alice", remaining_s=60.0)],
            {1: 2, 2: 3},
        ),
        (
            "time left says nothing between people",
            5,
            [a_run(1, "alice", remaining_s=900.0), a_run(2, "bob", remaining_s=60.0)],
            {1: 3, 2: 2},
        ),
    ],
)
def test_fair_share(description, slots, runs, expected):
    assert sizes(decide(machine(slots), runs)) == expected, description


@pytest.mark.parametrize(
    ("description", "slots", "runs", "expected"),
    [
        ("higher goes first", 4, [a_run(1, "alice"), a_run(2, "bob", priority=9000)], {1: 0, 2: 4}),
        ("the lower gets what is left", 4, [a_run(1, "alice"), a_run(2, "bob", priority=9000, max_slots=3)], {1: 1, 2: 3}),
        ("equals share fairly", 4, TWO_PEOPLE, {1: 2, 2: 2}),
        (
            "and above them nobody is disturbed",
            6,
            [a_run(1, "carol", priority=6000, max_slots=2), *[replace(run, id=run.id + 1) for run in TWO_PEOPLE]],
            {1: 2, 2: 2, 3: 2},
        ),
    ],
)
def test_priority(description, slots, runs, expected):
    assert sizes(decide(machine(slots), runs, PRIORITY)) == expected, description


def test_a_weight_of_two_is_worth_twice_the_slots():
    assert sizes(decide(machine(6), TWO_PEOPLE, Rules(person_weights={"bob": 2.0}))) == {1: 2, 2: 4}


def test_a_persons_quota_is_never_exceeded_and_the_rest_goes_to_others():
    assert sizes(decide(machine(6), TWO_PEOPLE, Rules(person_quota={"alice": 1}))) == {1: 1, 2: 5}


def test_a_projects_quota_counts_all_its_people():
    runs = [a_run(1, "alice"), a_run(2, "bob"), a_run(3, "carol", project="other")]
    assert sizes(decide(machine(9), runs, Rules(project_quota={"digits": 3}))) == {1: 2, 2: 1, 3: 6}


def test_a_priority_raised_takes_the_slots_back_at_once_and_lowered_gives_them_back():
    slots, runs = applied(decide(machine(4), TWO_PEOPLE, PRIORITY), machine(4), TWO_PEOPLE)
    raised = [runs[0], replace(runs[1], priority=6000)]
    assert sizes(decide(slots, raised, PRIORITY)) == {1: 0, 2: 4}
    slots, raised = applied(decide(slots, raised, PRIORITY), slots, raised)
    assert sizes(decide(slots, [raised[0], replace(raised[1], priority=5000)], PRIORITY)) == {1: 2, 2: 2}


def test_switching_the_policy_takes_effect_in_the_next_plan():
    runs = [a_run(1, "alice"), a_run(2, "bob", priority=9000)]
    assert sizes(decide(machine(4), runs, PRIORITY)) == {1: 0, 2: 4}
    assert sizes(decide(machine(4), runs, FAIR)) == {1: 2, 2: 2}


def test_a_newcomer_reclaims_from_whoever_is_furthest_above_their_share():
    runs = [a_run(1, "alice", held=frozenset({1, 2, 3, 4})), a_run(2, "bob", held=frozenset({5, 6})), a_run(3, "carol")]
    assert sizes(decide(machine(6), runs)) == {1: 2, 2: 2, 3: 2}


def test_a_tie_is_never_a_reason_to_move():
    """Five slots for two: one has three. Whoever has it keeps it, be their run older or younger."""
    for held_by_bob in ({4, 5}, {3, 4, 5}):
        bob = frozenset(held_by_bob)
        runs = [a_run(1, "alice", held=frozenset(range(1, 6)) - bob), a_run(2, "bob", held=bob)]
        assert decide(machine(5), runs).grants == {1: runs[0].held, 2: bob}


def test_nor_is_less_time_left():
    """The odd slot stays where it is, also when another run of the same person would be done sooner."""
    longer = a_run(1, "alice", held=frozenset({1, 2, 3}), remaining_s=900.0)
    sooner = a_run(2, "alice", held=frozenset({4, 5}), remaining_s=60.0)
    assert decide(machine(5), [longer, sooner]).grants == {1: longer.held, 2: sooner.held}


@pytest.mark.parametrize("rules", [FAIR, PRIORITY])
@pytest.mark.parametrize("claimed_s", [0.0, 1e-9, 1e9])
def test_what_a_run_says_of_its_end_takes_no_slot_from_another_person(rules, claimed_s):
    """A script can write into its own journal whatever it likes: it decides among its person's own runs alone."""
    persons = {1: "alice", 2: "alice", 3: "bob", 4: "carol", 5: "carol"}
    for count in range(1, 13):
        honest = [a_run(number, person, remaining_s=300.0) for number, person in persons.items()]
        forged = [replace(honest[0], remaining_s=claimed_s), *honest[1:]]
        of_person = [Counter(), Counter()]
        for totals, runs in zip(of_person, (honest, forged), strict=True):
            for number, size in sizes(decide(machine(count), runs, rules)).items():
                totals[persons[number]] += size
        assert of_person[0] == of_person[1], count


def test_useful_sizes_do_not_make_a_plan_undo_itself():
    """Found by a search: once carried out, this one used to hand a slot of Bob's second run to Alice."""
    slots = machine(12)
    runs = [
        a_run(1, "alice", max_slots=6),
        a_run(3, "bob", max_slots=8, engines=4, held=frozenset({7, 8, 10})),
        a_run(5, "bob", max_slots=5, engines=6, held=frozenset({2, 4, 6})),
    ]
    made = decide(slots, runs)
    assert decide(*applied(made, slots, runs)).grants == made.grants


def test_an_older_run_that_comes_back_does_not_push_an_equal_out():
    runs = [a_run(1, "alice"), a_run(2, "bob", held=frozenset({1}))]
    assert sizes(decide(machine(1), runs)) == {1: 0, 2: 1}


def test_small_runs_do_not_overtake_a_large_one_for_ever():
    """Dave's run needs both slots. Carol's, younger than his, may use one while Bob has the other; when Bob's ends, it is Dave's turn."""
    slots = machine(2)
    bob, dave, carol = a_run(2, "bob", held=frozenset({2})), a_run(3, "dave", min_slots=2), a_run(4, "carol")
    assert sizes(decide(slots, [bob, dave, carol])) == {2: 1, 3: 0, 4: 1}
    carol = replace(carol, held=frozenset({1}))
    erin = a_run(5, "erin")
    assert sizes(decide(slots, [dave, carol, erin])) == {3: 2, 4: 0, 5: 0}


def test_a_run_whose_minimum_was_raised_keeps_its_turn():
    runs = [a_run(1, "alice"), a_run(2, "bob", held=frozenset({1, 2}), min_slots=3)]
    assert sizes(decide(machine(3), runs)) == {1: 0, 2: 3}


def test_slots_that_are_drained_hold_nobody():
    slots = [*machine(2), *machine(2, node="n2", first=3, draining=True)]
    runs = [a_run(1, "alice", held=frozenset({3, 4}))]
    assert decide(slots, runs).grants == {1: frozenset({1, 2})}


def test_a_run_that_needs_a_gpu_never_gets_a_cpu_slot():
    slots = [*machine(2), *machine(4, node="n2", device="cpu", first=3)]
    runs = [a_run(1, "alice", device="gpu"), a_run(2, "bob", device="cpu")]
    assert decide(slots, runs).grants == {1: frozenset({1, 2}), 2: frozenset({3, 4, 5, 6})}


def test_a_run_that_takes_any_device_takes_one_kind_only_and_stays_with_it():
    slots = [*machine(2), *machine(3, node="n2", device="cpu", first=3)]
    alice = a_run(1, "alice")
    assert decide(slots, [alice]).grants == {1: frozenset({3, 4, 5})}
    assert decide(slots, [replace(alice, held=frozenset({1}))]).grants == {1: frozenset({1, 2})}


def test_a_run_that_takes_any_device_changes_when_its_kind_is_gone():
    slots = [*machine(2, draining=True), *machine(3, node="n2", device="cpu", first=3)]
    assert sizes(decide(slots, [a_run(1, "alice", held=frozenset({1, 2}))])) == {1: 3}


@pytest.mark.parametrize(
    ("engines", "useful"),
    [(1, [1]), (2, [1, 2]), (4, [1, 2, 4]), (6, [1, 2, 3, 6]), (8, [1, 2, 3, 4, 8]), (None, [1, 2, 3, 4, 5, 6, 7, 8])],
)
def test_useful_sizes_are_those_that_shorten_a_step(engines, useful):
    found, size = [1], next_size(1, engines=engines, most=8)
    while size is not None:
        found.append(size)
        size = next_size(size, engines=engines, most=8)
    assert found == useful
    if engines is not None:
        assert found == [1, *(width for width in range(2, 9) if -(-engines // width) < -(-engines // (width - 1)))]


def test_speed_follows_the_busiest_worker():
    assert [speed(size, engines=4) for size in range(5)] == [0.0, 1.0, 2.0, 2.0, 4.0]
