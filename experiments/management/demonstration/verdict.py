"""Did it happen? Pure: grants and journals in, sentences about what is missing out (none: all is well)."""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Held:
    """A run held a slot from `begin` to `end`; None: still."""

    run: int
    begin: dt.datetime
    end: dt.datetime | None


@dataclass(frozen=True)
class Share:
    """From `at` on, and until the next one, the two runs held so many slots."""

    at: dt.datetime
    first: int
    second: int


def shares(held: Iterable[Held], *, first: int, second: int) -> list[Share]:
    """How many slots the two runs held, one entry for each change. What changes at one instant is one change."""
    changes: dict[dt.datetime, list[int]] = {}
    for one in held:
        place = 0 if one.run == first else 1 if one.run == second else None
        if place is None:
            continue
        changes.setdefault(one.begin, [0, 0])[place] += 1
        if one.end is not None:
            changes.setdefault(one.end, [0, 0])[place] -= 1
    a, b = 0, 0
    seen: list[Share] = []
    for at in sorted(changes):
        a, b = a + changes[at][0], b + changes[at][1]
        if not seen or (seen[-1].first, seen[-1].second) != (a, b):
            seen.append(Share(at, a, b))
    return seen


def halves(share: Share, slots: int) -> bool:
    """A difference of one is as good as it gets where the number is odd."""
    return share.first + share.second == slots and abs(share.first - share.second) <= slots % 2


def missing_shares(seen: Sequence[Share], *, slots: int) -> str:
    """Empty if all were the first's, then half each, then all one's; else what did not come."""
    rest = iter(seen)
    if not any((share.first, share.second) == (slots, 0) for share in rest):
        return f"the first run never held all {slots} slots"
    if not any(halves(share, slots) for share in rest):
        return f"the two runs never held half of the {slots} slots each"
    if not any((share.first, share.second) in ((slots, 0), (0, slots)) for share in rest):
        return f"the run that was left never grew back to {slots} slots"
    return ""


def missing_work(seen: Sequence[Share], *, slots: int, first: Sequence[float], second: Sequence[float]) -> str:
    """Empty if both runs finished steps (at these Unix times) while they held half each; sharing is no more than a word otherwise."""
    for share, after in itertools.pairwise(seen):
        begin, end = share.at.timestamp(), after.at.timestamp()
        if halves(share, slots) and all(any(begin <= t < end for t in times) for times in (first, second)):
            return ""
    return "the two runs never both made steps while they held half of the slots each"


def missing_steps(steps: Sequence[int], *, total: int) -> str:
    """Empty if `steps` are exactly 1, 2, ... `total`; else the first that was lost or repeated."""
    for expected, step in enumerate(steps, start=1):
        if step != expected:
            return f"step {step} was repeated" if step < expected else f"step {expected} was lost"
    return "" if len(steps) == total else f"{len(steps)} of {total} steps were made"
