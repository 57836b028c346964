"""Says what was deleted, in the transaction that deletes it: `pruning` removes files and rows that a tombstone names, and nothing else."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Iterable

from experiments.live import notify
from experiments.models import Tombstone, TrainingRun, User

Kind = Tombstone.Kind


def of_runs(runs: Iterable[TrainingRun], *, by: User, now: dt.datetime) -> None:
    _write([Tombstone(kind=Kind.RUN, key=run.folder, number=run.pk, by=by.username, at=now) for run in runs])


def of_assets(keys: Iterable[uuid.UUID], *, by: User, now: dt.datetime) -> None:
    _write([Tombstone(kind=Kind.ASSET, key=key.hex, by=by.username, at=now) for key in keys])


def of_uploads(keys: Iterable[uuid.UUID], *, by: User | None, now: dt.datetime) -> None:
    _write([Tombstone(kind=Kind.UPLOAD, key=key.hex, by=by.username if by is not None else "", at=now) for key in keys])


def of_bundle(sha256: str, *, now: dt.datetime) -> None:
    _write([Tombstone(kind=Kind.BUNDLE, key=sha256, at=now)])


def of_model_files(hashes: Iterable[str], *, by: User, now: dt.datetime) -> None:
    """Of files that no version has any more."""
    _write([Tombstone(kind=Kind.MODEL, key=sha256, by=by.username, at=now) for sha256 in hashes])


def of_checkpoints(keys: Iterable[uuid.UUID], *, now: dt.datetime) -> None:
    """Of files in the folder of a run, which DroppedCheckpoint names by the same key."""
    _write([Tombstone(kind=Kind.CHECKPOINT, key=key.hex, at=now) for key in keys])


def _write(stones: list[Tombstone]) -> None:
    Tombstone.objects.bulk_create(stones, batch_size=1000)
    if stones:
        notify.nudge_prune()
