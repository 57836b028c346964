"""Puts a backup into an empty EDT_HOME and an empty database: what starts from them goes on where the backup was made.

The database comes last. A restore that was cut off leaves files without a database, with which no studio starts.
"""

from __future__ import annotations

import datetime as dt
import os
import shutil
from pathlib import Path

from django.conf import settings
from django.db import connection, transaction

from experiments.cluster import fleet
from experiments.models import Delivery, Node
from experiments.ops import installation
from webapp.studio import dump, prepare
from webapp.studio.backup import MANIFEST, STORES, BackupRefused, Counts, Manifest, copy_tree, manifest_of, skipped

RUN_FOLDER_MODE = 0o750  # until the host gives it to the user of the run again
NOT_SENT = "not sent: it was waiting when the backup was made"
NAMED = 5  # so many of what is wrong are listed in a message


def put_back(source: Path, *, now: dt.datetime) -> tuple[Manifest, Counts]:
    """Raises BackupRefused, with nothing changed, where the backup or the place for it is not as it must be."""
    home: Path = settings.EDT_HOME
    _check_files(source)
    manifest = manifest_of(source)
    _check(manifest, home)
    counts = Counts()
    shutil.rmtree(home / "secrets")  # what this very command made, on its way here
    for store in (*STORES, "data", "secrets"):
        if (source / store).is_dir():
            copy_tree(source / store, home / store, counts=counts, skip=skipped(store))
    (home / "secrets").chmod(0o700)
    for path in (home / "secrets").iterdir():
        path.chmod(0o600)
    for folder in (home / "runs").iterdir():
        if folder.is_dir():
            folder.chmod(RUN_FOLDER_MODE)
    dump.read(source, tables=manifest.tables, migrations=manifest.migrations)
    prepare.database(adopt=True)  # another pair from now on than the one that was backed up, which may still be at work
    # Whether these were sent since then nobody knows: an e-mail too few is better than everybody's of a week again.
    Delivery.objects.filter(done_at=None).update(done_at=now, outcome=NOT_SENT)
    with transaction.atomic():
        for node in Node.objects.all():
            fleet.fence(node, now=now)  # its host is another from now on, also where that one is still at work
    connection.close()
    return manifest, counts


def _check_files(source: Path) -> None:
    """What the studio would follow with its own rights is what it wrote: a file or a folder, no link or pipe in place of one. (Deeper in
    runs and data there may be links, which nobody follows.)"""
    stores = (*STORES, "secrets", dump.FOLDER)
    tops = [source / name for name in (MANIFEST, dump.FILE, "data", *stores)]
    inside = [Path(entry) for store in stores if _is_plain(source / store, folder=True) for entry in os.scandir(source / store)]
    strange = [str(path.relative_to(source)) for path in (*tops, *inside) if os.path.lexists(path) and not _is_plain(path)]
    if strange:
        more = f" and {len(strange) - NAMED} more" if len(strange) > NAMED else ""
        names = ", ".join(map(ascii, sorted(strange)[:NAMED]))
        raise BackupRefused(f"{source} is no backup that a studio made: {names}{more} is a link, or no file. Somebody has changed it.")


def _is_plain(path: Path, *, folder: bool = False) -> bool:
    """A folder, or (not `folder`) a regular file, itself."""
    return not path.is_symlink() and (path.is_dir() or (path.is_file() and not folder))


def _check(manifest: Manifest, home: Path) -> None:
    if (home / installation.FILE).exists() or installation.look().has_files:
        raise BackupRefused(f"EDT_HOME ({home}) is not empty: set it to a folder that is not there yet.")
    if not dump.is_empty():
        raise BackupRefused("The database is not empty: name an empty one in DATABASE_URL, or none for SQLite in EDT_HOME.")
    if manifest.database != connection.vendor:
        raise BackupRefused(
            f"The backup is of a {manifest.database} database and this is {connection.vendor}: set DATABASE_URL to one of the same kind. "
            "What was restored with SQLite can move to PostgreSQL (manage.py move_database)."
        )
    if unknown := dump.unknown(manifest.migrations):
        raise BackupRefused(
            f"The backup was made by a newer version of the studio ({manifest.version}), with {unknown[-1]}, which this one does not have: "
            "restore it with that version."
        )
