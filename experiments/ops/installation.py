"""Which EDT_HOME this database belongs to. Both hold the same key, in a row and in the file `installation`, so that an empty or another
database is not taken for the truth about files that it knows nothing of; and what a database that was put back from a copy must not repeat.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from django.conf import settings
from django.db import connection, transaction

from experiments.models import Bundle, DataAsset, Installation, ModelFile, TrainingRun, User

FILE = "installation"
STORES = ("runs", "bundles", "assets", "models")  # what cannot be made anew
ADOPT = "if they do belong together, bind them to each other: .venv/bin/python manage.py adopt"


@dataclass(frozen=True)
class InstallationKeys:
    """The keys of the database and of the home (None: it has none), and whether there is anything in them: people in the database, files
    that it names, and files in the home."""

    database: uuid.UUID | None
    home: uuid.UUID | None
    has_people: bool
    names_files: bool
    has_files: bool


def refusal(found: InstallationKeys, *, home: Path) -> str:
    """Why a studio must not start with this database and this home; empty where it may."""
    if found.database is not None and found.database == found.home:
        return ""
    if found.database is None and found.home is None:  # new, or of a version before there were keys
        if found.has_files and not found.has_people:
            return f"EDT_HOME ({home}) holds files of a studio, but the database is empty. {_put_back()}"
        if found.names_files and not found.has_files:
            return f"The database names files, but EDT_HOME ({home}) holds none: set EDT_HOME to the folder that goes with it; {ADOPT}."
        return ""
    if not found.has_people:
        return f"EDT_HOME ({home}) belongs to another database; this one is empty. {_put_back()}"
    return (
        f"This database and EDT_HOME ({home}) do not belong together. Set DATABASE_URL and EDT_HOME to those that do, "
        f"or restore both from one backup (docs/operations.md); {ADOPT}."
    )


def look() -> InstallationKeys:
    """Reads, and changes nothing; also before the database has tables."""
    tables = set(connection.introspection.table_names())

    def there(model: type[Bundle | DataAsset | ModelFile | User | Installation]) -> bool:
        return model._meta.db_table in tables and model._default_manager.exists()

    return InstallationKeys(
        database=Installation.objects.values_list("key", flat=True).get(pk=1) if there(Installation) else None,
        home=key_of_home(),
        has_people=there(User),
        names_files=there(Bundle) or there(DataAsset) or there(ModelFile),
        has_files=any(not each.name.startswith(".") for store in STORES for each in (settings.EDT_HOME / store).iterdir()),
    )


def bind(*, anew: bool = False) -> None:
    """Give the database and the home one key, unless they have it. `anew`: another one than before, whatever they were bound to."""
    if not anew and matches():
        return
    key = uuid.uuid4()
    with transaction.atomic():
        Installation.objects.update_or_create(pk=1, defaults={"key": key})
        write_key(key)


def write_key(key: uuid.UUID) -> None:
    """Into the home alone, which goes with the database that has the same from then on."""
    path = _path()
    draft = path.with_name(f".{FILE}.{os.getpid()}")
    draft.write_text(f"{key}\n")
    draft.replace(path)


def matches() -> bool:
    """Whether the database and the home are bound to each other."""
    key = key_of_home()
    return key is not None and Installation.objects.filter(pk=1, key=key).exists()


@contextlib.contextmanager
def files_stay(*, wait: bool) -> Iterator[bool]:
    """Held by a backup (`wait`), so that what its copy of the database names is not moved away under it. The pruner asks whether it may go
    on (False: not now), and holds backups up for its turn."""
    with open(settings.EDT_HOME / ".files.lock", "wb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX if wait else fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True


def spare_numbers(highest: int) -> None:
    """Never give a run a number up to this one, even if the database has forgotten the runs that had them: a number stands for a user of
    the machine, for processes that the host may still know, and in people's links."""
    table = TrainingRun._meta.db_table
    with transaction.atomic(), connection.cursor() as cursor:
        if connection.vendor == "sqlite":
            cursor.execute("SELECT max(seq) FROM sqlite_sequence WHERE name = %s", [table])
            if (cursor.fetchone()[0] or 0) < highest:
                cursor.execute("DELETE FROM sqlite_sequence WHERE name = %s", [table])
                cursor.execute("INSERT INTO sqlite_sequence (name, seq) VALUES (%s, %s)", [table, highest])
        elif highest:
            cursor.execute("SELECT pg_get_serial_sequence(%s, 'id')", [table])
            sequence = cursor.fetchone()[0]
            cursor.execute("SELECT coalesce(pg_sequence_last_value(%s::regclass), 0)", [sequence])
            if cursor.fetchone()[0] < highest:
                cursor.execute("SELECT setval(%s, %s)", [sequence, highest])


def _put_back() -> str:
    return (
        "Set DATABASE_URL to the database that goes with these files, restore a backup (docs/operations.md), or set EDT_HOME to an empty "
        "folder for a new studio. To begin with an empty database beside these files: .venv/bin/python manage.py adopt"
    )


def key_of_home() -> uuid.UUID | None:
    try:
        return uuid.UUID(_path().read_text().strip())
    except FileNotFoundError:
        return None
    except ValueError:
        return uuid.UUID(int=0)  # cut off or overwritten: it is nobody's


def _path() -> Path:
    path: Path = settings.EDT_HOME / FILE
    return path


def version() -> str:
    """Of the studio."""
    try:
        return metadata.version("edt-studio")
    except metadata.PackageNotFoundError:  # run from its source
        return "0.1.0"
