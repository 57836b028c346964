"""Removes what was deleted, and what expires: drafts of uploads, old notifications, ended sessions.

Files and rows of runs, data and code go only where a tombstone names them: files are first moved to the trash of their store
(`EDT_HOME/runs/.trash`, say), and removed from there when EDT_TRASH_DAYS are over. All of it is done in turns of bounded length, each of
which can be cut off anywhere: the next one goes on. What no row and no tombstone names (`orphans`) is reported and left alone.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import logging
import os
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import ProtectedError, Q, QuerySet

from experiments.cluster import environments
from experiments.files import bundles, modelstore, removal, retention, runfiles, stores, tombstones
from experiments.files.store import copies
from experiments.models import (
    BrowserSession,
    Bundle,
    DataAsset,
    DataUpload,
    DefinitionVersion,
    Delivery,
    DroppedCheckpoint,
    GenerationRecord,
    Metric,
    MetricRollup,
    MetricSeries,
    ModelFile,
    ModelVersion,
    Notification,
    ProjectImport,
    RunComment,
    RunEvent,
    RunValue,
    StateDigest,
    Tombstone,
    TrainingRun,
    UtilizationSample,
)
from experiments.ops import installation

log = logging.getLogger(__name__)
KEPT = dt.timedelta(days=1)
NOTIFICATIONS_KEPT = dt.timedelta(days=90)
DELIVERIES_KEPT = dt.timedelta(days=7)  # longer than any of them is tried
UPLOAD_KEPT = dt.timedelta(days=7)  # since its last piece
TOMBSTONES_KEPT = dt.timedelta(days=365)  # who deleted what
STORES = ("runs", "assets", "models", "uploads", "bundles", "code")
TRASH = ".trash"
ROWS_AT_ONCE = 10_000  # in one statement: others wait a fraction of a second for the database
FILES_AT_ONCE = 10_000
TURN_PIECES = 20
MOST_AT_ONCE = 1000  # tombstones in one turn
OURS = (TRASH, ".highest", ".lock", ".uid-base")  # what lies in the stores beside what is stored
NAMED_ORPHANS = 5
Kind = Tombstone.Kind


def prune(now: dt.datetime) -> bool:
    """Remove what expires, and one turn of what was deleted; whether there is more to do."""
    BrowserSession.objects.filter(expire_date__lt=now).delete()
    Notification.objects.filter(at__lt=now - NOTIFICATIONS_KEPT).delete()
    RunComment.objects.filter(deleted_at__lt=now - dt.timedelta(days=settings.EDT_TRASH_DAYS)).delete()
    Delivery.objects.filter(created_at__lt=now - DELIVERIES_KEPT).delete()
    if not _at_home():
        return False
    Tombstone.objects.filter(emptied_at__lt=now - TOMBSTONES_KEPT).delete()
    unpacking = (settings.EDT_HOME / "code").glob(f"{bundles.UNPACKING}*")
    for path in (*_entries(settings.EDT_HOME / "tmp"), *unpacking):
        if _older(path, now - KEPT):
            _remove_draft(path)
    environments.collect(now)
    _unused_bundles(now)
    _stale_uploads(now)
    _stale_imports(now)
    if found := orphans(now):
        names = ", ".join(str(path.relative_to(settings.EDT_HOME)) for path in found[:NAMED_ORPHANS])
        log.warning("%d things in EDT_HOME belong to nothing in the database: manage.py prune --dry-run lists them (%s)", len(found), names)
    return clear(now)


def _remove_draft(path: Path) -> None:
    try:
        removal.remove(path)
    except OSError as error:  # all else is not kept waiting
        log.error("%s is left over and cannot be removed: %s", path, error)


def clear(now: dt.datetime, *, kept: dt.timedelta | None = None) -> bool:
    """One turn of removing what was deleted; whether there is more to do now. `kept`: how long files stay in the trash."""
    if not _at_home():
        return False
    kept = dt.timedelta(days=settings.EDT_TRASH_DAYS) if kept is None else kept
    pieces, over = TURN_PIECES, 0
    with installation.files_stay(wait=False) as allowed:
        if not allowed:
            log.info("A backup is being made: what was deleted is removed afterwards.")
            return False
        for stone in due(now, kept)[:MOST_AT_ONCE]:
            try:
                while pieces > 0 and not (done := _go_on(stone, now)):
                    pieces -= 1
            except OSError as error:  # of its files; the others are not kept waiting
                log.error("The files of the deleted %s %s cannot be removed: %s", stone.kind, stone.key, error)
                continue
            pieces, over = pieces - 1, over + done
            if pieces <= 0:
                break
    return (over > 0 or pieces <= 0) and due(now, kept).exists()


def orphans(now: dt.datetime) -> list[Path]:
    """What lies in the stores, older than a day, and is named by no row and no tombstone."""
    named = set(TrainingRun.objects.values_list("folder", flat=True)) | set(Bundle.objects.values_list("sha256", flat=True))
    named |= {key.hex for key in (*DataAsset.objects.values_list("key", flat=True), *DataUpload.objects.values_list("key", flat=True))}
    named |= set(ModelFile.objects.values_list("sha256", flat=True))
    named |= {key.hex for key in ProjectImport.objects.values_list("key", flat=True)}
    named |= set(Tombstone.objects.filter(emptied_at=None).values_list("key", flat=True))
    found = (path for store in STORES for path in _entries(settings.EDT_HOME / store) if path.name not in OURS)
    return sorted(path for path in found if path.name.removesuffix(".zip").removeprefix(".") not in named and _older(path, now - KEPT))


def _at_home() -> bool:
    """Whether this database knows this home's files. The studio does not start otherwise; a worker may have been started by hand."""
    if installation.matches():
        return True
    log.error("EDT_HOME (%s) and the database do not belong together: no file is removed. See manage.py adopt.", settings.EDT_HOME)
    return False


def due(now: dt.datetime, kept: dt.timedelta) -> QuerySet[Tombstone]:
    """Without `kept` all: the clock may have been ahead when they came into the trash."""
    at_once = Q(kind=Kind.UPLOAD)  # given up or finished: nothing of it is missed
    waits = Tombstone.objects.filter(emptied_at=None)
    return waits.filter(Q(trashed_at=None) | at_once | Q(trashed_at__lte=now - kept)) if kept else waits


def _go_on(stone: Tombstone, now: dt.datetime) -> bool:
    """Do a piece of what a tombstone asks for; whether its files are in the trash and its rows gone, or else its trash is empty."""
    if stone.trashed_at is None:
        _to_trash(stone)
        over = _remove_rows(stone)
        if over:
            Tombstone.objects.filter(pk=stone.pk).update(trashed_at=now)
        return over
    # Once more the rows: whoever had seen the run just before it was deleted may have stored some.
    over = _remove_rows(stone) and all(removal.remove(_in_trash(stone, place), most=FILES_AT_ONCE) for place in _places(stone))
    if over:
        Tombstone.objects.filter(pk=stone.pk).update(emptied_at=now)
        copies.discard(stone, now=now)
        log.info("Removed %s %s, deleted by %s on %s.", stone.kind, stone.key, stone.by or "the studio", stone.at.date())
    return over


def _to_trash(stone: Tombstone) -> None:
    """Move its files, unless a row names them again: code that was uploaded once more, a model that was registered once more."""
    with bundles.files_stay(), modelstore.files_stay():
        if stone.kind == Kind.BUNDLE and Bundle.objects.filter(sha256=stone.key).exists():
            return
        if stone.kind == Kind.MODEL and ModelFile.objects.filter(sha256=stone.key).exists():
            return
        for place in _places(stone):
            trash = _in_trash(stone, place)
            trash.parent.mkdir(mode=0o700, exist_ok=True)
            if stone.kind == Kind.CHECKPOINT:
                _checkpoint_to_trash(stone, trash)
                continue
            with contextlib.suppress(FileNotFoundError):  # it was never made, or is in the trash already
                place.rename(trash)


def _checkpoint_to_trash(stone: Tombstone, trash: Path) -> None:
    trash.mkdir(mode=0o700, exist_ok=True)
    into = runfiles.open_folder(trash, "")
    try:
        retention.move(stone.key, into)
    finally:
        os.close(into)


def _places(stone: Tombstone) -> list[Path]:
    home: Path = settings.EDT_HOME
    key = stores.named(stone.key)
    match stone.kind:
        case Kind.RUN | Kind.CHECKPOINT:  # the latter has a place of its own in the trash only
            return [home / "runs" / key]
        case Kind.ASSET:
            return [home / "assets" / key]
        case Kind.BUNDLE:
            return [home / "bundles" / f"{key}.zip", home / "code" / key]
        case Kind.MODEL:
            return [home / "models" / key]
    places = [home / "uploads" / key, home / "assets" / f".{key}"]
    if key != stores.NOWHERE and not _became_data(key):  # checked in full, and given up before it became one
        places.append(home / "assets" / key)
    return places


def _became_data(key: str) -> bool:
    """Whether an upload became a data asset; one that was deleted since stays in the trash as long as any, an upload does not."""
    return DataAsset.objects.filter(key=key).exists() or Tombstone.objects.filter(kind=Kind.ASSET, key=key).exists()


def _in_trash(stone: Tombstone, place: Path) -> Path:
    return place.parent / TRASH / f"{stone.pk}-{place.name}"


def _remove_rows(stone: Tombstone) -> bool:
    """Delete a piece of what the run had many rows of; whether nothing is left."""
    if stone.number is None or TrainingRun.objects.filter(pk=stone.number).exists():
        return True
    many: tuple[QuerySet[Any], ...] = (
        Metric.objects.filter(series__run=stone.number),
        MetricRollup.objects.filter(series__run=stone.number),
        *(
            model._default_manager.filter(run=stone.number)
            for model in (MetricSeries, RunValue, GenerationRecord, RunEvent, DroppedCheckpoint, UtilizationSample, StateDigest)
        ),
    )
    for rows in many:
        some = list(rows.order_by().values_list("pk", flat=True)[:ROWS_AT_ONCE])
        if some:
            rows.model._default_manager.filter(pk__in=some).delete()
            return False
    return True


def _unused_bundles(now: dt.datetime) -> None:
    """Code without a version, neither of a training definition nor of a model."""
    unused = Bundle.objects.filter(created_at__lt=now - KEPT).exclude(pk__in=DefinitionVersion.objects.values("bundle"))
    for bundle in unused.exclude(pk__in=ModelVersion.objects.exclude(code=None).values("code")):
        # A version that is made with it at this moment keeps it: the foreign key protects it, or finds it gone and the upload is repeated.
        with contextlib.suppress(ProtectedError), transaction.atomic():
            bundle.delete()
            tombstones.of_bundle(bundle.sha256, now=now)


def _stale_uploads(now: dt.datetime) -> None:
    """Uploads that nobody has gone on with."""
    before = now - UPLOAD_KEPT
    for upload in DataUpload.objects.filter(created_at__lt=before):
        if _newest(settings.EDT_HOME / "uploads" / upload.key.hex) < before.timestamp():
            with transaction.atomic():
                upload.delete()
                tombstones.of_uploads([upload.key], by=None, now=now)


def _stale_imports(now: dt.datetime) -> None:
    """Archives of projects of which no more has come, and what is said of those that are over."""
    ProjectImport.objects.filter(ended_at__lt=now - NOTIFICATIONS_KEPT).delete()
    before = now - UPLOAD_KEPT
    for order in ProjectImport.objects.filter(state=ProjectImport.State.ARRIVING, created_at__lt=before):
        if _newest(settings.EDT_HOME / "uploads" / order.key.hex) < before.timestamp():
            with transaction.atomic():
                order.delete()
                tombstones.of_uploads([order.key], by=None, now=now)


def _newest(folder: Path) -> float:
    """When a piece came last (Unix seconds); 0 where none has."""
    return max((path.lstat().st_mtime for path in _entries(folder)), default=0.0)


def _entries(folder: Path) -> list[Path]:
    return list(folder.iterdir()) if folder.is_dir() else []


def _older(path: Path, before: dt.datetime) -> bool:
    try:
        return path.lstat().st_mtime < before.timestamp()
    except FileNotFoundError:
        return False
