"""What will become of everybody's slots: small futures that can be worked out by hand, and what holds for every one of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.scheduling.cast import FAIR, PRIORITY, a_run, decide, machine
from tests.scheduling.drawn_facts import EXAMPLES, Facts, some_facts
from training_runtime.scheduling.ageing import AGEING_S
from training_runtime.scheduling.demands import Memory
from training_runtime.scheduling.facts import Rules, RunFacts, SlotFacts
from training_runtime.scheduling.moves import cost_s
from training_runtime.scheduling.plan import allocate
from training_runtime.scheduling.simulation import Bar, Change, Course, Job, Scene, Work, rate_on, simulate
from training_runtime.scheduling.what_if import NEW_RUN, NewRun, Wish, wished

NOW = 1000.0
ONE_MACHINE = Rules(one_machine=True)


def a_job(number: int, person: str, left: float | None, *, rates: dict[int, float] | None = None, **more: object) -> Job:
    """Run `number`, whose process is on n1, with `left` units of which a slot does one a second."""
    facts = a_run(number, person, **({"node": "n1", "max_slots": 4, "engines": 4} | more))
    return Job(facts, Work(left, rates or {1: 1.0}))


def four(*jobs: Job, rules: Rules = FAIR, changes: Sequence[Change] = ()) -> Scene:
    return Scene(tuple(machine(4)), jobs, rules, tuple(changes))


def done(course: Course, run: int, work: Work, engines: int | None, until: float) -> float:
    """How much of its work the run has done by the bars alone."""
    bars = [bar for bar in course.bars if bar.run == run]
    moments = sorted({bar.begin for bar in bars} | {until if bar.end is None else bar.end for bar in bars})
    total = 0.0
    for begin, end in pairwise(moments):
        held = sum(bar.begin <= begin and (bar.end is None or bar.end >= end) for bar in bars)
        total += (end - begin) * rate_on(held, work, engines=engines)
    return total


def test_a_run_that_is_alone_ends_when_today_says_so():
    held = frozenset({1, 2})
    job = a_job(1, "alice", 100.0, rates={2: 0.5}, held=held, max_slots=2, remaining_s=200.0)
    course = simulate(four(job), now=NOW)
    assert course.ends == {1: NOW + 200}
    assert {(bar.slot, bar.begin, bar.end) for bar in course.bars} == {(1, NOW, NOW + 200), (2, NOW, NOW + 200)}


def test_a_run_grows_when_another_ends():
    jobs = a_job(1, "alice", 80.0, held=frozenset({1, 2})), a_job(2, "bob", 20.0, held=frozenset({3, 4}))
    course = simulate(four(*jobs), now=NOW)
    assert course.ends == {2: NOW + 10, 1: NOW + 10 + 60 / 4}


def test_a_run_waits_until_the_plan_expects_it():
    first = a_job(1, "alice", 100.0, min_slots=4, held=frozenset({1, 2, 3, 4}), remaining_s=25.0)
    second = a_job(2, "alice", 40.0, min_slots=4)
    scene = four(first, second)
    course = simulate(scene, now=NOW)
    expected = decide(scene.slots, [first.facts, second.facts]).queue[2].expected_s
    assert course.begins[2] == NOW + expected == NOW + 25
    assert course.ends[2] == NOW + 35


def test_a_run_whose_work_nobody_knows_stays_and_has_no_end():
    course = simulate(four(a_job(1, "alice", None), a_job(2, "alice", 20.0)), now=NOW)
    assert set(course.ends) == {2}
    assert {bar.end for bar in course.bars if bar.run == 1} >= {None}


def test_a_start_on_another_machine_costs_what_the_script_takes_to_train():
    course = simulate(Scene(tuple(machine(1)), (a_job(1, "alice", 10.0, node=None, prologue_s=7.0),), ONE_MACHINE), now=NOW)
    assert course.ends == {1: NOW + 10 + 9}


def test_a_run_that_nobody_lets_in_goes_first_when_it_has_waited_too_long():
    """Its owner holds something, so age alone does not bring its turn: see `ageing`."""
    small = [a_job(number, "bob", None, max_slots=1, held=frozenset({number})) for number in (1, 2, 3)]
    large = [a_job(4, "alice", None, max_slots=1, held=frozenset({4})), a_job(5, "alice", 1e9, min_slots=3)]
    course = simulate(four(*small, *large), now=NOW, until=NOW + 2 * AGEING_S)
    assert course.begins[5] == NOW + AGEING_S


@pytest.mark.parametrize(
    ("held", "rates", "engines", "expected"),
    [
        (2, {2: 3.0, 4: 5.0}, 4, 3.0),  # as measured
        (1, {2: 3.0, 4: 5.0}, 4, 1.5),
        (4, {2: 3.0}, 4, 6.0),
        (3, {2: 3.0}, 4, 3.0),  # three workers are no faster than two
        (3, {2: 3.0}, None, 4.5),
        (0, {2: 3.0}, 4, 0.0),
        (2, {}, 4, 0.0),
    ],
)
def test_a_rate_is_the_measured_one_or_the_nearest_in_proportion(held, rates, engines, expected):
    assert rate_on(held, Work(1.0, rates), engines=engines) == expected


def test_what_changes_later_changes_later():
    drained = tuple(replace(slot, draining=slot.id > 2) for slot in machine(4))
    scene = four(a_job(1, "alice", 100.0, held=frozenset({1, 2, 3, 4})), changes=[Change(NOW + 10, slots=drained)])
    assert simulate(scene, now=NOW).ends == {1: NOW + 10 + 60 / 2}
    scene = four(a_job(1, "alice", 40.0), a_job(2, "bob", 40.0, priority=6000), changes=[Change(NOW + 10, rules=PRIORITY)])
    assert simulate(scene, now=NOW).ends == {2: NOW + 10 + 20 / 4, 1: NOW + 15 + 20 / 4}


def test_wishes_change_what_they_say():
    shared = {"engines": None, "max_slots": 8}
    jobs = a_job(1, "alice", 120.0, held=frozenset({1, 2}), **shared), a_job(2, "bob", 120.0, held=frozenset({3, 4}), **shared)
    scene = replace(four(*jobs), rules=ONE_MACHINE)
    before = simulate(scene, now=NOW).ends
    heavier = simulate(wished(scene, Wish(person_weights={"bob": 3.0})), now=NOW)
    assert heavier.ends == {2: NOW + 40, 1: NOW + 40 + 80 / 4}
    one_more = simulate(wished(scene, Wish(more=1, like="n1")), now=NOW)
    assert all(one_more.ends[run] < before[run] for run in before)
    assert {bar.slot for bar in one_more.bars} & {-1, -2, -3, -4}
    drained = simulate(wished(scene, Wish(without=frozenset({"n1"}))), now=NOW)
    assert (drained.ends, drained.bars) == ({}, ())
    later = wished(scene, Wish(run=NewRun("carol", NOW + 5, lasts_s=10.0, max_slots=4)))
    course = simulate(later, now=NOW)
    assert course.begins[NEW_RUN] == NOW + 5
    assert sum(course.ends[run] for run in before) > sum(before.values()), "what it holds the others do not"
    assert simulate(wished(scene, Wish()), now=NOW).ends == before


def test_a_new_machine_has_what_the_one_has_that_it_is_like():
    job = a_job(1, "alice", 10.0, ready_in=frozenset({"n1"}), isolated_in=frozenset({"n1"}))
    other = a_job(2, "bob", 10.0, ready_in=frozenset({"n2"}))
    made = wished(replace(four(job, other), rules=ONE_MACHINE), Wish(more=1, like="n1"))
    assert made.jobs[0].facts.ready_in == made.jobs[0].facts.isolated_in == frozenset({"n1", "n1 (new 1)"})
    assert made.jobs[1].facts.ready_in == frozenset({"n2"})


def test_decisions_that_are_far_apart_keep_all_work():
    jobs = [a_job(number, "alice" if number % 2 else "bob", 50.0 + 7 * number, max_slots=2, engines=2) for number in range(1, 9)]
    fine, coarse = simulate(four(*jobs), now=NOW), simulate(four(*jobs), now=NOW, grain=0.3)
    assert coarse.decisions < fine.decisions
    assert coarse.ends.keys() == fine.ends.keys()
    for job in jobs:
        assert done(coarse, job.facts.id, job.work, 2, coarse.until) == pytest.approx(job.work.left)


# What holds for all of them.


@st.composite
def scenes(draw: st.DrawFn) -> Scene:
    slots, runs, rules = draw(some_facts())
    jobs = []
    for run in runs:
        left = draw(st.sampled_from([None, 5.0, 60.0, 700.0]))
        rates = draw(st.sampled_from([{1: 1.0}, {2: 1.5}, {1: 1.0, 3: 2.0}]))
        jobs.append(Job(replace(run, submitted_at=run.submitted_at + draw(st.sampled_from([0.0, 0.0, NOW + 20]))), Work(left, rates)))
    held = {slot for job in jobs for slot in job.facts.held if job.facts.submitted_at > NOW}
    jobs = [replace(job, facts=replace(job.facts, held=frozenset(), pinned=False)) if job.facts.held & held else job for job in jobs]
    return Scene(tuple(slots), tuple(jobs), rules)


def at_once(bars: Sequence[Bar]) -> bool:
    """Whether any two of one slot's bars are there at once."""
    ordered = sorted(bars, key=lambda bar: bar.begin)
    return any(before.end is None or before.end > after.begin for before, after in pairwise(ordered))


@given(scenes(), st.sampled_from([0.0, 0.1]))
@settings(max_examples=EXAMPLES, deadline=None)
def test_no_more_is_given_than_there_is_and_all_work_is_done(scene, grain):
    course = simulate(scene, now=NOW, until=NOW + 5000, grain=grain)
    facts = {job.facts.id: job.facts for job in scene.jobs}
    assert {bar.slot for bar in course.bars} <= {slot.id for slot in scene.slots}
    for slot in scene.slots:
        assert not at_once([bar for bar in course.bars if bar.slot == slot.id])
    for bar in course.bars:
        assert bar.end is None or bar.begin < bar.end <= course.until
        assert bar.begin >= max(NOW, facts[bar.run].submitted_at)
        assert bar.end is None or bar.end <= course.ends.get(bar.run, math.inf) + 1e-6
    for job in scene.jobs:
        work, made = job.work, done(course, job.facts.id, job.work, job.facts.engines, course.until)
        if work.left is None:
            assert job.facts.id not in course.ends
        elif job.facts.id in course.ends:
            moved = scene.rules.one_machine  # then a part of the time was the script's start
            assert made >= work.left - 1e-3
            assert moved or made == pytest.approx(work.left, rel=1e-6)
        else:
            assert made <= work.left + cost_s(job.facts) * 100 + 1e-3


@given(some_facts())
@settings(max_examples=EXAMPLES, deadline=None)
def test_it_begins_with_the_very_decision_of_the_plan(facts: Facts):
    slots, runs, rules = facts
    holders = {slot: run.id for run in runs for slot in run.held}
    slots = [replace(slot, holder=holders.get(slot.id)) for slot in slots]
    made = decide(slots, runs, rules)
    assert allocate(slots, runs, now=1000.0, rules=rules) == (made.grants, made.favoured)
    course = simulate(Scene(tuple(slots), tuple(Job(run) for run in runs), rules), now=1000.0, until=1000.0)
    first: dict[int, set[int]] = {run.id: set() for run in runs}
    for bar in course.bars:
        first[bar.run].add(bar.slot)
    assert {run: set(granted) for run, granted in made.grants.items()} == first


@given(some_facts(), st.data())
@settings(max_examples=EXAMPLES, deadline=None)
def test_who_remembers_decides_the_same(facts: Facts, data: st.DataObject):
    """What a simulation remembers from one decision to the next is what it would find again."""
    slots, runs, rules = facts
    memory, now = Memory(), 1000.0
    for _ in range(3):
        remembered = allocate(slots, runs, now=now, rules=rules, memory=memory)
        grants, favoured = allocate(slots, runs, now=now, rules=rules)
        assert remembered == (grants, favoured)
        ended = data.draw(st.sets(st.sampled_from([run.id for run in runs]))) if runs else set()
        runs = [run if run.held == grants[run.id] else replace(run, held=grants[run.id]) for run in runs if run.id not in ended]
        holders = {slot: run.id for run in runs for slot in run.held}
        drained = data.draw(st.sets(st.sampled_from([slot.id for slot in slots if slot.id not in holders] or [0])))
        slots = [replace(slot, holder=holders.get(slot.id), draining=slot.draining or slot.id in drained) for slot in slots]
        now += data.draw(st.sampled_from([1.0, 700.0]))


@given(scenes())
@settings(max_examples=EXAMPLES, deadline=None)
def test_without_a_wish_the_future_is_that_of_today(scene: Scene):
    until = NOW + 3000
    assert simulate(wished(scene, Wish()), now=NOW, until=until) == simulate(scene, now=NOW, until=until)


@given(st.lists(st.floats(1, 500), min_size=1, max_size=12), st.integers(1, 4))
@settings(max_examples=EXAMPLES, deadline=None)
def test_one_more_slot_makes_no_run_of_a_queue_later(lefts: list[float], count: int):
    """One person's runs of one slot each start by age, so it holds for them; with larger ones it need not (Graham's anomalies)."""
    runs = [RunFacts(id=number, name="", person="alice", project="", submitted_at=float(number)) for number in range(len(lefts))]
    jobs = tuple(Job(run, Work(left, {1: 1.0})) for run, left in zip(runs, lefts, strict=True))
    fewer, more = (tuple(SlotFacts(id=slot, node="n1", device="gpu") for slot in range(n)) for n in (count, count + 1))
    before, after = (simulate(Scene(slots, jobs, FAIR), now=NOW).ends for slots in (fewer, more))
    assert all(after[run] <= before[run] + 1e-6 for run in before)
