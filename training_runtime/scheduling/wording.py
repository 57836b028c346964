"""How sentences about runs name people, runs, numbers and times. Standard library only."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise

from training_runtime.scheduling.facts import RunFacts

MINUTES = (1, 2, 3, 4, 5, 7, 10, 15, 20, 30, 45)
HOURS = (1, 2, 3, 4, 6, 8, 12, 18, 24)


# Halfway between two steps of a ladder the nearest one changes.
MINUTE_BOUNDS = tuple((low + high) / 2 for low, high in pairwise(MINUTES))


HOUR_BOUNDS = tuple((low + high) / 2 for low, high in pairwise(HOURS))


def plural(count: int, word: str = "slot") -> str:
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def listed(names: Sequence[str]) -> str:
    """Up to three names in full: "alice, bob and carol", "alice, bob and 4 others"."""
    if len(names) <= 1:
        return "".join(names)
    if len(names) <= 3:
        return f"{', '.join(names[:-1])} and {names[-1]}"
    return f"{names[0]}, {names[1]} and {len(names) - 2} others"


def label(run: RunFacts, *, to: RunFacts | None = None) -> str:
    """What the run is called, where the sentence is about the run `to`: in another project it is not named, only whose it is. Nor is one
    without a name: whoever asked may not know it."""
    named = run.name and (to is None or to.project == run.project)
    return f"{run.person}'s run {run.name}" if named else f"{run.person}'s run in another project"


def about(seconds: float) -> str:
    """A duration as people say it, on a coarse ladder so that it does not change at every look."""
    minutes = seconds / 60
    if minutes < 0.75:
        return "less than a minute"
    if minutes < 52:
        return f"about {MINUTES[bisect_left(MINUTE_BOUNDS, minutes)]} min"
    return "more than a day" if minutes > 36 * 60 else f"about {HOURS[bisect_left(HOUR_BOUNDS, minutes / 60)]} h"
