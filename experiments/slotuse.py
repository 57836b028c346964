"""Keeps what a machine says of a run's slots: how much they work and what memory they take, now and over time. The only writer of SlotUse
and of PresentUse.

It comes with the observations that are sent anyway, at the latest with the heartbeat, so every five to ten seconds; nothing is asked for.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from experiments import notify
from experiments.models import PresentUse, SlotUse, TrainingRun
from training_runtime.protocol import RunObservation

FINENESS = 600  # a point is never further from the next than this part of the run so far: no chart is finer than that
PRESENT_S = 3.0  # present figures are of this time at least


class Counted(NamedTuple):
    """What was counted of a slot, as in `protocol.SlotSeen`; a list of these five in a row's `slots`."""

    slot: int
    since_s: float
    busy_s: float | None
    counted_s: float
    memory_bytes: int | None


def interval_s(begin: float, t: float) -> float:
    """How far apart points are that are kept at `t` of a run whose first is of `begin` (Unix seconds).

    It grows with the run, so that none has to be removed again: 600 in the first 50 minutes, then 600 ln(t / 50 min) more: some 4,700 in a
    month.
    """
    return max(float(SlotUse.EVERY_S), (t - begin) / FINENESS)


def since(before: Counted | None, now: Counted) -> tuple[float, float]:
    """(busy, counted) seconds in between. What was counted of another worker, or by another host, says nothing about this count."""
    same = before is not None and before.since_s == now.since_s and before.counted_s <= now.counted_s
    busy_s, counted_s = (before.busy_s or 0.0, before.counted_s) if before is not None and same else (0.0, 0.0)
    return (now.busy_s or 0.0) - busy_s, now.counted_s - counted_s


def part(busy_s: float, counted_s: float) -> float | None:
    """The part of the time that was work; None where nothing was counted."""
    return min(1.0, max(0.0, busy_s / counted_s)) if counted_s > 0 else None


def renew(run: TrainingRun, seen: RunObservation, *, now: dt.datetime) -> bool:
    """Bring the run's present figures up to date; whether there are new ones, of which its page is told."""
    t, row = round(now.timestamp(), 3), PresentUse.objects.filter(run=run).first()
    if seen.slots is None or (row is not None and t - row.t < PRESENT_S) or not (seen.slots or (row is not None and row.slots)):
        return False
    before = by_slot(row.slots) if row is not None else {}
    slots = [(*each, device, part(*since(before.get(each.slot), each))) for each, device in _counted(seen)]
    PresentUse.objects.update_or_create(run=run, defaults={"t": t, "slots": slots})
    notify.changed(f"run-{run.pk}", "now")
    return True


def keep(run: TrainingRun, seen: RunObservation, *, now: dt.datetime) -> bool:
    """Whether a point was kept: not where it is too soon after the last, nor where it says nothing, or nothing new (the run holds no
    slot)."""
    t, slots = round(now.timestamp(), 3), [each for each, _ in _counted(seen)]
    sizes = [each.memory_bytes for each in slots if each.memory_bytes is not None]
    if seen.slots is None or (not seen.counted_s and not sizes):
        return False
    last = run.use.last()
    if last is not None:
        first = run.use.values_list("t", flat=True).first() or last.t
        if t - last.t < interval_s(first, t) or (not sizes and seen.counted_s == last.counted_s and last.memory_bytes is None):
            return False
    row = SlotUse(run=run, tick=int(t // SlotUse.EVERY_S), t=t, busy_s=seen.busy_s, counted_s=seen.counted_s, slots=slots)
    before = by_slot(last.slots) if last is not None else {}
    shares = [found for each in slots if (found := part(*since(before.get(each.slot), each))) is not None]
    row.least_share, row.greatest_share = (min(shares), max(shares)) if shares else (None, None)
    row.memory_bytes = sum(_by_device(seen).values()) if sizes else None
    row.least_bytes, row.largest_bytes = (min(sizes), max(sizes)) if sizes else (None, None)
    SlotUse.objects.bulk_create([row], ignore_conflicts=True)  # the agent's ear and its task may both be here
    notify.changed(f"run-{run.pk}", "use")
    return True


def by_slot(kept: Iterable[Sequence[Any]], *, only: Collection[int] | None = None) -> Mapping[int, Counted]:
    """A row's `slots`, by the slots' numbers; `only` some of them."""
    counted = (Counted(*each[:5]) for each in kept if only is None or each[0] in only)
    return {each.slot: each for each in counted}


def _by_device(seen: RunObservation) -> Mapping[tuple[str, int], int]:
    """Bytes: slots that share a GPU each say what is in use of all of it."""
    known = [each for each in seen.slots or () if each.memory_bytes is not None]
    return {("slot", each.slot) if each.gpu is None else ("gpu", each.gpu): each.memory_bytes or 0 for each in known}


def _counted(seen: RunObservation) -> list[tuple[Counted, int | None]]:
    """Each with all the memory that its device has."""
    return [(Counted(s.slot, s.since_s, s.busy_s, s.counted_s, s.memory_bytes), s.device_bytes) for s in seen.slots or ()]
