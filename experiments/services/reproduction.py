"""Reproduce: a run is done again, with what it had, on whatever slots there are."""

from __future__ import annotations

import datetime as dt
import uuid

from django.db import transaction

from experiments.errors import DomainError
from experiments.models import TrainingRun, User
from experiments.models.runs import RUN_NAME_LIMIT
from experiments.services import continuation, reruns

NOT_ENDED = "The run has not ended: a run is reproduced when it is known what came of it."
NO_RECEIPT = "The run has not ended: its receipt is made when it is known what came of it."
OUTSIDE = "The run was logged from outside: the studio has not seen what it computed with, and seals nothing of it."
NO_BEGINNING = "It began with the last checkpoint of run {}, which is not there any more: it cannot be reproduced."


def check_receipt(run: TrainingRun) -> None:
    """Raises DomainError where the studio cannot vouch for it."""
    if run.outside:
        raise DomainError(OUTSIDE)
    if run.is_live():
        raise DomainError(NO_RECEIPT)


def reproduce(source: TrainingRun, *, by: User, idempotency_key: uuid.UUID | None = None, now: dt.datetime | None = None) -> TrainingRun:
    """A queued run with the code, command, variables, data and slots of `source`, which has ended, and with its beginning: nothing, or the
    checkpoint that it went on from. The same request makes one."""
    if source.is_live():
        raise DomainError(NOT_ENDED)
    if source.continues is not None:
        origin = TrainingRun.objects.filter(pk=source.continues).first()
        if origin is None or not continuation.has_checkpoint(origin):
            raise DomainError(NO_BEGINNING.format(source.continues))
    with transaction.atomic():
        (made,) = reruns.run_with_changes(source, by=by, why=f"to reproduce run {source.pk}", idempotency_key=idempotency_key, now=now)
        if made.reproduces is None:
            made.name, made.reproduces, made.continues = f"{source.name[: RUN_NAME_LIMIT - 12]}, reproduced", source.pk, source.continues
            made.save(update_fields=["name", "reproduces", "continues"])
    return made
