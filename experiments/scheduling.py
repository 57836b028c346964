"""The shell around `plan`: facts from the database in, differences of grants out. The only writer of Grant and of runs' plan fields.

It decides nothing: `training_runtime.scheduling.plan` does, and its reasons are stored as they are.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass

from experiments.models import Node, TrainingRun
from training_runtime.scheduling.facts import Plan, Policy

NODE_SILENT_S = 15.0


@dataclass(frozen=True)
class TickSummary:
    """What a tick changed: its number, (run, slot) granted and asked back, and the nodes that were nudged."""

    tick: int
    granted: tuple[tuple[int, int], ...]
    asked_back: tuple[tuple[int, int], ...]
    nodes: tuple[str, ...]


@dataclass(frozen=True)
class RunChange:
    """What a preview changes of a run; None leaves it as it is."""

    priority: int | None = None
    min_slots: int | None = None
    max_slots: int | None = None
    paused: bool | None = None
    stop: bool = False


@dataclass(frozen=True)
class Difference:
    """What a change would do to one run: slots held by the plan before and after, and the plan's reason after."""

    run: TrainingRun
    before: int
    after: int
    reason: str


@dataclass(frozen=True)
class Preview:
    """The plan as things are, the plan with the changes, and the runs whose number of slots would differ."""

    before: Plan
    after: Plan
    differences: tuple[Difference, ...]


def tick(now: dt.datetime) -> TickSummary:
    """Plan and write the differences, in one transaction that no other tick overlaps."""
    raise NotImplementedError


def preview(*, now: dt.datetime, changes: Mapping[int, RunChange] | None = None, policy: Policy | None = None) -> Preview:
    """What the allocation would become with the changes (by run id) or another policy. Writes nothing."""
    raise NotImplementedError


def close_grants(node: Node, *, holding: Mapping[int, frozenset[int]], revision: int, now: dt.datetime) -> int:
    """Close the grants on the node that were asked back and whose slot the host has proven free; how many.

    `holding`: per run, the slots for which a process may still be alive, as the host saw them after snapshot `revision`.
    """
    raise NotImplementedError


def close_all(run: TrainingRun, *, now: dt.datetime, reason: str) -> int:
    """Close every open grant of a run whose processes are all proven gone; how many."""
    raise NotImplementedError
