"""What the people who share the slots read."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.scheduling.cast import PRIORITY, a_run, applied, decide, machine
from training_runtime.scheduling.changes import difference
from training_runtime.scheduling.facts import Rules, Waiting
from training_runtime.scheduling.wording import about

ALICE = a_run(1, "alice", name="digits-1")
BOB = a_run(2, "bob", name="digits-2")
CAROL = a_run(3, "carol", name="faces")


def held(run, *slots):
    return replace(run, held=frozenset(slots))


def test_the_first_run_starts_with_all_there_are():
    assert decide(machine(4), [ALICE]).reasons == {1: "starts with 4 of 4 slots: all there are"}


def test_a_handover_is_told_on_both_sides():
    reasons = decide(machine(4), [held(ALICE, 1, 2, 3, 4), BOB]).reasons
    assert reasons[1] == "gave 2 slots to bob's run digits-2 and holds 2 of 4 slots: fair share between alice and bob"
    assert reasons[2] == "starts with 2 of 4 slots, 2 slots handed over by alice's run digits-1: fair share between alice and bob"


def test_the_newcomers_reason_is_the_same_until_the_slots_are_handed_over():
    slots = machine(4, holder=1)
    first = decide(slots, [held(ALICE, 1, 2, 3, 4), BOB])
    promised = decide(slots, [replace(ALICE, held=first.grants[1]), BOB])
    assert promised.reasons[2] == first.reasons[2]
    assert promised.reasons[1] == "holds 2 of 4 slots: fair share between alice and bob"


def test_a_weight_that_is_not_the_usual_one_is_named():
    reasons = decide(machine(6), [ALICE, BOB], Rules(person_weights={"alice": 1.0, "bob": 2.0})).reasons
    assert reasons[1] == "starts with 2 of 6 slots: fair share between alice and bob (weight 2)"
    alone = decide(machine(5), [ALICE, replace(CAROL, person="alice")], Rules(person_weights={"alice": 2.0})).reasons
    assert alone[1] == "starts with 3 of 5 slots: fair share between alice's runs"


def test_under_priority_the_reason_names_the_priority():
    boss = replace(BOB, priority=9000)
    reasons = decide(machine(4), [held(ALICE, 1, 2, 3, 4), boss], PRIORITY).reasons
    assert reasons[2] == "starts with 4 of 4 slots, 4 slots handed over by alice's run digits-1: priority 9000"
    assert reasons[1] == (
        "suspended: gave 4 slots to bob's run digits-2 (priority 9000); "
        "waits: needs 1 slot, and all 4 slots are held by bob at priority 9000 or higher; first in the queue"
    )


@pytest.mark.parametrize(
    ("run", "slots", "rules", "reason"),
    [
        (replace(ALICE, max_slots=2), 4, Rules(), "starts with 2 of 4 slots: its maximum"),
        (replace(ALICE, engines=2), 4, Rules(), "starts with 2 of 4 slots: one for each of its 2 engines"),
        (replace(ALICE, engines=4, max_slots=3), 4, Rules(), "starts with 2 of 4 slots: its 4 engines would be no faster on 3"),
        (replace(ALICE, engines=4), 3, Rules(), "starts with 2 of 3 slots: the next size that is faster is 4, and only 1 more is free"),
        (ALICE, 4, Rules(person_quota={"alice": 3}), "starts with 3 of 4 slots: alice's quota is 3 slots"),
        (ALICE, 4, Rules(project_quota={"digits": 1}), "starts with 1 of 4 slots: the quota of project digits is 1 slot"),
        (replace(ALICE, paused=True), 4, Rules(), "paused: holds nothing until somebody resumes it"),
        (replace(ALICE, device="cpu"), 4, Rules(), "waits: needs 1 slot, and no cpu slot is in service"),
        (replace(ALICE, min_slots=5), 4, Rules(), "waits: needs 5 slots at once, and only 4 are in service"),
        (ALICE, 4, Rules(person_quota={"alice": 0}), "waits: needs 1 slot, and alice's quota is 0 slots; first in the queue"),
    ],
)
def test_a_run_alone_is_told_what_limits_it(run, slots, rules, reason):
    assert decide(machine(slots), [run], rules).reasons == {1: reason}


def test_a_waiting_run_reads_who_holds_the_slots_its_place_and_when_it_may_start():
    slots = machine(2)
    runs = [replace(held(ALICE, 1), remaining_s=900.0), replace(held(BOB, 2), remaining_s=236.0), CAROL, a_run(4, "dave", min_slots=2)]
    made = decide(slots, runs)
    assert made.reasons[3] == (
        "waits: needs 1 slot, and all 2 slots are held by alice and bob; first in the queue; "
        "expected in about 4 min, when bob's run digits-2 ends"
    )
    assert made.queue == {3: Waiting(position=1, needs=1, expected_s=236.0), 4: Waiting(position=2, needs=2, expected_s=None)}
    assert made.reasons[4] == "waits: needs 2 slots at once, and all 2 slots are held by alice and bob; second in the queue"


def test_a_run_held_back_by_a_quota_waits_for_the_runs_of_that_quota():
    runs = [
        replace(held(ALICE, 1), max_slots=1, remaining_s=600.0),
        a_run(4, "alice", name="second"),
        replace(held(BOB, 2), remaining_s=60.0, max_slots=1),
    ]
    made = decide(machine(4), runs, Rules(person_quota={"alice": 1}))
    assert made.reasons[4] == (
        "waits: needs 1 slot, and alice's quota is 1 slot; first in the queue; expected in about 10 min, when alice's run digits-1 ends"
    )


def test_people_take_turns_in_the_queue():
    runs = [held(ALICE, 1), a_run(4, "alice"), a_run(5, "alice"), a_run(6, "bob"), a_run(7, "bob")]
    queue = decide(machine(1), runs).queue
    assert sorted(queue, key=lambda run: queue[run].position) == [6, 4, 7, 5]


def test_draining_is_named_as_the_cause():
    slots = [*machine(1, draining=True), *machine(1, node="n2", first=2)]
    assert decide(slots, [held(ALICE, 1)]).reasons == {
        1: "moves 1 slot (n1 gives its slots up for maintenance) and holds 1 of 1 slots: all there are"
    }
    assert decide(slots[:1], [held(ALICE, 1)]).reasons == {
        1: "suspended: left 1 slot that will be out of service; waits: needs 1 slot, and no slot is in service"
    }


def test_both_kinds_of_slots_are_told_apart():
    slots = [*machine(1), *machine(1, node="n2", device="cpu", first=2)]
    runs = [replace(held(ALICE, 1), device="gpu"), replace(BOB, device="gpu")]
    reasons = decide(slots, runs).reasons
    assert reasons[1] == "holds 1 of 1 gpu slots: fair share between alice and bob"
    assert reasons[2] == "waits: needs 1 slot, and the only gpu slot is held by alice; first in the queue"


def test_reasons_do_not_change_while_nothing_does():
    runs = [a_run(number, person) for number, person in enumerate(["alice", "bob", "carol", "alice", "dave", "erin"], start=1)]
    made = decide(machine(4), runs)
    slots, after = applied(made, machine(4), runs)
    settled = decide(slots, after)
    assert decide(*applied(settled, slots, after)).reasons == settled.reasons


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (5, "less than a minute"),
        (70, "about 1 min"),
        (236, "about 4 min"),
        (1700, "about 30 min"),
        (4000, "about 1 h"),
        (200_000, "more than a day"),
    ],
)
def test_a_forecast_is_rounded_coarsely(seconds, words):
    assert about(seconds) == words


def test_a_preview_tells_who_would_lose_and_who_would_gain():
    runs = [held(ALICE, 1, 2), held(BOB, 3, 4), CAROL]
    before = decide(machine(4), runs[:2], PRIORITY)
    raised = [ALICE, replace(BOB, priority=6000), CAROL]
    after = decide(machine(4), raised, PRIORITY)
    assert difference(before, after, raised, machine(4)) == [
        "alice's run digits-1: 2 -> 0 slots (suspended)",
        "bob's run digits-2: 2 -> 4 slots",
    ]
    assert difference(after, after, raised, machine(4)) == []
