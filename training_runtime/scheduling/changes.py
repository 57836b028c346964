"""What one plan does differently from another, in sentences: for the preview of a change and for the feed. Pure, standard library only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from training_runtime.scheduling.facts import Plan, RunFacts, SlotFacts
from training_runtime.scheduling.wording import label, listed, plural


def machines(made: Plan, run: int, node_of: Mapping[int, str]) -> list[str]:
    """The machines on which the plan gives slots to the run; `node_of`: the machine of each slot."""
    return sorted({node_of[slot] for slot in made.grants.get(run, ())})


def difference(before: Plan, after: Plan, runs: Iterable[RunFacts], slots: Iterable[SlotFacts]) -> list[str]:
    """A sentence for each run whose slots, machine or place in the queue differs: who loses first, then who gains, who moves, the queue.

    >>> difference(before, after, runs, slots)
    ["alice's run digits-1: 4 -> 2 slots", "bob's run digits-2: 0 -> 2 slots (starts)"]
    """
    node_of = {slot.id: slot.node for slot in slots}
    losing: list[str] = []
    gaining: list[str] = []
    moving: list[str] = []
    queueing: list[str] = []
    for run in sorted(runs, key=lambda run: (run.person, run.name, run.id)):
        had, has = len(before.grants.get(run.id, ())), len(after.grants.get(run.id, ()))
        left, at = machines(before, run.id, node_of), machines(after, run.id, node_of)
        elsewhere = _elsewhere(left, at) if had and has and left != at else ""
        if has != had:
            note = " (starts)" if had == 0 else " (suspended)" if has == 0 else ""
            (gaining if has > had else losing).append(f"{label(run)}: {had} -> {plural(has)}{note}{elsewhere}")
            continue
        if elsewhere:
            moving.append(f"{label(run)}: {plural(has)}{elsewhere}")
        was, now = before.queue.get(run.id), after.queue.get(run.id)
        if was is not None and now is not None and was.position != now.position:
            queueing.append(f"{label(run)}: number {was.position} -> {now.position} in the queue")
    return losing + gaining + moving + queueing


def _elsewhere(left: list[str], at: list[str]) -> str:
    """From which machines to which; a run over several may gain or lose some of them and stay where it is."""
    if not set(left) & set(at):
        return f", moves from {listed(left)} to {listed(at)}"
    return f", then on {listed(at)}"
