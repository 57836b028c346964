"""What holds for every plan, whatever the facts: searched for counterexamples with hypothesis."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from random import Random

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.scheduling.cast import applied, decide
from tests.scheduling.drawn_facts import EXAMPLES, PEOPLE, plain_facts, some_facts
from training_runtime.scheduling.facts import Plan, Rules, RunFacts, SlotFacts
from training_runtime.scheduling.plan import plan
from training_runtime.scheduling.sizes import bounds, next_size


def usable(slots: Sequence[SlotFacts]) -> dict[int, SlotFacts]:
    return {slot.id: slot for slot in slots if not slot.draining}


def left_for(run: RunFacts, made: Plan, slots: Sequence[SlotFacts], rules: Rules) -> int:
    """How many free slots the run could get at once: of the class, and on the machine, that it is on; of any where it has none."""
    fit = usable(slots)
    granted = {slot for of_run in made.grants.values() for slot in of_run}
    own = [fit[slot] for slot in made.grants[run.id]]
    free = Counter(
        (slot.device, slot.node if rules.one_machine else "")
        for slot in fit.values()
        if slot.id not in granted
        and (slot.device == run.device or run.device is None)
        and all(slot.device == mine.device and (slot.node == mine.node or not rules.one_machine) for mine in own)
    )
    return max(free.values(), default=0)


def moves(made: Plan, slots: Sequence[SlotFacts], runs: Sequence[RunFacts]) -> bool:
    """Whether a run goes to another machine while it holds slots on its own: what it leaves is shared out by the next plan."""
    node = {slot.id: slot.node for slot in slots}
    return any(run.held and not {node[slot] for slot in made.grants[run.id]} <= {run.node} for run in runs if run.node is not None)


def at_rest(made: Plan, slots: Sequence[SlotFacts], runs: Sequence[RunFacts], rules: Rules) -> tuple[Plan, list[SlotFacts], list[RunFacts]]:
    """The plan once no run moves to another machine any more, and its facts: each plan moves at most one that could stay."""
    slots, runs = list(slots), list(runs)
    for _ in range(len(runs) + 1):
        if not moves(made, slots, runs):
            return made, slots, runs
        slots, runs = applied(made, slots, runs)
        made = decide(slots, runs, rules)
    raise AssertionError("the runs keep moving")


def quota_left(made: Plan, run: RunFacts, runs: Sequence[RunFacts], rules: Rules) -> float:
    by_person = sum(len(made.grants[each.id]) for each in runs if each.person == run.person)
    by_project = sum(len(made.grants[each.id]) for each in runs if each.project == run.project)
    return min(rules.person_quota.get(run.person, math.inf) - by_person, rules.project_quota.get(run.project, math.inf) - by_project)


@given(some_facts())
@settings(max_examples=EXAMPLES, deadline=None)
def test_no_slot_is_given_twice_or_while_draining_or_to_the_wrong_run(facts):
    slots, runs, rules = facts
    made = decide(slots, runs, rules)
    fit = usable(slots)
    given_out = [slot for of_run in made.grants.values() for slot in of_run]
    assert len(given_out) == len(set(given_out))
    assert set(given_out) <= set(fit)
    assert set(made.grants) == set(made.reasons) == {run.id for run in runs}
    for run in runs:
        kinds = {fit[slot].device for slot in made.grants[run.id]}
        assert len(kinds) <= 1
        assert run.device is None or kinds <= {run.device}
        assert len({fit[slot].node for slot in made.grants[run.id]}) <= 1 or not rules.one_machine


@given(some_facts())
@settings(max_examples=EXAMPLES, deadline=None)
def test_a_run_has_nothing_or_a_size_between_its_minimum_and_maximum_and_quotas_hold(facts):
    slots, runs, rules = facts
    made = decide(slots, runs, rules)
    for run in runs:
        least, most = bounds(run)
        size = len(made.grants[run.id])
        if run.pinned:
            assert made.grants[run.id] == run.held
            continue
        assert size == 0 or (least <= size <= most and not run.paused)
        if run.engines is not None and size > least:
            assert -(-run.engines // size) < -(-run.engines // (size - 1)), "every slot above the minimum makes the run faster"
        if size and not any(other.pinned for other in runs):
            assert quota_left(made, run, runs, rules) >= 0


@given(some_facts())
@settings(max_examples=EXAMPLES, deadline=None)
def test_no_slot_is_left_that_a_run_could_use(facts):
    slots, runs, rules = facts
    made, slots, runs = at_rest(decide(slots, runs, rules), slots, runs, rules)
    for run in runs:
        if run.paused or run.pinned:
            continue
        least, most = bounds(run)
        size = len(made.grants[run.id])
        step = (next_size(size, engines=run.engines, most=most) or math.inf) - size if size else least
        assert step > left_for(run, made, slots, rules) or step > quota_left(made, run, runs, rules)


@given(some_facts(), st.integers())
@settings(max_examples=EXAMPLES, deadline=None)
def test_the_same_facts_in_any_order_give_the_same_answer(facts, seed):
    slots, runs, rules = facts
    shuffled_slots, shuffled_runs = list(slots), list(runs)
    Random(seed).shuffle(shuffled_slots)
    Random(seed + 1).shuffle(shuffled_runs)
    assert decide(shuffled_slots, shuffled_runs, rules) == decide(slots, runs, rules)


@given(some_facts())
@settings(max_examples=EXAMPLES, deadline=None)
def test_a_plan_that_is_carried_out_changes_nothing_any_more(facts):
    slots, runs, rules = facts
    made, slots, runs = at_rest(decide(slots, runs, rules), slots, runs, rules)
    settled = decide(*applied(made, slots, runs), rules)
    assert settled.grants == made.grants
    assert settled.queue == made.queue
    again = decide(*applied(settled, slots, runs), rules)
    assert again == settled, "reasons too stay letter by letter the same"


@given(plain_facts(), st.data())
@settings(max_examples=EXAMPLES, deadline=None)
def test_a_plan_half_carried_out_still_leads_to_the_same_end(facts, data):
    """What is free is granted at once, what others must leave arrives one by one: the plan must not waver on the way.

    Where a run loses its machine and ties with another for its next one, the tie may fall either way until it is decided.
    """
    slots, runs, rules = facts
    runs = [replace(run, person=f"person-{run.id}") for run in runs]
    holder = {slot: run.id for run in runs for slot in run.held}
    slots = [replace(slot, holder=holder.get(slot.id)) for slot in slots]
    made = decide(slots, runs, rules)
    node = {slot.id: slot.node for slot in slots}
    assume(not rules.one_machine or not moves(made, slots, runs))
    gone = {slot for slot, run in sorted(holder.items()) if slot not in made.grants[run] and data.draw(st.booleans())}
    slots = [replace(slot, holder=None) if slot.id in gone else slot for slot in slots]
    on_the_way = []
    for run in runs:
        granted = made.grants[run.id]
        arrived = {slot for slot in granted - run.held if slot not in holder or slot in gone}
        home = min((node[slot] for slot in granted), default=run.node) if rules.one_machine else None
        on_the_way.append(replace(run, held=(run.held & granted) | arrived, node=home))
        slots = [replace(slot, holder=run.id) if slot.id in arrived else slot for slot in slots]
    meanwhile = decide(slots, on_the_way, rules)
    assert {run: len(granted) for run, granted in meanwhile.grants.items()} == {run: len(granted) for run, granted in made.grants.items()}


@given(plain_facts())
@settings(max_examples=EXAMPLES, deadline=None)
def test_under_fair_share_nobody_with_a_lower_claim_holds_more(facts):
    """Nobody who wants more has two slots less than somebody else."""
    slots, runs, _ = facts
    made = decide(slots, runs)
    wants, has = Counter(), Counter()
    for run in runs:
        has[run.person] += len(made.grants[run.id])
        wants[run.person] += 0 if run.paused else run.max_slots
    for person in wants:
        if has[person] < wants[person]:
            assert all(has[other] <= has[person] + 1 for other in has)


@given(plain_facts())
@settings(max_examples=EXAMPLES, deadline=None)
def test_a_person_starts_another_run_before_growing_one(facts):
    slots, runs, _ = facts
    made = decide(slots, runs)
    for person in PEOPLE:
        own = [len(made.grants[run.id]) for run in runs if run.person == person and not run.paused]
        assert 0 not in own or max(own) <= 1


@given(plain_facts())
@settings(max_examples=EXAMPLES, deadline=None)
def test_a_higher_priority_never_waits_while_a_lower_one_runs(facts):
    slots, runs, _ = facts
    made = decide(slots, runs, Rules(policy="priority"))
    for run in runs:
        if not run.paused and len(made.grants[run.id]) < run.max_slots:
            assert not any(made.grants[other.id] for other in runs if other.priority < run.priority)


@given(plain_facts(), st.data())
@settings(max_examples=EXAMPLES, deadline=None)
def test_raising_a_runs_priority_never_costs_it_a_slot(facts, data):
    """On one of several machines it may: a run that another displaces goes where there is room; one that is its equal shares with it."""
    slots, runs, rules = facts
    which = data.draw(st.integers(0, len(runs) - 1))
    raised = [
        replace(run, priority=min(10_000, run.priority + data.draw(st.sampled_from([500, 1000, 4000])))) if index == which else run
        for index, run in enumerate(runs)
    ]
    before, after = (len(decide(slots, those, rules).grants[runs[which].id]) for those in (runs, raised))
    assert after >= (min(before, 1) if rules.one_machine else before)


@given(some_facts(), st.data())
@settings(max_examples=EXAMPLES, deadline=None)
def test_the_highest_priority_alone_gets_all_it_can_use(facts, data):
    """With minimums, engines, quotas and kinds of slots as well: a run above all others has what it would have alone.

    It says which kind it needs: a run that takes any chooses by what the others insist on.
    """
    slots, runs, rules = facts
    which = data.draw(st.sampled_from(runs))
    assume(not any(run.pinned for run in runs))
    highest = [replace(run, priority=10_000, device=run.device or "gpu") if run.id == which.id else run for run in runs]
    rules = replace(rules, policy="priority")
    itself = [run for run in highest if run.id == which.id]
    alone = decide(slots, itself, rules)
    assume(not moves(alone, slots, itself))  # it goes to another machine for more only where that lies idle
    assert len(decide(slots, highest, rules).grants[which.id]) == len(alone.grants[which.id])


@given(some_facts())
@settings(max_examples=EXAMPLES, deadline=None)
def test_the_queue_numbers_the_waiting_runs_without_gaps(facts):
    slots, runs, rules = facts
    made = decide(slots, runs, rules)
    waiting = {run.id for run in runs if not made.grants[run.id] and not run.paused}
    assert set(made.queue) == waiting
    assert sorted(place.position for place in made.queue.values()) == list(range(1, len(waiting) + 1))


@given(st.integers(2, 8), st.booleans(), st.data())
@settings(max_examples=EXAMPLES, deadline=None)
def test_nobody_waits_for_ever_however_many_smaller_runs_keep_coming(count: int, one_machine: bool, data: st.DataObject) -> None:
    """Every half minute a run ends and a younger one of somebody else is there; the large run still gets its turn, and keeps it a while."""
    slots = [SlotFacts(id=number, node=f"n{number // 4}", device="gpu") for number in range(count)]
    rules = Rules(policy=data.draw(st.sampled_from(["fair_share", "priority"])), one_machine=one_machine)
    runs = [_small(number, data) for number in range(1, data.draw(st.integers(1, 6)) + 1)]
    least = data.draw(st.integers(1, min(4, count) if one_machine else count))
    large = replace(_small(100, data), person=data.draw(st.sampled_from(PEOPLE)), min_slots=least, max_slots=count)
    slots, runs = applied(decide(slots, runs, rules), slots, runs)
    runs.append(replace(large, waits_since=0.0))
    held_since = None
    for newcomer in range(101, 150):
        now = 30.0 * (newcomer - 101)
        made = plan(slots, runs, now=now, rules=rules)
        slots, runs = applied(made, slots, runs)
        if any(run.held for run in runs if run.id == large.id):
            held_since = now if held_since is None else held_since
            if now - held_since >= 300.0:
                return
        else:
            assert held_since is None or least == 1 or large.id not in made.favoured, "its turn was taken away"
            held_since = None
        runs = [replace(run, favoured_since=now) if run.id in made.favoured and run.favoured_since is None else run for run in runs]
        others = [run for run in runs if run.held and run.id != large.id]
        if others:
            ends = data.draw(st.sampled_from(others))
            slots = [replace(slot, holder=None) if slot.id in ends.held else slot for slot in slots]
            runs = [run for run in runs if run.id != ends.id]
        runs.append(_small(newcomer, data))
    raise AssertionError("it still waits")


def _small(number: int, data: st.DataObject) -> RunFacts:
    person = data.draw(st.sampled_from(PEOPLE[:3]))
    most = data.draw(st.integers(1, 4))
    return RunFacts(id=number, name=f"run-{number}", person=person, project="digits", submitted_at=float(number), max_slots=most)
