"""Slot-seconds from the grants: who used how much. Reads only.

A grant counts from its beginning until the slot was proven free, cut to the window asked for: a slot that is being given back is not yet
anybody else's.
"""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Callable
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
    return _usage(begin, end, lambda run: (run.submitted_by.username, run.submitted_by.get_full_name() or run.submitted_by.username))


def by_project(*, begin: dt.datetime, end: dt.datetime) -> list[Usage]:
    """One for each project that held slots in the window, the greatest first."""
    return _usage(begin, end, lambda run: (str(run.experiment.project_id), run.experiment.project.name))


def by_run(*, begin: dt.datetime, end: dt.datetime) -> list[Usage]:
    """One for each run that held slots in the window, the greatest first."""
    return _usage(begin, end, lambda run: (str(run.pk), run.name))


def _usage(begin: dt.datetime, end: dt.datetime, owner: Callable[[TrainingRun], tuple[str, str]]) -> list[Usage]:
    inside = Q(released_at__isnull=True) | Q(released_at__gt=begin)
    grants = Grant.objects.filter(inside, granted_at__lt=end).select_related("slot", "run__submitted_by", "run__experiment__project")
    seconds: dict[tuple[str, str], dict[str, float]] = defaultdict(lambda: defaultdict(float))
    runs: dict[tuple[str, str], set[int]] = defaultdict(set)
    for grant in grants:
        whose = owner(grant.run)
        length = min(grant.released_at or end, end) - max(grant.granted_at, begin)
        seconds[whose][grant.slot.device] += length.total_seconds()
        runs[whose].add(grant.run_id)
    found = [
        Usage(key, name, cpu_slot_s=used[Slot.Device.CPU], gpu_slot_s=used[Slot.Device.GPU], runs=len(runs[key, name]))
        for (key, name), used in seconds.items()
    ]
    return sorted(found, key=lambda usage: (-usage.slot_s, usage.key))
