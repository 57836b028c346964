"""A run that goes on where another one stopped: a new run with a copy of its checkpoint, which the node host makes when it starts."""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import uuid

from django.db import IntegrityError, transaction
from django.utils import timezone

from experiments.errors import DomainError
from experiments.files import bundles, runfiles
from experiments.live import notify
from experiments.models import JournalCursor, TrainingRun, User
from experiments.runs import run_values, states
from experiments.services import checks, watches

CHECKPOINT = "checkpoint/engine.pt"  # what the engine writes to resume from


def has_checkpoint(run: TrainingRun) -> bool:
    """Whether the run has left a state that another one can begin with."""
    with contextlib.suppress(FileNotFoundError):
        os.close(runfiles.open_regular(run, CHECKPOINT))
        return True
    return False


def continue_run(
    source: TrainingRun, *, by: User, command: str = "", idempotency_key: uuid.UUID | None = None, now: dt.datetime | None = None
) -> TrainingRun:
    """A queued run of the same experiment, version and data that begins with the last checkpoint of `source`, which has ended.

    An empty `command` is the one that `source` had. Field: command. The same request makes one run.
    """
    now = now or timezone.now()
    command = checks.text(command, field="command", limit=checks.COMMAND_LIMIT) or source.command
    checks.network(source.version, project=source.experiment.project_id, field="command")
    checks.room(source.experiment.project, by=by, field="command")
    try:
        bundles.check_type(command, source.version.distributed, begins=bundles.entry(source.version.bundle, command)[0])
    except bundles.BundleRefused as refusal:
        checks.refuse("command", str(refusal))
    try:
        with transaction.atomic():
            checks.hold_project(source.experiment.project_id)
            return _queue(source, by=by, command=command, idempotency_key=idempotency_key, now=now)
    except IntegrityError:
        before = TrainingRun.objects.filter(submitted_by=by, idempotency_key=idempotency_key, continues=source.pk).first()
        if idempotency_key is None or before is None:
            raise
        return before


def _queue(source: TrainingRun, *, by: User, command: str, idempotency_key: uuid.UUID | None, now: dt.datetime) -> TrainingRun:
    found = TrainingRun.objects.select_for_update(of=("self",), no_key=True).filter(pk=source.pk).first()  # it is not deleted meanwhile
    if found is None:
        raise DomainError("The run has been deleted meanwhile.")
    if found.is_live():
        raise DomainError("The run has not ended: stop it, or let it end, then continue from its checkpoint.")
    if not has_checkpoint(found):
        raise DomainError("The run has left no checkpoint: run it again instead.")
    run = TrainingRun.objects.create(
        experiment=source.experiment,
        version=source.version,
        name=source.name,
        submitted_by=by,
        submitted_at=now,
        command=command,
        data_folder=source.data_folder,
        environment=source.environment,
        min_slots=source.min_slots,
        max_slots=source.max_slots,
        checkpoints=source.checkpoints,
        idempotency_key=idempotency_key,
        position=source.position,
        continues=source.pk,
    )
    JournalCursor.objects.create(run=run)
    run_values.begin([run])
    watches.inherit([run], experiment=source.experiment)
    states.begin(run, reason=f"Submitted by {by.username}, to continue from the last checkpoint of run {source.pk}.", now=now, actor=by)
    notify.nudge_schedule()
    return run
