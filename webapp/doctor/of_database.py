"""The database: whether it answers, is sound, belongs to EDT_HOME, and is of this version."""

from __future__ import annotations

import datetime as dt
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from django.conf import settings
from django.db import connection
from django.db.migrations.executor import MigrationExecutor

from experiments.ops import installation
from webapp.doctor.findings import Finding, warning
from webapp.studio import dump

NAMED = 5
OLDEST_POSTGRESQL = 14
CLOCKS_APART = dt.timedelta(seconds=5)
SOUND_SQLITE = (3, 51, 3)  # see webapp/__init__.py


def check(now: dt.datetime) -> Iterator[Finding]:
    """Raises DatabaseError where the database does not answer."""
    file = connection.settings_dict["NAME"]
    if connection.vendor == "sqlite" and not Path(str(file)).is_file():
        yield Finding(f"{file} is not there: is EDT_HOME the folder that the studio has? Else restore a backup.")
        return
    connection.ensure_connection()
    yield from _of_sqlite() if connection.vendor == "sqlite" else _of_postgresql(now)
    if why := installation.refusal(installation.look(), home=Path(settings.EDT_HOME)):
        yield Finding(why)
    if unknown := dump.unknown(dump.applied()):
        yield Finding(f"The database was used by a newer version of the studio, with {unknown[-1]}: install that version.")
    if not is_current():
        yield warning("The database is of an older version of the studio: the next start brings it up to date. Make a backup first.")


def is_current() -> bool:
    """Whether the models may be asked."""
    executor = MigrationExecutor(connection)
    return not executor.migration_plan(executor.loader.graph.leaf_nodes())


def _of_sqlite() -> Iterator[Finding]:
    if sqlite3.sqlite_version_info < SOUND_SQLITE:
        yield Finding(f"SQLite {sqlite3.sqlite_version} can corrupt a database under load: .venv/bin/pip install pysqlite3")
    with connection.cursor() as cursor:
        cursor.execute(f"PRAGMA quick_check({NAMED})")
        problems = [str(row[0]) for row in cursor.fetchall() if row[0] != "ok"]
        if problems:
            yield Finding(f"{connection.settings_dict['NAME']} is damaged ({'; '.join(problems)}): stop the studio and restore a backup.")
            return
        cursor.execute("PRAGMA foreign_key_check")
        lost = cursor.fetchmany(NAMED)
    for table, row, parent, _ in lost:
        yield Finding(f"Row {row} of {table} refers to a row of {parent} that is not there: was the database changed by hand?")


def _of_postgresql(now: dt.datetime) -> Iterator[Finding]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_setting('server_version_num')::int, current_setting('server_version'), clock_timestamp()")
        number, words, there = cursor.fetchone()
    if number < OLDEST_POSTGRESQL * 10_000:
        yield Finding(f"PostgreSQL {words} is older than {OLDEST_POSTGRESQL}: upgrade the server.")
    apart = abs(there - now)
    if apart > CLOCKS_APART:
        yield warning(f"The clocks of this machine and of the database's are {apart.total_seconds():.0f} s apart: let both follow NTP.")
