"""A copy of the database as it is at one moment, while others write to it; and putting it into a database that is empty.

SQLite: its own way to copy a database that is in use. PostgreSQL: COPY of every table in one snapshot, which needs no program of the same
version as the server.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from django.apps import apps
from django.core.management import call_command
from django.core.management.color import no_style
from django.db import connection, transaction
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder

FILE, FOLDER = "database.sqlite3", "database"
Tables = Mapping[str, Sequence[str]]


def applied() -> list[tuple[str, str]]:
    """The migrations that the database has seen."""
    return sorted(MigrationRecorder(connection).applied_migrations())


def unknown(migrations: Sequence[tuple[str, str]]) -> list[str]:
    """Those that this version of the studio does not have: it is older than what wrote them."""
    there = MigrationLoader(None).disk_migrations
    return [f"{app}.{name}" for app, name in migrations if (app, name) not in there]


def is_empty() -> bool:
    """Whether nobody has an account in the database, or it has no tables at all."""
    users = apps.get_model("experiments", "User")
    return users._meta.db_table not in connection.introspection.table_names() or not users._default_manager.exists()


def write(into: Path) -> Tables:
    """Copy the database into the folder; for PostgreSQL the columns of each table, as they are in the copy."""
    if connection.vendor == "sqlite":
        _write_sqlite(into / FILE)
        return {}
    return _write_postgresql(into / FOLDER)


def read(source: Path, *, tables: Tables, migrations: Sequence[tuple[str, str]]) -> None:
    """Put a copy into the database, which is empty. It has the tables of when it was made: what is newer is up to `prepare.database`."""
    if connection.vendor == "sqlite":
        connection.close()
        _read_sqlite(source / FILE)
        return
    for app in sorted({app for app, _ in migrations}):
        for name in _leaves(app, migrations):
            call_command("migrate", app, name, verbosity=0, interactive=False)
    _read_postgresql(source / FOLDER, tables)


def _write_sqlite(path: Path) -> None:
    connection.ensure_connection()
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    used: Any = connection  # of SQLite, with the library it uses
    with contextlib.closing(used.Database.connect(str(path))) as copy:
        connection.connection.backup(copy)  # in one piece: readers keep nobody from writing, and the copy is of one moment
        copy.execute("PRAGMA journal_mode = DELETE")  # one file, without a -wal beside it


def _read_sqlite(path: Path) -> None:
    target = Path(str(connection.settings_dict["NAME"]))
    for leftover in (target, *(target.with_name(target.name + end) for end in ("-wal", "-shm"))):
        leftover.unlink(missing_ok=True)
    draft = target.with_name(f".{target.name}.restoring")
    draft.touch(mode=0o600)
    draft.write_bytes(b"")
    with open(path, "rb") as source, open(draft, "wb") as copy:
        while piece := source.read(1 << 20):
            copy.write(piece)
        copy.flush()
        os.fsync(copy.fileno())
    draft.replace(target)


@contextlib.contextmanager
def _one_snapshot() -> Iterator[Any]:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        yield cursor


def _write_postgresql(folder: Path) -> Tables:
    folder.mkdir(mode=0o700)
    tables: dict[str, list[str]] = {}
    with _one_snapshot() as cursor:
        for table in sorted(connection.introspection.django_table_names(only_existing=True)):
            tables[table] = [column.name for column in connection.introspection.get_table_description(cursor, table)]
            with (
                open(folder / f"{table}.copy", "xb") as file,
                cursor.copy(f"COPY {_named(table, tables[table])} TO STDOUT (FORMAT binary)") as rows,
            ):
                for piece in rows:
                    file.write(piece)
                file.flush()
                os.fsync(file.fileno())
    return tables


def _read_postgresql(folder: Path, tables: Tables) -> None:
    quote = connection.ops.quote_name
    with transaction.atomic(), connection.cursor() as cursor:  # all of it or nothing; foreign keys are looked at when it ends
        cursor.execute(f"TRUNCATE {', '.join(map(quote, tables))}")  # what migrations put in
        for table, columns in tables.items():
            with (
                open(folder / f"{table}.copy", "rb") as file,
                cursor.copy(f"COPY {_named(table, columns)} FROM STDIN (FORMAT binary)") as rows,
            ):
                while piece := file.read(1 << 20):
                    rows.write(piece)
        for statement in connection.ops.sequence_reset_sql(no_style(), apps.get_models(include_auto_created=True)):
            cursor.execute(statement)


def _named(table: str, columns: Sequence[str]) -> str:
    quote = connection.ops.quote_name
    return f"{quote(table)} ({', '.join(map(quote, columns))})"


def _leaves(app: str, migrations: Sequence[tuple[str, str]]) -> list[str]:
    """The newest of these migrations of the app."""
    graph = MigrationLoader(None).graph
    mine = {each for each in migrations if each[0] == app and each in graph.nodes}
    return sorted(name for _, name in mine if not any(parent in mine for parent in _children(graph, (app, name))))


def _children(graph: Any, node: tuple[str, str]) -> set[tuple[str, str]]:
    return {child.key for child in graph.node_map[node].children}
