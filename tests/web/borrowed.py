"""Machines that are held of Slurm, for the pages of the studio that is seeded."""

from __future__ import annotations

import datetime as dt

from experiments.models import Pilot, PilotPool


def pilots(now: dt.datetime) -> None:
    """A pool of which one pilot waits in Slurm's queue, and one has ended."""
    said = [
        "Slurm was asked for 1 pilot (1 waiting in its queue); at least 0, at most 4.",
        "Those on their way will do: LeNet would begin.",
    ]
    pool = PilotPool.objects.create(name="gpu", studio="https://studio.example.org", options="--partition=gpu", slots=4, most=4, words=said)
    Pilot.objects.create(
        pool=pool, node_name="gpu-1", job="4711", phase="waiting", made_at=now, reason=said[1], words="PENDING (Resources)"
    )
    ended = {"ended_at": now, "leave_reason": "nobody has needed it for 10 min", "words": "Slurm says: JobState COMPLETED"}
    Pilot.objects.create(pool=pool, node_name="gpu-2", job="4710", phase="ended", made_at=now, **ended)
