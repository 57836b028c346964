"""What a run's slots did over time, for its charts and their table: the share of the time in which they worked, and their memory.

What they do now is in `latest_utilization`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from experiments.cluster import utilization
from experiments.cluster.utilization import Counted
from experiments.models import Slot, TrainingRun, UtilizationSample

MOST_POINTS = 600
GAP = 4  # so many intervals without a point: the run held no slot, or nobody heard of its machine
COLUMNS = ("t", "busy_s", "counted_s", "least_share", "greatest_share", "memory_bytes", "least_bytes", "largest_bytes")


@dataclass(frozen=True)
class Line:
    """One slot's part in a point: the share of the time in which its worker was at work, its greatest memory. None: not known, not held."""

    share: float | None = None
    memory: int | None = None


@dataclass(frozen=True)
class Use:
    """From the point before until `t` (Unix seconds): the share of the held time that was work, averaged over slots and time, and the least
    and the greatest share of one slot; the greatest memory of all slots together, and the least and the greatest of one. `lines`: of each
    slot that was asked for. None: not known. A point without anything known stands where a line is to break off."""

    t: float
    share: float | None = None
    least_share: float | None = None
    greatest_share: float | None = None
    memory: int | None = None
    least: int | None = None
    largest: int | None = None
    lines: tuple[Line, ...] = ()


@dataclass(frozen=True)
class _Row:
    """Of UtilizationSample; `slots` where single ones are asked for."""

    t: float
    busy_s: float | None
    counted_s: float
    least_share: float | None
    greatest_share: float | None
    memory_bytes: int | None
    least_bytes: int | None
    largest_bytes: int | None
    slots: Mapping[int, Counted]


def use(run: TrainingRun, *, after: int = 0, most: int = MOST_POINTS, slots: Sequence[int] = ()) -> list[Use]:
    """The points after that of a tick (`UtilizationSample.tick`), oldest first, at most about `most`: several together where there are
    more."""
    rows = _rows(run, after, slots)
    if not rows:
        return []
    begin = run.utilization_samples.order_by("tick").values_list("t", flat=True)[0]
    before: _Row | None = rows.pop(0) if after else None  # the last one that the caller has
    width = max(1, math.ceil(len(rows) / most))
    found: list[Use] = []
    some: list[_Row] = []
    for row in rows:
        last = some[-1] if some else before
        silent = last is not None and row.t - last.t > GAP * utilization.interval_s(begin, row.t)
        if some and (silent or len(some) == width):
            found.append(_together(before, some, slots))
            before, some = last, []
        if last is not None and silent:
            found.append(Use(last.t + 0.001, lines=(Line(),) * len(slots)))
        some.append(row)
    return [*found, _together(before, some, slots)] if some else found


def known(run: TrainingRun) -> tuple[bool, bool]:
    """Whether anything is known of (how its slots worked, their memory): of what is not, there is no chart."""
    return run.utilization_samples.filter(busy_s__isnull=False).exists(), run.utilization_samples.filter(
        memory_bytes__isnull=False
    ).exists()


def missing(run: TrainingRun, *, known: tuple[bool, bool]) -> str:
    """What is not known of an ended run's slots, and why, in words; "" where nothing is missing, or may still come. `known`: see there."""
    if run.started_at is None or run.ended_at is None or all(known):
        return ""
    what = "memory" if known[0] else "utilization" if known[1] else "utilization or memory"
    if (run.ended_at - run.started_at).total_seconds() < 2 * UtilizationSample.EVERY_S:
        return f"No {what} data: it is measured every {UtilizationSample.EVERY_S} seconds, and this run was over before."
    return f"No {what} data: its machine reported none."


def slots_used(run: TrainingRun) -> list[Slot]:
    """Every slot that the run has held, in the order of nodes and places: those of which there can be a line."""
    held = Slot.objects.filter(grants__run=run).select_related("node").distinct()
    return list(held.order_by("node__name", "device", "index"))


def _rows(run: TrainingRun, after: int, slots: Sequence[int]) -> list[_Row]:
    """What single slots did is read only where it is asked for: with a hundred of them it is most of a row."""
    rows = run.utilization_samples.filter(tick__gte=after).order_by("tick").values(*COLUMNS, *(["slots"] if slots else []))
    return [_Row(**{**row, "slots": utilization.by_slot(row.get("slots", []), only=slots)}) for row in rows]


def _together(before: _Row | None, rows: list[_Row], slots: Sequence[int]) -> Use:
    """Shares of all slots are exact however many rows there are; the extremes are those of one row."""
    return Use(
        t=rows[-1].t,
        share=_share(before, rows[-1]),
        least_share=min((row.least_share for row in rows if row.least_share is not None), default=None),
        greatest_share=max((row.greatest_share for row in rows if row.greatest_share is not None), default=None),
        memory=max((row.memory_bytes for row in rows if row.memory_bytes is not None), default=None),
        least=min((row.least_bytes for row in rows if row.least_bytes is not None), default=None),
        largest=max((row.largest_bytes for row in rows if row.largest_bytes is not None), default=None),
        lines=tuple(_line(before, rows, slot) for slot in slots),
    )


def _share(before: _Row | None, now: _Row) -> float | None:
    """Counts begin anew with each attempt; its first row tells of all of it."""
    busy_s, counted_s = (before.busy_s, before.counted_s) if before is not None and before.counted_s <= now.counted_s else (0.0, 0.0)
    return None if busy_s is None or now.busy_s is None else utilization.part(now.busy_s - busy_s, now.counted_s - counted_s)


def _line(before: _Row | None, rows: list[_Row], slot: int) -> Line:
    """Of the workers that followed each other on the slot, each for the time in which it was counted."""
    busy_s = counted_s = 0.0
    memory = None
    for earlier, row in itertools.pairwise((before, *rows)):
        now, was = row.slots.get(slot) if row is not None else None, earlier.slots.get(slot) if earlier is not None else None
        if now is None:
            continue
        memory = max((size for size in (memory, now.memory_bytes) if size is not None), default=None)
        added = utilization.since(was, now)
        busy_s, counted_s = busy_s + added[0], counted_s + added[1]
    return Line(utilization.part(busy_s, counted_s), memory)
