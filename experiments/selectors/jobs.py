"""Tables of runs: the cluster's, an experiment's, and a run's generations."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

from experiments.models import Experiment, GenerationRecord, Slot, TrainingRun


@dataclass(frozen=True)
class JobFilter:
    """What the cluster's table shows. `name` is part of a run's name, its id, or its submitter; `state`: a RunState, "live", "ended" or ""."""

    name: str = ""
    state: str = ""
    limit: int = 100
    offset: int = 0


@dataclass(frozen=True)
class JobRow:
    """A line of the cluster's table. `duration` is from the first step to the end or now."""

    run: TrainingRun
    submitter: str
    kind: str
    cpu_slots: int
    gpu_slots: int
    duration: dt.timedelta | None


@dataclass(frozen=True)
class RunRow:
    """A line of an experiment's tables: the run, slots held, latest value of each metric column (None: not there)."""

    run: TrainingRun
    slots: int
    metrics: list[float | None]


@dataclass(frozen=True)
class ExperimentTables:
    """The runs of an experiment by how far they are; `columns` are the metric names, the same for the three tables."""

    columns: list[str]
    queued: list[RunRow]
    in_progress: list[RunRow]
    completed: list[RunRow]


def jobs(wanted: JobFilter, *, now: dt.datetime) -> tuple[list[JobRow], int]:
    """(rows of this page, number of runs that match), newest first."""
    raise NotImplementedError


def experiment_tables(experiment: Experiment) -> ExperimentTables:
    raise NotImplementedError


def generations(run: TrainingRun, *, limit: int = 500) -> list[GenerationRecord]:
    """The run's memberships, newest first."""
    raise NotImplementedError


def run_slots(run: TrainingRun) -> list[Slot]:
    """The slots the run holds now, its node in the same query."""
    raise NotImplementedError
