"""Machines that are held of Slurm, Ray and Kubernetes, for the pages of the studio that is seeded."""

from __future__ import annotations

import datetime as dt

from experiments.models import Pilot, PilotPool


def pilots(now: dt.datetime) -> None:
    """A pool of which one pilot waits in Slurm's queue, and one has ended; one of Ray, of which one is ending and one has failed; and one
    of Kubernetes, of which one waits for room."""
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
    said = ["Ray was asked for 1 pilot (1 ending); at least 0, at most 2.", "No run would begin or grow with another one."]
    options = """--entrypoint-num-cpus=8 --entrypoint-resources='{"accelerator_type:A100": 0.001}'"""
    policy = {"studio": "https://studio.example.org", "options": options, "slots": 8, "most": 2}
    pool = PilotPool.objects.create(name="shared", provider="ray", words=said, **policy)
    ending = {"leave_reason": "nobody has needed it for 10 min", "words": "RUNNING on 10.0.0.7: Job is currently running."}
    Pilot.objects.create(pool=pool, node_name="shared-1", job="edt-0badc0de-shared-1-4", phase="ending", made_at=now, ends_at=now, **ending)
    words = "Ray says: FAILED: Job entrypoint command failed with exit code 127, last available logs: edt-node: not found"
    failed = {"phase": "ended", "ended_at": now, "words": words}
    Pilot.objects.create(pool=pool, node_name="shared-2", job="edt-0badc0de-shared-2-3", made_at=now, **failed)
    said = [
        "Kubernetes was asked for 1 pilot (1 waiting in its queue); at least 1, at most 2.",
        "No run would begin or grow with another one.",
    ]
    options = "--cpu=8 --memory=32Gi --gpus=1 --toleration=nvidia.com/gpu"
    policy = {"studio": "https://studio.example.org", "options": options, "slots": 1, "least": 1, "most": 2}
    pool = PilotPool.objects.create(name="pods", provider="kubernetes", words=said, **policy)
    words = "Pending: Unschedulable: 0/3 nodes are available: 3 Insufficient nvidia.com/gpu."
    Pilot.objects.create(pool=pool, node_name="pods-1", job="edt-0badc0de-pods-1-5", phase="waiting", made_at=now, words=words)
