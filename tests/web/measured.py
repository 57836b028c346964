"""What machines have measured of the slots of the seeded studio's runs."""

from __future__ import annotations

import datetime as dt

from experiments.cluster import utilization
from experiments.models import TrainingRun
from training_runtime.gpu_memory import GpuMemoryHolder
from training_runtime.protocol import RunObservation, SlotSeen

STRANGER = (GpuMemoryHolder(2 * 10**8, pid=4_194_303, name="python3.11"),)
EVERY_S = 12  # what is looked at is the same with twice as many, and they take most of the seeding's time


def use(run: TrainingRun, slots: list[int], *, began_s: float, now: dt.datetime) -> None:
    """80 % of the time of its two slots all in all, the first a little more than the second, since `began_s` seconds ago."""
    for ago in range(int(began_s) - 1, -1, -EVERY_S):
        held_s, at = began_s - ago, now - dt.timedelta(seconds=ago)
        each = [
            SlotSeen(slot, 1.0, held_s * (0.9 - 0.2 * n), held_s, (4 + n) * 10**8, 143 * 10**9, holders=STRANGER)
            for n, slot in enumerate(slots)
        ]
        sums = {"busy_s": 1.6 * held_s, "counted_s": 2 * held_s}
        seen = RunObservation(run.pk, 1, "running", tuple(slots), slots=tuple(each), **sums)
        utilization.store_sample(run, seen, now=at)
        if ago < 2 * EVERY_S:  # what is present is said by the last two
            utilization.renew(run, seen, now=at)
