"""Where a run may go on: not at any price, never on a machine of another kind, and not where its process cannot come."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.scheduling.cast import a_run, applied, decide, machine, sizes
from tests.scheduling.drawn_facts import EXAMPLES, Facts, some_facts
from training_runtime.scheduling.facts import Rules, RunFacts, SlotFacts
from training_runtime.scheduling.moves import has_just_moved
from training_runtime.scheduling.plan import plan

NOW = 1000.0  # of `decide`
ONE = Rules(one_machine=True)
ONE_PRIORITY = replace(ONE, policy="priority")
TWO = [*machine(4, node="n1"), *machine(4, node="n2", first=5)]
FOUR = {"max_slots": 4, "engines": 4}


def kinds(*, second: str) -> list[SlotFacts]:
    return [*machine(4, node="n1", kind="H100"), *machine(4, node="n2", first=5, kind=second)]


def crowded(slots: list[SlotFacts], **more: object) -> list[RunFacts]:
    """Alice and Bob with two of the four slots of n1 each."""
    both = [a_run(number, person, held=frozenset({first, first + 1}), node="n1", **FOUR | more) for number, person, first in PAIR]
    assert not {slot for run in both for slot in run.held} - {slot.id for slot in slots}
    return both


PAIR = ((1, "alice", 1), (2, "bob", 3))


@pytest.mark.parametrize(
    ("facts", "goes"),
    [
        ({}, True),
        ({"prologue_s": 60.0}, True),  # nobody knows how long it has to go
        ({"prologue_s": 60.0, "remaining_s": 600.0}, False),  # it would save 300 s and lose 62
        ({"prologue_s": 60.0, "remaining_s": 800.0}, True),
        ({"prologue_s": 1.0, "remaining_s": 50.0}, True),
        ({"prologue_s": 60.0, "moved_at": NOW - 600.0}, False),
        ({"prologue_s": 60.0, "moved_at": NOW - 630.0}, True),
        ({"stays": True}, False),
    ],
)
def test_a_run_goes_where_more_is_free_if_that_saves_several_times_its_cost(facts: dict[str, object], goes: bool) -> None:
    made = decide(TWO, crowded(TWO, **facts), ONE)
    assert sizes(made) == ({1: 4, 2: 2} if goes else {1: 2, 2: 2})


def test_a_run_that_has_just_moved_waits_where_it_is_for_the_one_that_took_its_slots() -> None:
    """The other machine has room for it, and a short job would make it begin anew there."""
    alice = a_run(1, "alice", held=frozenset({1, 2}), node="n1", max_slots=2, engines=2)
    bob = a_run(2, "bob", held=frozenset({5, 6}), node="n2", moved_at=NOW - 100.0, prologue_s=60.0, max_slots=2, engines=2)
    large = a_run(3, "carol", min_slots=4, max_slots=4, priority=9000, held=frozenset({7, 8}), node="n2")
    made = decide(TWO, [alice, bob, large], ONE_PRIORITY)
    assert sizes(made) == {1: 2, 2: 0, 3: 4}
    assert "none are free on n2, where it has just moved to: to go on elsewhere would cost it more than to wait" in made.reasons[2]
    settled = decide(*applied(made, TWO, [alice, replace(bob, moved_at=NOW - 700.0), large]), ONE_PRIORITY)
    assert settled.grants[2] == frozenset({3, 4}), "in the end it goes"


def test_it_goes_at_once_where_its_machine_is_taken_out_of_service() -> None:
    slots = [*machine(4, node="n1", draining=True), *machine(4, node="n2", first=5)]
    alice = a_run(1, "alice", held=frozenset({1, 2}), node="n1", moved_at=NOW - 1.0, prologue_s=60.0, **FOUR)
    assert decide(slots, [alice], ONE).grants[1] == frozenset({5, 6, 7, 8})


@dataclass
class Simulated:
    """A run in a little world: when its script is past its prologue, and what it has done."""

    facts: RunFacts
    ready_at: float = 0.0
    steps: int = 0
    moves: int = 0


def test_short_jobs_do_not_keep_the_others_moving() -> None:
    """Two machines, two long runs whose scripts take a minute to begin, and a job of ten seconds that needs a whole machine every 30 s."""
    long = {number: Simulated(a_run(number, person, prologue_s=60.0, min_slots=1, **FOUR)) for number, person in ((1, "alice"), (2, "bob"))}
    job, ends_at, slots = None, 0.0, TWO
    for second in range(3000):
        now = float(second)
        if second % 30 == 0 and job is None:
            job = a_run(100 + second, "carol", min_slots=4, max_slots=4, submitted_at=now, priority=9000)
        runs = [each.facts for each in long.values()] + ([job] if job else [])
        made = plan(slots, runs, now=now, rules=ONE_PRIORITY)
        slots, runs = applied(made, slots, runs)
        for run in runs[:2]:
            one = long[run.id]
            if run.held and run.node != one.facts.node:
                one.moves, one.ready_at, run = one.moves + 1, now + 60, replace(run, moved_at=now)
            one.facts = run
            one.steps += len(run.held) if now >= one.ready_at else 0
        if job is not None:
            had, job = job.held, runs[2]
            ends_at = now + 10 if job.held and not had else ends_at
            if job.held and now >= ends_at:
                slots, job = [replace(slot, holder=None) if slot.holder == job.id else slot for slot in slots], None
    assert all(each.moves <= 1 + 3000 / 600 for each in long.values()), {each.facts.name: each.moves for each in long.values()}
    assert all(each.steps >= 3000 for each in long.values())


def test_a_run_does_not_go_to_a_machine_of_another_kind() -> None:
    runs = crowded(kinds(second="T4"), kind="H100")
    assert sizes(decide(kinds(second="T4"), runs, ONE)) == {1: 2, 2: 2}
    assert sizes(decide(kinds(second="H100"), runs, ONE)) == {1: 4, 2: 2}


def test_a_run_that_lost_its_slots_waits_for_a_machine_of_its_kind() -> None:
    alice = a_run(1, "alice", node="n1", kind="H100", **FOUR)
    bob = a_run(2, "bob", held=frozenset({1, 2, 3, 4}), node="n1", min_slots=4, remaining_s=120.0, **FOUR)
    made = decide(kinds(second="T4"), [bob, replace(alice, submitted_at=3.0)], ONE)
    assert sizes(made) == {1: 0, 2: 4}
    assert made.reasons[1] == (
        "waits: needs 1 slot, and none are free on n1, the machines of the kind that it has trained on: "
        "on another its results would differ; first in the queue; expected in about 2 min, when bob's run run-2 ends"
    )
    assert decide(kinds(second="T4"), [bob, replace(alice, submitted_at=3.0, kind="")], ONE).grants[1], "it has not trained yet"


def test_a_run_whose_kind_is_gone_says_what_a_person_can_do() -> None:
    alice = a_run(1, "alice", kind="H100", node="n0", **FOUR)
    made = decide([*machine(4, node="n2", kind="T4"), *machine(1, node="n3", first=9, kind="A100")], [alice], ONE)
    assert sizes(made) == {1: 0}
    assert made.reasons[1].endswith("on another its results would differ; its owner can allow other kinds of machines")


def test_a_script_that_cannot_migrate_is_promised_nothing_elsewhere() -> None:
    """Its machine is taken out of service: what it could never use there is for others."""
    slots = [*machine(4, node="n1", draining=True), *machine(4, node="n2", first=5)]
    script = a_run(1, "alice", node="n1", stays=True, max_slots=4)
    other = a_run(2, "bob", **FOUR)
    made = decide(slots, [script, other], ONE)
    assert sizes(made) == {1: 0, 2: 4}
    assert "where its script is at work: it has not come to train(), so it cannot go on elsewhere" in made.reasons[1]


@st.composite
def bound_facts(draw: st.DrawFn) -> Facts:
    """Where some runs cannot use every machine."""
    slots, runs, _ = draw(some_facts().filter(lambda facts: facts[2].one_machine))
    kind = {node: draw(st.sampled_from(["", "new", "old"])) for node in sorted({slot.node for slot in slots})}
    slots = [replace(slot, kind=kind[slot.node]) for slot in slots]
    changed = []
    for run in runs:
        own = kind.get(run.node or "", "")
        trained = draw(st.sampled_from(["", own or "new", "new"])) if not run.held else own
        moved_at = draw(st.sampled_from([None, NOW - 1000.0, NOW - 1.0])) if run.engines is not None else None
        changed.append(replace(run, kind=trained, moved_at=moved_at, stays=run.engines is None and draw(st.integers(0, 3)) == 0))
    return slots, changed, Rules(one_machine=True, policy=draw(st.sampled_from(["fair_share", "priority"])))


@given(bound_facts())
@settings(max_examples=4 * EXAMPLES, deadline=None)
def test_nobody_goes_where_they_cannot_or_should_not(facts: Facts) -> None:
    slots, runs, rules = facts
    made = decide(slots, runs, rules)
    node = {slot.id: slot for slot in slots}
    taken = Counter(slot for granted in made.grants.values() for slot in granted)
    assert max(taken.values(), default=1) == 1
    usable = Counter(slot.node for slot in slots if not slot.draining)
    for run in runs:
        assert made.reasons[run.id]
        for slot in (node[each] for each in made.grants[run.id]):
            if run.node is None or slot.node == run.node or run.pinned:
                continue
            assert not run.stays
            assert not run.kind or slot.kind in (run.kind, "") or not any(each.kind not in ("", run.kind) for each in slots)
            assert not has_just_moved(run, now=NOW) or usable[run.node] < run.min_slots or run.device is not None


@given(bound_facts())
@settings(max_examples=4 * EXAMPLES, deadline=None)
def test_a_plan_that_was_carried_out_comes_to_rest(facts: Facts) -> None:
    """Each plan moves at most one run that could stay; whoever has moved stays then."""
    slots, runs, rules = facts
    for _ in range(2 * len(runs) + 2):
        made = decide(slots, runs, rules)
        if all(made.grants[run.id] == run.held for run in runs):
            return
        slots, after = applied(made, slots, runs)
        runs = [replace(new, moved_at=NOW) if new.node != old.node else new for new, old in zip(after, runs, strict=True)]
    raise AssertionError("it never comes to rest")
