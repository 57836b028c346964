"""An imported project's rows are made in pieces, a transaction each, so that other people's writes come in between; and removed in pieces,
where an attempt did not come to its end."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Sequence
from typing import TypeVar

from django.db import transaction

from experiments.models import Project, ProjectImport, RunValue, TrainingRun

T = TypeVar("T")
AT_ONCE = 20  # in one transaction
REST_S = 0.01  # between two: who waits to write on SQLite looks every millisecond


def in_pieces(all_: Sequence[T]) -> Iterator[Sequence[T]]:
    for first in range(0, len(all_), AT_ONCE):
        yield all_[first : first + AT_ONCE]
        time.sleep(REST_S)


def key_of(order: ProjectImport) -> uuid.UUID:
    """By which the project is found that an attempt has begun."""
    return uuid.uuid5(order.key, "project")


def unmake(order: ProjectImport) -> None:
    """Remove the rows of an attempt that was killed, or failed. Files, of which no tombstone may speak, are the next attempt's to replace,
    or `files.take_back`'s."""
    half = Project.every.filter(idempotency_key=key_of(order), state=Project.State.ARRIVING).first()
    if half is None:
        return
    runs = TrainingRun.objects.filter(experiment__project=half)
    while some := list(runs.order_by("pk").values_list("pk", flat=True)[:AT_ONCE]):
        with transaction.atomic():
            RunValue.objects.filter(run__in=some).delete()
            TrainingRun.objects.filter(pk__in=some).delete()
        time.sleep(REST_S)
    for rows in (half.experiments.all(), half.definitions.all(), half.data_assets.all()):
        while some := list(rows.order_by("pk").values_list("pk", flat=True)[:AT_ONCE]):
            rows.filter(pk__in=some).delete()
            time.sleep(REST_S)
    half.delete()
