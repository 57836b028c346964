"""Slot-seconds from the grants: who used how much. Reads only."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

from experiments.models import TrainingRun


@dataclass(frozen=True)
class Usage:
    """Slots held times seconds, of one run, person or project in a window."""

    key: str
    name: str
    cpu_slot_s: float
    gpu_slot_s: float
    runs: int


def slot_seconds(run: TrainingRun, *, now: dt.datetime) -> float:
    """Slots times seconds that the run has held, up to `now`."""
    raise NotImplementedError


def by_person(*, begin: dt.datetime, end: dt.datetime) -> list[Usage]:
    raise NotImplementedError


def by_project(*, begin: dt.datetime, end: dt.datetime) -> list[Usage]:
    raise NotImplementedError


def by_run(*, begin: dt.datetime, end: dt.datetime) -> list[Usage]:
    raise NotImplementedError
