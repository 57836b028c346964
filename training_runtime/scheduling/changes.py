"""What one plan does differently from another, in sentences: for the preview of a change and for the feed. Pure, standard library only."""

from __future__ import annotations

from collections.abc import Iterable

from training_runtime.scheduling.facts import Plan, RunFacts
from training_runtime.scheduling.reasons import label, plural


def difference(before: Plan, after: Plan, runs: Iterable[RunFacts]) -> list[str]:
    """A sentence for each run whose number of slots or place in the queue differs: who loses first, then who gains, then the queue.

    >>> difference(before, after, runs)
    ["alice's run digits-1: 4 -> 2 slots", "bob's run digits-2: 0 -> 2 slots (starts)"]
    """
    losing: list[str] = []
    gaining: list[str] = []
    queueing: list[str] = []
    for run in sorted(runs, key=lambda run: (run.person, run.name, run.id)):
        had, has = len(before.grants.get(run.id, ())), len(after.grants.get(run.id, ()))
        if has != had:
            note = " (starts)" if had == 0 else " (suspended)" if has == 0 else ""
            (gaining if has > had else losing).append(f"{label(run)}: {had} -> {plural(has)}{note}")
            continue
        was, now = before.queue.get(run.id), after.queue.get(run.id)
        if was is not None and now is not None and was.position != now.position:
            queueing.append(f"{label(run)}: number {was.position} -> {now.position} in the queue")
    return losing + gaining + queueing
