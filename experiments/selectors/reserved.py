"""For whom a slot is kept that nobody holds, or that its run was asked to give back: what the planner says of it at this moment.

A promise is stored nowhere: the next plan keeps it or makes another. So it is asked for, when somebody looks while slots change hands.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from experiments.cluster import snapshot
from experiments.models import ClusterRules, RunState, TrainingRun
from experiments.models.runs import LIVE
from experiments.selectors.jobs import slots_of
from experiments.selectors.timeline import Lane
from training_runtime.scheduling.plan import allocate

CHANGING = ("free", "leaving", "stuck")
WANTING = tuple(state for state in LIVE if state != RunState.STOPPING)


@dataclass(frozen=True)
class Reserved:
    """The run that gets the slot, and whether it begins with it. `name`: of the run, for those who may know it."""

    run: int
    name: str
    person: str
    starts: bool

    def words(self, *, named: bool) -> str:
        """As it stands on the page. `named`: the person who reads it may know the run."""
        which = f" {self.name}" if named else ", a run in another project"
        return f"reserved for {self.person}{which}{', starting' if self.starts else ''}"


def reserved(lanes: Iterable[Lane], *, now: dt.datetime) -> Mapping[int, Reserved]:
    """By slot, of lanes as they are now; those that keep their run, or are for nobody, are not in it."""
    changing = {lane.slot.pk for lane in lanes if lane.state in CHANGING}
    if not changing or not _anybody_wants_more():
        return {}
    seen = snapshot.take_snapshot(ClusterRules.current(), now=now, lock=False)
    grants, _ = allocate(seen.slot_facts, seen.run_facts, now=now.timestamp(), rules=seen.rules)
    holders = {slot: grant.run_id for slot, grant in seen.grants.items()}
    return {slot: _reserved(seen.runs[run]) for run, slots in grants.items() for slot in slots & changing if holders.get(slot) != run}


def _anybody_wants_more() -> bool:
    """Whether a run has fewer slots than it can use: most of the time nobody has, and then there is nothing to ask."""
    live = TrainingRun.objects.filter(state__in=WANTING, paused=False, outside=False, stop_requested_at=None)
    most = {pk: min(slots, engines or slots) for pk, slots, engines in live.values_list("pk", "max_slots", "engines")}
    held = slots_of(most)
    return any(held[pk] < slots for pk, slots in most.items())


def _reserved(run: TrainingRun) -> Reserved:
    return Reserved(run.pk, run.name, run.submitted_by.username, starts=run.state in (RunState.QUEUED, RunState.STARTING))
