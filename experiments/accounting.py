"""Slot-seconds from the grants: who used how much. Reads only.

A grant counts from its beginning until the slot was proven free, cut to the window asked for: a slot that is being given back is not yet
anybody else's.
"""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from dataclasses import dataclass

from django.db.models import Q

from experiments.models import Grant, Slot, TrainingRun


@dataclass(frozen=True)
class Usage:
    """Slots held times seconds, of one run, person or project in a window. `key`: its id as text, or the username."""

    key: str
    name: str
    cpu_slot_s: float
    gpu_slot_s: float
    runs: int

    @property
    def slot_s(self) -> float:
        """All device classes together."""
        return self.cpu_slot_s + self.gpu_slot_s


def slot_seconds(run: TrainingRun, *, now: dt.datetime) -> float:
    """Slots times seconds that the run has held, up to `now`."""
    held = run.grants.values_list("granted_at", "released_at")
    return sum(((until or now) - since).total_seconds() for since, until in held)


def by_person(*, begin: dt.datetime, end: dt.datetime) -> list[Usage]:
    """One for each person who held slots in the window, the greatest first."""
    return _usage(begin, end, key="run__submitted_by__username", name="run__submitted_by__username")


def by_project(*, begin: dt.datetime, end: dt.datetime) -> list[Usage]:
    """One for each project that held slots in the window, the greatest first."""
    return _usage(begin, end, key="run__experiment__project_id", name="run__experiment__project__name")


def by_run(*, begin: dt.datetime, end: dt.datetime) -> list[Usage]:
    """One for each run that held slots in the window, the greatest first."""
    return _usage(begin, end, key="run_id", name="run__name")


def _usage(begin: dt.datetime, end: dt.datetime, *, key: str, name: str) -> list[Usage]:
    """Grants of the window summed up by `key`, a field of theirs; plain values, since a year has hundreds of thousands."""
    inside = Q(released_at__isnull=True) | Q(released_at__gt=begin)
    columns = (key, name, "slot__device", "granted_at", "released_at", "run_id")
    seconds: dict[tuple[str, str], dict[str, float]] = defaultdict(lambda: defaultdict(float))
    runs: dict[tuple[str, str], set[int]] = defaultdict(set)
    for whose, title, device, since, until, run in Grant.objects.filter(inside, granted_at__lt=end).values_list(*columns):
        owner = (str(whose), title)
        seconds[owner][device] += (min(until or end, end) - max(since, begin)).total_seconds()
        runs[owner].add(run)
    found = [
        Usage(whose, title, cpu_slot_s=used[Slot.Device.CPU], gpu_slot_s=used[Slot.Device.GPU], runs=len(runs[whose, title]))
        for (whose, title), used in seconds.items()
    ]
    return sorted(found, key=lambda usage: (-usage.slot_s, usage.key))
