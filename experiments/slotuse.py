"""Keeps what a machine says of a run's slots over time: how much they worked, what memory they take. The only writer of SlotUse.

It comes with the observations that are sent anyway, at the latest with the heartbeat, so every five to ten seconds; nothing is asked for.
"""

from __future__ import annotations

import datetime as dt

from experiments import notify
from experiments.models import SlotUse, TrainingRun
from training_runtime.protocol import RunObservation

FINENESS = 600  # a point is never further from the next than this part of the run so far: no chart is finer than that


def interval_s(begin: float, t: float) -> float:
    """How far apart points are that are kept at `t` of a run whose first is of `begin` (Unix seconds).

    It grows with the run, so that none has to be removed again: 600 in the first 50 minutes, then 600 ln(t / 50 min) more: some 4,700 in a
    month.
    """
    return max(float(SlotUse.EVERY_S), (t - begin) / FINENESS)


def keep(run: TrainingRun, seen: RunObservation, *, now: dt.datetime) -> bool:
    """Whether it was kept: not where it is too soon after the last, nor where it says nothing, or nothing new (the run holds no slot)."""
    t, sizes = round(now.timestamp(), 3), [each.bytes for each in seen.memory]
    if not seen.counted_s and not sizes:
        return False
    last = run.use.last()
    if last is not None:
        first = run.use.first() or last
        if t - last.t < interval_s(first.t, t) or (not sizes and seen.counted_s == last.counted_s and last.memory_bytes is None):
            return False
    row = SlotUse(run=run, tick=int(t // SlotUse.EVERY_S), t=t, busy_s=seen.busy_s, counted_s=seen.counted_s)
    row.memory_bytes, row.largest_bytes = (sum(sizes), max(sizes)) if sizes else (None, None)
    SlotUse.objects.bulk_create([row], ignore_conflicts=True)  # the agent's ear and its task may both be here
    notify.changed(f"run-{run.pk}", "use")
    return True
