"""What a run's slots did over time, for its charts and their table: the share of the time in which they worked, and their memory."""

from __future__ import annotations

import math
from dataclasses import dataclass

from experiments import slotuse
from experiments.models import TrainingRun

MOST_POINTS = 600
GAP = 4  # so many intervals without a point: the run held no slot, or nobody heard of its machine
Row = tuple[float, float | None, float, int | None, int | None]  # of SlotUse: t, busy_s, counted_s, memory_bytes, largest_bytes


@dataclass(frozen=True)
class Use:
    """From the point before until `t` (Unix seconds): the share of the held time that was work, averaged over slots and time; the greatest
    memory of all slots together, and of one slot. None: not known. A point without anything known stands where a line is to break off."""

    t: float
    share: float | None
    memory: int | None = None
    largest: int | None = None


def use(run: TrainingRun, *, after: int = 0, most: int = MOST_POINTS) -> list[Use]:
    """The points after that of a tick (`SlotUse.tick`), oldest first, at most about `most`: several together where there are more."""
    columns = ("t", "busy_s", "counted_s", "memory_bytes", "largest_bytes")
    rows: list[Row] = list(run.use.filter(tick__gte=after).order_by("tick").values_list(*columns))
    if not rows:
        return []
    begin = run.use.order_by("tick").values_list("t", flat=True)[0]
    before: Row | None = rows.pop(0) if after else None  # the last one that the caller has
    width = max(1, math.ceil(len(rows) / most))
    found: list[Use] = []
    some: list[Row] = []
    for row in rows:
        last = some[-1] if some else before
        silent = last is not None and row[0] - last[0] > GAP * slotuse.interval_s(begin, row[0])
        if some and (silent or len(some) == width):
            found.append(_together(before, some))
            before, some = last, []
        if last is not None and silent:
            found.append(Use(last[0] + 0.001, None))
        some.append(row)
    return [*found, _together(before, some)] if some else found


def known(run: TrainingRun) -> tuple[bool, bool]:
    """Whether anything is known of (how its slots worked, their memory): of what is not, there is no chart."""
    return run.use.filter(busy_s__isnull=False).exists(), run.use.filter(memory_bytes__isnull=False).exists()


def _together(before: Row | None, rows: list[Row]) -> Use:
    last = rows[-1]
    memory = max((row[3] for row in rows if row[3] is not None), default=None)
    largest = max((row[4] for row in rows if row[4] is not None), default=None)
    return Use(last[0], _share(before, last), memory, largest)


def _share(before: Row | None, now: Row) -> float | None:
    """Counts begin anew with each attempt; its first row tells of all of it."""
    busy, counted = (before[1], before[2]) if before is not None and before[2] <= now[2] else (0.0, 0.0)
    if busy is None or now[1] is None or now[2] <= counted:
        return None
    return min(1.0, max(0.0, (now[1] - busy) / (now[2] - counted)))
