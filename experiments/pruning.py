"""Removes what nobody refers to any more: drafts of uploads, code without a version, folders of deleted runs, ended sessions.

Everything here waits a day first, so that nothing is taken away from under somebody who is just making it.
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
from experiments.models import Bundle, DefinitionVersion, TrainingRun

log = logging.getLogger(__name__)
KEPT = dt.timedelta(days=1)


def prune(now: dt.datetime) -> int:
    """How many things were removed."""
    before = now - KEPT
    Session.objects.filter(expire_date__lt=now).delete()
    removed = _drafts(before) + _bundles(before) + _code(before) + _runs(before)
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
