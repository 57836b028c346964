"""Keeps what a machine says of a run's slots: how much they work and what memory they take, now and over time. The only writer of
UtilizationSample and of LatestUtilization.

It comes with the observations that are sent anyway, at the latest with the heartbeat, so every five to ten seconds; nothing is asked for.
Where a run has slots on several machines each says what its own do: that is put together here. Points over time are kept when its head node
speaks.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import astuple
from typing import Any, NamedTuple

from django.db import transaction

from experiments.cluster.snapshot import NODE_SILENT_S
from experiments.live import notify
from experiments.models import LatestUtilization, Node, RemoteAgent, TrainingRun, UtilizationSample
from training_runtime.protocol import RunObservation, SlotSeen

FINENESS = 600  # a point is never further from the next than this part of the run so far: no chart is finer than that
PRESENT_S = 3.0  # present figures are of this time at least
FORGET_S = 60.0  # a machine that has not spoken for so long is not shown any more


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
    return max(float(UtilizationSample.EVERY_S), (t - begin) / FINENESS)


def since(before: Counted | None, now: Counted) -> tuple[float, float]:
    """(busy, counted) seconds in between. What was counted of another worker, or by another host, says nothing about this count."""
    same = before is not None and before.since_s == now.since_s and before.counted_s <= now.counted_s
    busy_s, counted_s = (before.busy_s or 0.0, before.counted_s) if before is not None and same else (0.0, 0.0)
    return (now.busy_s or 0.0) - busy_s, now.counted_s - counted_s


def part(busy_s: float, counted_s: float) -> float | None:
    """The part of the time that was work; None where nothing was counted."""
    return min(1.0, max(0.0, busy_s / counted_s)) if counted_s > 0 else None


class Entry(NamedTuple):
    """One slot in `LatestUtilization.slots`: what was counted of it, all the memory of its device, the share of the time since the entry
    before that was work, when that was (Unix seconds), the node that said it, and a `GpuMemoryHolder` for each who has memory of its GPU.
    The last three are missing in rows of earlier versions."""

    slot: int
    since_s: float
    busy_s: float | None
    counted_s: float
    memory_bytes: int | None
    device_bytes: int | None
    share: float | None
    t: float = 0.0
    node: int = 0
    holders: Sequence[tuple[int, int, int, str]] = ()

    def counted(self) -> Counted:
        return Counted(*self[:5])


def entries(row: LatestUtilization | None) -> list[Entry]:
    """Those of a run, each with its time."""
    found = [Entry(*each) for each in row.slots] if row is not None else []
    return [each if each.t or row is None else each._replace(t=row.t) for each in found]


def renew(run: TrainingRun, seen: RunObservation, *, now: dt.datetime, node: Node | None = None) -> bool:
    """Bring the run's present figures on the node (its head node, where none is named) up to date; whether there are new ones, of which its
    page is told."""
    if seen.slots is None:
        return False
    t, place = round(now.timestamp(), 3), (node.pk if node is not None else run.head_node_id) or 0
    with transaction.atomic():  # locked: two machines may speak at once
        row = LatestUtilization.objects.select_for_update().filter(run=run).first()
        known = entries(row)
        mine = {each.slot: each for each in known if each.node in (place, 0)}
        if not (seen.slots or mine) or (mine and abs(t - max(each.t for each in mine.values())) < PRESENT_S):  # a clock may be put back
            return False
        before = {slot: each.counted() for slot, each in mine.items()}
        slots = [
            Entry(*each, said.device_bytes, part(*since(before.get(each.slot), each)), t, place, list(map(astuple, said.holders)))
            for each, said in _counted(seen)
        ]
        slots += [each for each in known if each.slot not in mine and t - each.t < FORGET_S]
        LatestUtilization.objects.update_or_create(run=run, defaults={"t": t, "slots": slots})
    notify.changed(f"run-{run.pk}", "now")
    return True


def store_sample(run: TrainingRun, seen: RunObservation, *, now: dt.datetime, away: Sequence[RemoteAgent] = ()) -> bool:
    """Whether a point was kept: not where it is too soon after the last, nor where it says nothing, or nothing new (the run holds no
    slot). `seen` by its head node; `away`: what is known of it on other machines."""
    if seen.slots is None:
        return False
    t, whole = round(now.timestamp(), 3), _whole(seen, away)
    others = _of_others(run, seen, t) if away else []
    slots = [each for each, _ in _counted(seen)] + [each.counted() for each in others]
    sizes = [each.memory_bytes for each in slots if each.memory_bytes is not None]
    if not whole.counted_s and not sizes:
        return False
    last = run.utilization_samples.last()
    if last is not None:
        first = run.utilization_samples.values_list("t", flat=True).first() or last.t
        wait_s = interval_s(first, t)
        if any(each.t <= last.t for each in others):
            wait_s *= 2  # what is not new yet would be drawn as a gap
        if t - last.t < wait_s or (not sizes and whole.counted_s == last.counted_s and last.memory_bytes is None):
            return False
    row = UtilizationSample(
        run=run, tick=int(t // UtilizationSample.EVERY_S), t=t, busy_s=whole.busy_s, counted_s=whole.counted_s, slots=slots
    )
    before = by_slot(last.slots) if last is not None else {}
    shares = [found for each in slots if (found := part(*since(before.get(each.slot), each))) is not None]
    row.least_share, row.greatest_share = (min(shares), max(shares)) if shares else (None, None)
    elsewhere = [
        each.memory_bytes or 0 for each in away if each.seen_at is not None and (now - each.seen_at).total_seconds() < NODE_SILENT_S
    ]
    row.memory_bytes = sum((memory_of(seen) or 0, *elsewhere)) if sizes else None
    row.least_bytes, row.largest_bytes = (min(sizes), max(sizes)) if sizes else (None, None)
    UtilizationSample.objects.bulk_create([row], ignore_conflicts=True)  # two web processes may both be here
    notify.changed(f"run-{run.pk}", "use")
    return True


class _Whole(NamedTuple):
    """Of a run's slots on all machines, as in `protocol.RunObservation`."""

    busy_s: float | None
    counted_s: float


def _whole(seen: RunObservation, away: Iterable[RemoteAgent]) -> _Whole:
    busy = [seen.busy_s, *(agent.all_busy_s for agent in away)]
    known = [each for each in busy if each is not None]
    return _Whole(sum(known) if len(known) == len(busy) else None, seen.counted_s + sum(agent.all_counted_s for agent in away))


def _of_others(run: TrainingRun, seen: RunObservation, t: float) -> list[Entry]:
    """What other machines said lately of their slots."""
    mine = {each.slot for each in seen.slots or ()}
    known = entries(LatestUtilization.objects.filter(run=run).first())
    return [each for each in known if each.node not in (run.head_node_id, 0) and each.slot not in mine and t - each.t < NODE_SILENT_S]


def by_slot(kept: Iterable[Sequence[Any]], *, only: Collection[int] | None = None) -> Mapping[int, Counted]:
    """A row's `slots`, by the slots' numbers; `only` some of them."""
    counted = (Counted(*each[:5]) for each in kept if only is None or each[0] in only)
    return {each.slot: each for each in counted}


def memory_of(seen: RunObservation) -> int | None:
    """All that its slots on the machine take; None where that is not known."""
    return sum(_by_device(seen).values()) if any(each.memory_bytes is not None for each in seen.slots or ()) else None


def _by_device(seen: RunObservation) -> Mapping[tuple[str, int], int]:
    """Bytes: slots that share a GPU each say what is in use of all of it."""
    known = [each for each in seen.slots or () if each.memory_bytes is not None]
    return {("slot", each.slot) if each.gpu is None else ("gpu", each.gpu): each.memory_bytes or 0 for each in known}


def _counted(seen: RunObservation) -> list[tuple[Counted, SlotSeen]]:
    return [(Counted(s.slot, s.since_s, s.busy_s, s.counted_s, s.memory_bytes), s) for s in seen.slots or ()]
