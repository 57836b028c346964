"""Did it happen? Pure: grants and journals in, sentences about what is missing out (none: all is well)."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Held:
    """A run held a slot from `begin` to `end`; None: still."""

    run: int
    begin: dt.datetime
    end: dt.datetime | None


def shares(held: Iterable[Held], *, first: int, second: int) -> list[tuple[int, int]]:
    """How many slots (first, second) held, one entry for each change, from nobody to the end. What changes at one instant is one change."""
    changes: dict[dt.datetime, list[int]] = {}
    for one in held:
        place = 0 if one.run == first else 1 if one.run == second else None
        if place is None:
            continue
        changes.setdefault(one.begin, [0, 0])[place] += 1
        if one.end is not None:
            changes.setdefault(one.end, [0, 0])[place] -= 1
    now, seen = (0, 0), [(0, 0)]
    for at in sorted(changes):
        now = (now[0] + changes[at][0], now[1] + changes[at][1])
        if now != seen[-1]:
            seen.append(now)
    return seen


def missing_shares(seen: Sequence[tuple[int, int]], *, slots: int) -> str:
    """Empty if all were the first's, then halves (a difference of one where the number is odd), then all one's; else what did not come."""
    rest = iter(seen)
    if (slots, 0) not in rest:
        return f"the first run never held all {slots} slots"
    if not any(sum(pair) == slots and abs(pair[0] - pair[1]) <= slots % 2 for pair in rest):
        return f"the two runs never held half of the {slots} slots each"
    if not any(pair in ((slots, 0), (0, slots)) for pair in rest):
        return f"the run that was left never grew back to {slots} slots"
    return ""


def missing_steps(steps: Sequence[int], *, total: int) -> str:
    """Empty if `steps` are exactly 1, 2, ... `total`; else the first that was lost or repeated."""
    for expected, step in enumerate(steps, start=1):
        if step != expected:
            return f"step {step} was repeated" if step < expected else f"step {expected} was lost"
    return "" if len(steps) == total else f"{len(steps)} of {total} steps were made"
