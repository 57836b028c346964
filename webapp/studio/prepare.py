"""Brings what is stored up to date before anything starts: database tables and static files. Each step does nothing when there is nothing
to do, which is what makes the second start quick.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from django.conf import settings
from django.contrib.staticfiles.finders import get_finders
from django.core.management import call_command
from django.db import DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor

from experiments.cluster import own_machine as cluster_own_machine
from experiments.files import runfiles
from experiments.ops import clock, installation
from webapp.studio import own_machine
from webapp.studio.checks import Refusal

NOT_SERVED = ["redoc*", "favicon*", "*.map", "swagger-ui-init.js"]  # of what lies beside Swagger UI


def database(*, adopt: bool = False) -> bool:
    """Bring the tables up to date; True where something had to be done. Raises Refusal where the database and EDT_HOME do not belong
    together, unless somebody says that they do (`adopt`)."""
    with _in_the_database():
        if connection.vendor == "sqlite":
            path = Path(str(connection.settings_dict["NAME"]))
            path.touch(mode=0o600)  # its -wal and -shm files take their rights from it; user code runs as other users of this machine
            path.chmod(0o600)
        if not adopt and (why := installation.refusal(installation.look(), home=Path(settings.EDT_HOME))):
            raise Refusal(why)
        executor = MigrationExecutor(connection)
        todo = bool(executor.migration_plan(executor.loader.graph.leaf_nodes()))
        if todo:
            call_command("migrate", verbosity=0, interactive=False)
        installation.bind(anew=adopt)
        installation.spare_numbers(runfiles.highest_number())
    return todo


def own_token(home: Path) -> str:
    """With which this machine joins: the one that is written down, where that is good or the database is away, else a new one, which is
    written down for this user alone. Raises Refusal."""
    path = own_machine.token_file(home)
    known = path.read_text().strip() if path.exists() else ""
    try:
        with _in_the_database():
            token = cluster_own_machine.token(known, now=clock.now())
    except Refusal:
        if known:
            return known
        raise
    if token != known:
        path.parent.mkdir(exist_ok=True)
        path.unlink(missing_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "w") as file:
            file.write(f"{token}\n")
    return token


@contextlib.contextmanager
def _in_the_database() -> Iterator[None]:
    try:
        yield
    except (DatabaseError, OSError) as error:
        raise Refusal(f"The database cannot be used: {str(error).strip().splitlines()[0]}. Check DATABASE_URL and EDT_HOME.") from None
    finally:
        connection.close()  # the processes to come have their own


def static_files(home: Path) -> bool:
    """Collect and compress them where any has changed; True where something had to be done."""
    stamp = home / "run" / "static.stamp"
    now = _fingerprint()
    if stamp.exists() and stamp.read_text() == now and (home / "static" / "staticfiles.json").exists():
        return False
    stamp.unlink(missing_ok=True)
    call_command("collectstatic", verbosity=0, interactive=False, clear=True, ignore_patterns=NOT_SERVED)
    stamp.write_text(now)
    return True


def _fingerprint() -> str:
    digest = hashlib.sha256()
    for line in sorted(_files()):
        digest.update(line.encode())
    return digest.hexdigest()


def _files() -> Iterator[str]:
    for finder in get_finders():
        for name, storage in finder.list(ignore_patterns=NOT_SERVED):
            status = Path(storage.path(name)).stat()
            yield f"{storage.path(name)} {status.st_size} {status.st_mtime_ns}\n"
