"""Moves a studio from SQLite to PostgreSQL: every row, while no studio runs. Files stay where they are, and so does the SQLite database,
which no studio takes for its own afterwards.

Rows are read by Django's models, which know what SQLite has as text and numbers, and written with COPY in one transaction: all of it or
nothing. What PostgreSQL cannot hold and SQLite does (a NUL in a text, half of a surrogate pair in JSON, more letters than a column has) is
changed as little as can be, and named.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from django.apps import apps
from django.conf import settings
from django.core.management import call_command
from django.db import DatabaseError, connection, connections, models, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.recorder import MigrationRecorder

from experiments.models import Installation
from experiments.ops import installation
from webapp.sqlite.base import DatabaseWrapper
from webapp.studio import dump
from webapp.studio.checks import Refusal

SOURCE = "sqlite"  # the alias under which the models read it
ROWS_AT_ONCE = 2000
UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
REPLACEMENT = "\ufffd"
PREPARE = "env -u DATABASE_URL .venv/bin/python manage.py prepare"


@dataclass
class CopiedRows:
    """Rows by table, and what was changed on the way, a line each."""

    rows: dict[str, int] = field(default_factory=dict)
    changed: list[str] = field(default_factory=list)


def move(source: Path) -> CopiedRows:
    """Fill the empty database of DATABASE_URL from an SQLite file that belongs to EDT_HOME, and bind EDT_HOME to it. Raises Refusal:
    nothing was changed, or it says what was."""
    if connection.vendor != "postgresql":
        raise Refusal("Set DATABASE_URL to the PostgreSQL database that is to be used from now on: postgres://user:password@host/name.")
    if not source.is_file():
        raise Refusal(f"{source} is not there: name the SQLite database with --from.")
    opened = connections[SOURCE] = _open(source)
    try:
        if not dump.is_empty():
            raise Refusal("The database of DATABASE_URL is not empty: name an empty one.")
        _check_source(source, opened)
        call_command("migrate", verbosity=0, interactive=False)
        key = uuid.uuid4()
        moved = CopiedRows()
        with transaction.atomic(using=SOURCE), transaction.atomic():  # nobody writes to the source meanwhile
            _fill(moved, opened)
            Installation.objects.update_or_create(pk=1, defaults={"key": key})
        _bind(key)
        return moved
    except DatabaseError as error:
        raise Refusal(f"Nothing was moved: {'; '.join(str(error).strip().splitlines())}") from error
    finally:
        opened.close()
        del connections[SOURCE]
        connection.close()


def _bind(key: uuid.UUID) -> None:
    """Until here EDT_HOME goes with the source; a crash in between leaves it so, and a database that is to be made empty again."""
    try:
        installation.write_key(key)
    except OSError as error:
        raise Refusal(
            f"All rows were moved, but EDT_HOME ({settings.EDT_HOME}) still goes with the old database: {error.strerror}. Make room, then "
            "bind the new one to it, with DATABASE_URL set: .venv/bin/python manage.py adopt"
        ) from None


def _open(source: Path) -> DatabaseWrapper:
    facts = {**connection.settings_dict, "ENGINE": "webapp.sqlite", "NAME": str(source), "OPTIONS": dict(settings.SQLITE_OPTIONS)}
    return DatabaseWrapper(facts, alias=SOURCE)


def _check_source(source: Path, opened: BaseDatabaseWrapper) -> None:
    try:
        applied = sorted(MigrationRecorder(opened).applied_migrations())
        executor = MigrationExecutor(opened)
    except DatabaseError as error:
        raise Refusal(f"{source} is no database of a studio: {error}.") from None
    if unknown := dump.unknown(applied):
        raise Refusal(f"{source} was used by a newer version of the studio, with {unknown[-1]}, which this one does not have.")
    if executor.migration_plan(executor.loader.graph.leaf_nodes()):
        raise Refusal(f"{source} is of an older version of the studio. Bring it up to date first: {PREPARE}")
    key = Installation.objects.using(SOURCE).values_list("key", flat=True).first()
    if key is None or key != installation.key_of_home():
        raise Refusal(f"{source} and EDT_HOME ({settings.EDT_HOME}) do not belong together (docs/operations.md).")


def _fill(moved: CopiedRows, opened: BaseDatabaseWrapper) -> None:
    tables = [model for model in apps.get_models(include_auto_created=True) if model._meta.managed and not model._meta.proxy]
    quote = connection.ops.quote_name
    with connection.cursor() as cursor:
        cursor.execute(f"TRUNCATE {', '.join(quote(model._meta.db_table) for model in tables)}")  # what migrations put in
        for model in tables:
            table = model._meta.db_table
            columns = ", ".join(quote(str(each.column)) for each in model._meta.concrete_fields)
            moved.rows[table] = 0
            with connection.wrap_database_errors, cursor.copy(f"COPY {quote(table)} ({columns}) FROM STDIN") as copy:
                for row in _rows(model, moved):
                    copy.write_row(row)
                    moved.rows[table] += 1
        _go_on_counting(cursor, opened, {model._meta.db_table: model for model in tables})


def _rows(model: type[models.Model], moved: CopiedRows) -> Iterator[list[object]]:
    """As PostgreSQL takes them."""
    fields = model._meta.concrete_fields
    read = model._base_manager.using(SOURCE).order_by("pk").values_list(*(each.attname for each in fields))
    for row in read.iterator(chunk_size=ROWS_AT_ONCE):
        values = []
        for each, value in zip(fields, row, strict=True):
            kept = storable(value, longest=each.max_length if isinstance(each, models.CharField) else None)
            if kept is not value and kept != value:
                moved.changed.append(f"{model._meta.db_table}.{each.column} of row {row[0]}")
            values.append(each.get_db_prep_save(kept, connection))
        yield values


def storable(value: Any, *, longest: int | None = None) -> Any:
    """The value as PostgreSQL can hold it; itself where it can, which is nearly always."""
    if isinstance(value, str):
        return (UNSTORABLE.sub(REPLACEMENT, value) if UNSTORABLE.search(value) else value)[:longest]
    if isinstance(value, dict):
        return {storable(key): storable(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [storable(inner) for inner in value]
    return value


def _go_on_counting(cursor: Any, opened: BaseDatabaseWrapper, tables: dict[str, type[models.Model]]) -> None:
    """No number is given a second time, also none of what was deleted: it may stand in somebody's link, or for a user of the machine."""
    with opened.cursor() as source:
        source.execute("SELECT name, seq FROM sqlite_sequence WHERE seq > 0")
        highest = {name: seq for name, seq in source.fetchall() if name in tables}
    for table, number in highest.items():
        column = tables[table]._meta.pk.column
        cursor.execute("SELECT setval(pg_get_serial_sequence(%s, %s), %s)", [table, column, number])
