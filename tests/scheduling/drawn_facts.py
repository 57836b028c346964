"""Facts for the planner, drawn by hypothesis: slots, runs and rules of all kinds."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace

from hypothesis import strategies as st

from training_runtime.scheduling.facts import Rules, RunFacts, SlotFacts

PEOPLE = ("alice", "bob", "carol", "dave")
PROJECTS = ("digits", "faces")
# More examples than the suite has time for: EDT_EXAMPLES=2000 python -m pytest tests/scheduling
EXAMPLES = int(os.environ.get("EDT_EXAMPLES", "50"))
Facts = tuple[list[SlotFacts], list[RunFacts], Rules]


@st.composite
def some_slots(draw: st.DrawFn, *, kinds: Sequence[str] = ("gpu", "cpu")) -> list[SlotFacts]:
    slots: list[SlotFacts] = []
    for node in range(draw(st.integers(1, 3))):
        kind = draw(st.sampled_from(kinds))
        for _ in range(draw(st.integers(1, 4))):
            slots.append(SlotFacts(id=len(slots) + 1, node=f"n{node}", device=kind, draining=draw(st.integers(0, 9)) == 0))
    return slots


@st.composite
def some_runs(draw: st.DrawFn, slots: Sequence[SlotFacts], rules: Rules, *, plain: bool = False) -> list[RunFacts]:
    """Up to ten runs; they hold distinct slots, perhaps some that they may not keep. `plain`: of one kind, minimum 1, no engines.

    Where a run has one machine it holds slots of no other, and its process may be on one without any.
    """
    nodes = {slot.id: slot.node for slot in slots}
    free = draw(st.permutations([slot.id for slot in slots]))
    runs = []
    for number in range(1, draw(st.integers(1, 10)) + 1):
        hold = draw(st.integers(0, min(3, len(free))))
        held = frozenset(free[:hold])
        node = nodes[free[0]] if held else draw(st.sampled_from([None, *sorted(set(nodes.values()))]))
        if rules.one_machine:
            held = frozenset(slot for slot in held if nodes[slot] == node)
        free = [slot for slot in free if slot not in held]
        runs.append(
            RunFacts(
                id=number,
                name=f"run-{number}",
                person=draw(st.sampled_from(PEOPLE)),
                project=draw(st.sampled_from(PROJECTS)),
                submitted_at=float(draw(st.integers(0, 5))),
                min_slots=1 if plain else draw(st.sampled_from([1, 1, 1, 2, 3])),
                max_slots=draw(st.integers(1, 6)),
                engines=None if plain else draw(st.sampled_from([None, None, 1, 2, 4, 5, 6, 8])),
                priority=draw(st.sampled_from([4000, 5000, 6000])),
                weight=1.0 if plain else draw(st.sampled_from([1.0, 1.0, 2.0, 0.5])),
                device=None if plain else draw(st.sampled_from([None, "gpu", "gpu", "cpu"])),
                paused=draw(st.integers(0, 9)) == 0,
                held=held,
                remaining_s=draw(st.sampled_from([None, 30.0, 400.0])),
                node=node if rules.one_machine else None,
            )
        )
    return runs


@st.composite
def some_rules(draw: st.DrawFn, *, plain: bool = False) -> Rules:
    quota = st.dictionaries(st.sampled_from(PEOPLE), st.integers(0, 5), max_size=2)
    of_project = st.dictionaries(st.sampled_from(PROJECTS), st.integers(0, 6), max_size=1)
    return Rules(
        policy=draw(st.sampled_from(["fair_share", "priority"])),
        person_weights={} if plain else draw(st.dictionaries(st.sampled_from(PEOPLE), st.sampled_from([1.0, 2.0, 3.0]), max_size=2)),
        person_quota={} if plain else draw(quota),
        project_quota={} if plain else draw(of_project),
        one_machine=draw(st.booleans()),
    )


@st.composite
def some_facts(draw: st.DrawFn) -> Facts:
    slots, rules = draw(some_slots()), draw(some_rules())
    runs = draw(some_runs(slots, rules))
    if rules.one_machine and draw(st.integers(0, 4)) == 0:
        slots, runs = with_a_machine_not_heard_of(slots, runs, draw(st.sampled_from(slots)).node)
    return slots, runs, rules


def with_a_machine_not_heard_of(slots: Sequence[SlotFacts], runs: Sequence[RunFacts], lost: str) -> tuple[list[SlotFacts], list[RunFacts]]:
    """Who holds slots there keeps them, and nobody else gets any."""
    held = {slot for run in runs for slot in run.held}
    return (
        [replace(slot, draining=slot.id not in held) if slot.node == lost else slot for slot in slots],
        [replace(run, pinned=True, device=None) if run.node == lost and run.held else run for run in runs],
    )


@st.composite
def plain_facts(draw: st.DrawFn) -> Facts:
    slots, rules = draw(some_slots(kinds=("gpu",))), draw(some_rules(plain=True))
    return slots, draw(some_runs(slots, rules, plain=True)), rules
