"""Runs that the studio did not start: somebody's own machine logs them while they run, or brings what it has of them (MLflow's interface,
the API). No plan knows them and they hold no slots; their state is what their logger says, or a stop on their page. Their journal is
written here, by the studio itself, and taken into the database like every other."""

from __future__ import annotations

import datetime as dt
import io
import os
import uuid
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from typing import Literal

from django.conf import settings
from django.db import transaction

from experiments.errors import DomainError
from experiments.files import bundles, runfiles
from experiments.live import notify
from experiments.metrics import ingest
from experiments.models import (
    Bundle,
    DefinitionVersion,
    Experiment,
    JournalCursor,
    MetricSeries,
    Project,
    RunState,
    TrainingDefinition,
    TrainingRun,
    User,
)
from experiments.models.runs import RUN_NAME_LIMIT
from experiments.runs import run_values, states
from experiments.services import checks, watches
from training_runtime import journal, journal_writer
from training_runtime.tracking.answers import Group

NAME = "Logged from outside"
DESCRIPTION = "Runs that the studio did not start: they were logged or brought from people's own machines."
FILE_NAME = "logged_from_outside.py"
# A training definition has code. These bytes stay as they are: the definition is found by them.
CODE = """raise SystemExit("Runs that the studio did not start: they were logged from people's own machines, by MLflow's client. \
Their code is where they ran.")
"""
MOST_FINALS = 500
NAMES_IN_LINE = 200
EARLIEST = dt.datetime(2000, 1, 1, tzinfo=dt.UTC)
CLOCKS = dt.timedelta(minutes=1)  # that clocks differ by
STARTED_HERE = "The studio started this run: its metrics, files and state come from inside."
STOPPED = "The run was stopped on its page: begin another."
Outcome = Literal["completed", "failed", "stopped"]
ENDS: dict[Outcome, RunState] = {"completed": RunState.COMPLETED, "failed": RunState.FAILED, "stopped": RunState.STOPPED}
SAID: dict[Outcome, str] = {"completed": "Its logger says that it ended.", "failed": "Its logger says that it failed."}
SAID["stopped"] = "Its logger says that it was ended."
TimedEvent = tuple[journal.Event, float]  # and when (Unix seconds)


def begin_run(
    project: Project, *, by: User, name: str, began_at: dt.datetime, now: dt.datetime, idempotency_key: uuid.UUID | None = None
) -> TrainingRun:
    """It runs from then on. Fields: name, started_at."""
    _in_time(began_at, "started_at", since=EARLIEST, now=now)
    clean, reason = checks.name(name, limit=RUN_NAME_LIMIT), f"{by.username} logs it from outside."
    bundle = bundles.store_bundle(_code(), file_name=f"{FILE_NAME}.zip")
    with transaction.atomic():
        checks.hold_project(project.pk)  # nor are there two of the rows below
        if before := checks.same_request(TrainingRun.objects.filter(submitted_by=by), idempotency_key):
            return before
        experiment, version = _experiment(project, by), _version(project, bundle, by)
        run = TrainingRun.objects.create(
            experiment=experiment,
            version=version,
            outside=True,
            name=clean,
            state=RunState.RUNNING,
            state_reason=reason,
            submitted_by=by,
            submitted_at=now,
            started_at=min(began_at, now),
            max_slots=1,
            idempotency_key=idempotency_key,
        )
        JournalCursor.objects.create(run=run)
        run_values.begin([run])
        states.begin(run, reason=reason, now=min(began_at, now), actor=by)  # its history is in order, wherever it ran
        watches.inherit([run], experiment=experiment)
    return run


def lines(figures: Mapping[tuple[Group, int, float], Mapping[str, float]], *, now: float) -> Iterator[TimedEvent]:
    """Of figures by their group, step and time (Unix seconds; what cannot be is `now`): values by name."""
    for (group, step, t), metrics in figures.items():
        names = list(metrics)
        for first in range(0, len(names), NAMES_IN_LINE):
            some = {name: metrics[name] for name in names[first : first + NAMES_IN_LINE]}
            yield journal.Logged(group, step, some), t if 0 < t <= now + CLOCKS.total_seconds() else now


def log(run: TrainingRun, said: Iterable[TimedEvent], *, now: dt.datetime) -> None:
    """Lines for its journal, which are in the database when this returns. OSError where the disk does not take them, or its folder is on
    its way back from the object store."""
    runfiles.make(run)  # not in the transaction: asking for it back must outlast the refusal
    with transaction.atomic():
        # Two requests at once: the second waits here, else both would give their lines the same numbers.
        cursor = JournalCursor.objects.select_for_update().get(run=run)
        path = runfiles.make(run) / journal.FILE_NAME
        if path.exists() and path.stat().st_size >= settings.EDT_MAX_JOURNAL_BYTES:
            raise DomainError(f"The run has logged {settings.EDT_MAX_JOURNAL_BYTES >> 20} MiB, and more is not kept: begin another.")
        writer = journal_writer.Writer(path, run.pk if cursor.lines_of is None else cursor.lines_of)
        try:
            for event, t in said:
                writer.write(event, t=t)
        finally:
            writer.close()
        ingest.catch_up(run.pk, now=now)


def check_written(run: TrainingRun) -> None:
    """Raises DomainError where figures and files of the run do not come from outside, or no longer do."""
    check_outside(run)
    if run.stop_requested_at is not None:
        raise DomainError(STOPPED)


def check_outside(run: TrainingRun) -> None:
    """Raises DomainError for a run of the studio's own."""
    if not run.outside:
        raise DomainError(STARTED_HERE)


def end_run(run: TrainingRun, outcome: Outcome, *, by: User, at: dt.datetime, now: dt.datetime) -> bool:
    """What it measured last is its result; whether this call ended it: one that has ended before keeps its state. Field: ended_at."""
    since = run.started_at or run.submitted_at
    _in_time(at, "ended_at", since=since, now=now)
    last = MetricSeries.objects.filter(run=run, last_value__isnull=False)[:MOST_FINALS]
    runfiles.make(run)
    finals = {f"{one.group} {one.name}": float(one.last_value or 0.0) for one in last}
    with transaction.atomic():
        log(run, [(journal.Finished(outcome, run.step, 0, finals, (at - since).total_seconds()), at.timestamp())], now=now)
        return states.transition(run, ENDS[outcome], reason=SAID[outcome], now=at, actor=by)


def _in_time(at: dt.datetime, field: str, *, since: dt.datetime, now: dt.datetime) -> None:
    if not since <= at <= now + CLOCKS:
        raise DomainError({field: [f"This is before {since:%Y-%m-%d %H:%M} or in the future: check the clock, and the time zone."]})


def receive_file(run: TrainingRun, path: str, body: io.BufferedIOBase) -> None:
    """A file below its results, in the place of one that is there."""
    runfiles.make(run)
    try:
        runfiles.write(run, path, body, most_bytes=settings.EDT_MAX_UPLOAD_BYTES)
    except runfiles.TooLarge:
        raise DomainError(f"A file has at most {settings.EDT_MAX_UPLOAD_BYTES >> 20} MiB.") from None
    notify.changed(f"run-{run.pk}", "files")


def _code() -> io.BytesIO:
    """The same bytes each time, so it is one bundle."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr(zipfile.ZipInfo(FILE_NAME), CODE)
    packed.seek(0, os.SEEK_SET)
    return packed


def _experiment(project: Project, by: User) -> Experiment:
    """It runs nothing: it has no training definitions."""
    found: Experiment | None = project.experiments.filter(name=NAME, parts=None).order_by("pk").first()
    if found is None:
        found = Experiment.objects.create(project=project, name=NAME, description=DESCRIPTION, created_by=by)
        notify.changed(f"project-{project.pk}", "experiments")
    return found


def _version(project: Project, bundle: Bundle, by: User) -> DefinitionVersion:
    found = DefinitionVersion.objects.filter(definition__project=project, bundle=bundle).order_by("pk").first()
    if found is None:
        definition = TrainingDefinition.objects.create(project=project, name=NAME, description=DESCRIPTION, created_by=by)
        facts = {"file_name": f"{FILE_NAME}.zip", "distributed": DefinitionVersion.Distributed.SINGLE, "max_slots": 1}
        found = DefinitionVersion.objects.create(definition=definition, number=1, bundle=bundle, created_by=by, **facts)
        notify.changed(f"project-{project.pk}", "definitions")
    return found
