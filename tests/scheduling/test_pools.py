"""Machines that share runs: a run may have slots on all of a pool, beside machines that share none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.scheduling.cast import a_run, decide, machine, sizes
from tests.scheduling.drawn_facts import EXAMPLES, Facts, some_rules, some_runs, some_slots
from training_runtime.scheduling.changes import difference
from training_runtime.scheduling.facts import Plan, Rules, RunFacts, SlotFacts
from training_runtime.scheduling.sizes import bounds

POOL = "alpha and beta"
RULES = Rules(one_machine=True)
PRIORITY = Rules(policy="priority", one_machine=True)
PAIR = [*machine(4, node="alpha", pool=POOL), *machine(4, node="beta", first=5, pool=POOL)]
ON_ALPHA, ON_BETA = frozenset({1, 2, 3, 4}), frozenset({5, 6, 7, 8})
ALICE = a_run(1, "alice", name="digits-1")
BOB = a_run(2, "bob", name="digits-2")
CAROL = a_run(3, "carol", name="faces")


def on(run: RunFacts, *slots: int, node: str, pool: str = POOL) -> RunFacts:
    return replace(run, held=frozenset(slots), node=node, pool=pool)


def nodes_of(made: Plan, slots: Sequence[SlotFacts] = PAIR) -> dict[int, set[str]]:
    where = {slot.id: slot.node for slot in slots}
    return {run: {where[slot] for slot in granted} for run, granted in made.grants.items()}


def test_a_run_that_can_use_both_machines_gets_both_and_says_what_it_has_where() -> None:
    made = decide(PAIR, [on(replace(ALICE, max_slots=6), *ON_ALPHA, node="alpha")], RULES)
    assert sizes(made) == {1: 6}
    assert made.reasons[1] == "grows from 4 to 6 of 8 slots, 4 on alpha and 2 on beta: its maximum"


def test_a_run_that_fits_on_one_machine_is_on_one() -> None:
    made = decide(PAIR, [ALICE, BOB], RULES)
    assert nodes_of(made) == {1: {"alpha"}, 2: {"beta"}}
    assert made.reasons[1] == "starts with 4 of 8 slots, all on alpha: fair share between alice and bob"


def test_a_run_that_needs_more_than_a_machine_has_starts_on_several() -> None:
    made = decide(PAIR, [replace(ALICE, min_slots=6, max_slots=6)], RULES)
    assert sizes(made) == {1: 6}


def test_a_newcomer_takes_what_a_run_has_away_from_home_first() -> None:
    spread = on(ALICE, *ON_ALPHA, 5, 6, 7, 8, node="alpha")
    made = decide(PAIR, [spread, BOB], RULES)
    assert made.grants == {1: ON_ALPHA, 2: ON_BETA}
    assert made.reasons[1] == "gave 4 slots to bob's run digits-2 and holds 4 of 8 slots, all on alpha: fair share between alice and bob"
    equal = on(replace(ALICE, max_slots=4), 1, 2, 5, 6, node="beta")
    others = [on(BOB, 3, 4, 7, 8, node="alpha"), CAROL]
    assert nodes_of(decide(PAIR, [equal, *others], replace(RULES, person_quota={"alice": 2, "bob": 4})))[1] == {"beta"}


def test_a_machine_of_the_pool_that_is_drained_loses_the_run_without_its_being_suspended() -> None:
    draining = [replace(slot, draining=slot.node == "beta") for slot in PAIR]
    spread = on(ALICE, *ON_ALPHA, 5, 6, node="alpha")
    made = decide(draining, [spread], RULES)
    assert made.grants == {1: ON_ALPHA}
    assert made.reasons[1].startswith("left 2 slots that will be out of service and holds 4 of 4 slots, all on alpha")
    assert difference(decide(PAIR, [spread], RULES), made, [spread], PAIR) == ["alice's run digits-1: 8 -> 4 slots, then on alpha"]


def test_a_run_comes_together_on_one_machine_where_its_driver_is_when_there_is_room() -> None:
    made = decide(PAIR, [on(replace(ALICE, max_slots=4), 3, 4, 5, 6, node="beta")], RULES)
    assert made.grants == {1: ON_BETA}
    assert "to be on fewer machines" in made.reasons[1]


def test_a_run_that_has_not_come_to_train_has_one_machine_and_what_it_cannot_use_goes_to_others() -> None:
    young = replace(ALICE, alone=True)
    made = decide(PAIR, [young, BOB], RULES)
    assert sizes(made) == {1: 4, 2: 4}
    made = decide(PAIR, [young], RULES)
    assert sizes(made) == {1: 4}
    assert made.reasons[1].endswith(": it may have slots on other machines too once its script has come to train()")
    taken = on(replace(BOB, max_slots=6), 1, 2, 5, 6, 7, 8, node="beta")
    made = decide(PAIR, [taken, replace(CAROL, alone=True)], replace(RULES, person_weights={"bob": 3.0}))
    assert sizes(made) == {2: 6, 3: 2}
    assert nodes_of(made)[3] == {"alpha"}


def test_a_machine_where_a_run_cannot_work_is_left_to_others() -> None:
    wary = on(replace(ALICE, avoids=frozenset({"beta"})), *ON_ALPHA, 5, 6, node="alpha")
    made = decide(PAIR, [wary], RULES)
    assert made.grants == {1: ON_ALPHA}
    assert made.reasons[1] == "gave 2 slots back and holds 4 of 8 slots, all on alpha: it cannot work on beta"
    made = decide(PAIR, [wary, BOB], RULES)
    assert made.grants == {1: ON_ALPHA, 2: ON_BETA}


def test_a_run_that_cannot_work_anywhere_there_waits() -> None:
    made = decide(PAIR, [replace(ALICE, avoids=frozenset({"alpha", "beta"}))], RULES)
    assert sizes(made) == {1: 0}
    assert made.reasons[1].startswith("waits: needs 1 slot")


def test_machines_that_share_no_run_go_on_as_ever_beside_the_pool() -> None:
    slots = [*PAIR, *machine(4, node="gamma", first=9)]
    made = decide(slots, [replace(ALICE, max_slots=8), replace(BOB, max_slots=8)], RULES)
    assert nodes_of(made, slots) == {1: {"alpha", "beta"}, 2: {"gamma"}}
    assert made.reasons[1] == ("starts with 8 of 8 slots, 4 on alpha and 4 on beta: its maximum")
    assert made.reasons[2] == "starts with 4 of 4 slots on gamma: all there are on gamma, and a run trains on one machine"
    made = decide(slots, [ALICE], RULES)
    assert made.reasons[1].endswith(": all there are on alpha and beta, and other machines share no run with them")
    large = replace(CAROL, min_slots=9, max_slots=12)
    assert decide(slots, [large], RULES).reasons[3].endswith("only 8 are in service on machines that can share a run")


def test_a_run_whose_drivers_machine_is_not_heard_of_keeps_all_it_has_everywhere() -> None:
    lost = on(replace(ALICE, pinned=True), 1, 2, 5, node="alpha")
    slots = [replace(slot, draining=slot.id in (3, 4)) for slot in PAIR]
    made = decide(slots, [lost, BOB], RULES)
    assert made.grants == {1: frozenset({1, 2, 5}), 2: frozenset({6, 7, 8})}
    assert made.reasons[1].endswith(": alpha is offline, so nothing changes there until it is back")


@pytest.mark.parametrize("rules", [RULES, PRIORITY])
def test_many_machines_are_summed_up(rules: Rules) -> None:
    pool = "a, b and 3 others"
    slots = [slot for number, node in enumerate("abcde") for slot in machine(2, node=node, first=1 + 2 * number, pool=pool)]
    made = decide(slots, [ALICE], rules)
    assert made.reasons[1].startswith("starts with 10 of 10 slots, 2 on a, 2 on b and 6 on 3 others: ")


@st.composite
def pooled(draw: st.DrawFn) -> Facts:
    """Some machines of a class of slots share runs, some runs cannot use all of them."""
    slots, rules = draw(some_slots()), replace(draw(some_rules()), one_machine=True)
    nodes = {slot.node: slot.device for slot in slots}
    shares = {node for node in sorted(nodes) if draw(st.integers(0, 3))}
    slots = [replace(slot, pool=f"all {slot.device}" if slot.node in shares else "") for slot in slots]
    runs = draw(some_runs(slots, rules))
    domain = {slot.node: slot.pool for slot in slots}
    largest = min(sum(slot.node == node for slot in slots) for node in nodes)
    found = []
    for run in runs:
        pool = domain.get(str(run.node), "")
        alone = run.min_slots <= largest and draw(st.integers(0, 3)) == 0
        avoids = frozenset(node for node in sorted(nodes) if draw(st.integers(0, 7)) == 0)
        found.append(replace(run, pool=pool, alone=alone, avoids=avoids if pool else frozenset()))
    return slots, found, rules


def carried_out(made: Plan, slots: Sequence[SlotFacts], runs: Sequence[RunFacts]) -> tuple[list[SlotFacts], list[RunFacts]]:
    owner = {slot: run for run, granted in made.grants.items() for slot in granted}
    of = {slot.id: slot for slot in slots}
    found = []
    for run in runs:
        domains = {of[slot].domain for slot in made.grants[run.id]}
        if domains - {run.domain}:
            first = of[min(made.grants[run.id])]
            run = replace(run, node=first.node, pool=first.pool)
        found.append(replace(run, held=made.grants[run.id]))
    return [replace(slot, holder=owner.get(slot.id)) for slot in slots], found


@given(pooled())
@settings(max_examples=EXAMPLES, deadline=None)
def test_a_run_has_slots_of_one_room_and_none_that_it_cannot_use(facts: Facts) -> None:
    slots, runs, rules = facts
    made = decide(slots, runs, rules)
    fit = {slot.id: slot for slot in slots if not slot.draining}
    given_out = [slot for granted in made.grants.values() for slot in granted]
    assert len(given_out) == len(set(given_out))
    assert set(given_out) <= set(fit)
    for run in runs:
        granted = made.grants[run.id]
        least, most = bounds(run)
        assert not granted or (least <= len(granted) <= most and not run.paused)
        assert len({(fit[slot].device, fit[slot].domain) for slot in granted}) <= 1
        machines = {fit[slot].node for slot in granted}
        assert not machines & run.avoids
        assert len(machines) <= 1 or not run.alone
        assert made.reasons[run.id]


@given(pooled())
@settings(max_examples=EXAMPLES, deadline=None)
def test_a_plan_among_pools_comes_to_rest(facts: Facts) -> None:
    slots, runs, rules = facts
    made = decide(slots, runs, rules)
    for _ in range(len(runs) + 3):
        slots, runs = carried_out(made, slots, runs)
        before, made = made, decide(slots, runs, rules)
        if before.grants == made.grants:
            assert decide(slots, runs, rules) == made
            return
    raise AssertionError("it keeps changing")


@given(pooled(), st.integers())
@settings(max_examples=EXAMPLES, deadline=None)
def test_the_order_of_the_facts_does_not_matter_among_pools_either(facts: Facts, seed: int) -> None:
    slots, runs, rules = facts
    shuffled_slots, shuffled_runs = list(slots), list(runs)
    Random(seed).shuffle(shuffled_slots)
    Random(seed + 1).shuffle(shuffled_runs)
    assert decide(shuffled_slots, shuffled_runs, rules) == decide(slots, runs, rules)
