"""Removes what nobody refers to any more: drafts of uploads, code without a version, folders of deleted runs and data, ended sessions.

Everything here waits a day first, so that nothing is taken away from under somebody who is just making it; an upload of data a week.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import logging
import shutil
from pathlib import Path

from django.conf import settings
from django.contrib.sessions.models import Session
from django.db import transaction
from django.db.models import ProtectedError

from experiments import runfiles
from experiments.models import Bundle, DataAsset, DataUpload, DefinitionVersion, Delivery, Notice, TrainingRun

log = logging.getLogger(__name__)
KEPT = dt.timedelta(days=1)
NOTICES_KEPT = dt.timedelta(days=90)
DELIVERIES_KEPT = dt.timedelta(days=7)  # longer than any of them is tried
UPLOAD_KEPT = dt.timedelta(days=7)  # since its last piece


def prune(now: dt.datetime) -> int:
    """How many things were removed."""
    before = now - KEPT
    Session.objects.filter(expire_date__lt=now).delete()
    Notice.objects.filter(at__lt=now - NOTICES_KEPT).delete()
    Delivery.objects.filter(created_at__lt=now - DELIVERIES_KEPT).delete()
    removed = _drafts(before) + _bundles(before) + _code(before) + _runs(before) + _data(before) + _uploads(now - UPLOAD_KEPT)
    if removed:
        log.info("Removed %d things that nobody refers to any more.", removed)
    return removed


def _drafts(before: dt.datetime) -> int:
    return sum(_remove(path) for path in (settings.EDT_HOME / "tmp").iterdir() if _older(path, before))


def _bundles(before: dt.datetime) -> int:
    """Rows without a version; their files follow with the code."""
    unused = Bundle.objects.filter(created_at__lt=before).exclude(pk__in=DefinitionVersion.objects.values("bundle"))
    removed = 0
    for bundle in unused:
        # A version that is made with it at this moment keeps it: the foreign key protects it, or finds it gone and the upload is repeated.
        with contextlib.suppress(ProtectedError), transaction.atomic():
            bundle.delete()
            removed += 1
    return removed


def _code(before: dt.datetime) -> int:
    known = set(Bundle.objects.values_list("sha256", flat=True))
    paths = [*(settings.EDT_HOME / "code").iterdir(), *(settings.EDT_HOME / "bundles").iterdir()]
    return sum(_remove(path) for path in paths if path.name.removesuffix(".zip") not in known and _older(path, before))


def _runs(before: dt.datetime) -> int:
    known = set(TrainingRun.objects.values_list("pk", flat=True))
    gone = [
        int(path.name)
        for path in (settings.EDT_HOME / "runs").iterdir()
        if path.name.isascii() and path.name.isdigit() and int(path.name) not in known and _older(path, before)
    ]
    for run in gone:
        runfiles.remove(run)
    return len(gone)


def _data(before: dt.datetime) -> int:
    known = {key.hex for key in DataAsset.objects.values_list("key", flat=True)}
    return sum(_remove(path) for path in (settings.EDT_HOME / "assets").iterdir() if path.name not in known and _older(path, before))


def _uploads(before: dt.datetime) -> int:
    """Uploads that nobody has gone on with, and folders that no upload refers to."""
    folder: Path = settings.EDT_HOME / "uploads"
    stale = [each for each in DataUpload.objects.filter(created_at__lt=before) if _newest(folder / each.key.hex) < before.timestamp()]
    for upload in stale:
        upload.delete()
        _remove(folder / upload.key.hex)
    known = {key.hex for key in DataUpload.objects.values_list("key", flat=True)}
    return len(stale) + sum(_remove(path) for path in folder.iterdir() if path.name not in known and _older(path, before))


def _newest(folder: Path) -> float:
    """When a piece came last (Unix seconds); 0 where none has."""
    return max((path.lstat().st_mtime for path in folder.iterdir()), default=0.0) if folder.is_dir() else 0.0


def _older(path: Path, before: dt.datetime) -> bool:
    try:
        return path.lstat().st_mtime < before.timestamp()
    except FileNotFoundError:
        return False


def _remove(path: Path) -> int:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
    return 1
