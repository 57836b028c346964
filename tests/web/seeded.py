"""The seeded studio of the tests of pages, made once in each process: its rows and its files are put back for every test that wants it.

Making it takes a third of a second of a processor, and some hundred tests want one that nobody has touched. All its moments are put off by
the time since it was made, to within some seconds, since what pages say depends on how long ago things were: of a machine that was heard of
just now, say.
"""

from __future__ import annotations

import copy
import datetime as dt
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from django.apps import apps
from django.db import connection, models
from django.utils import timezone

from experiments.models import UtilizationSample
from tests.web import seed

KEPT = frozenset({"django_migrations", "django_content_type", "auth_permission"})  # what a database without a studio has as well
MOMENT_S = 1e9  # a number that is greater is a moment, in Unix seconds
EVERY = dt.timedelta(seconds=UtilizationSample.EVERY_S)


@dataclass(frozen=True)
class Table:
    """What is in the table of a model: `columns` are their names, and the rows as SQLite has them."""

    model: type[models.Model]
    columns: list[str]
    rows: list[tuple[Any, ...]]

    def put_off(self, times: int) -> list[tuple[Any, ...]]:
        """The rows with all moments so many times EVERY later."""
        kinds = {field.column: field for field in self.model._meta.local_fields}
        changed: dict[int, Callable[[Any], Any]] = {}
        for place, column in enumerate(self.columns):
            if isinstance(kinds[column], models.DateTimeField):
                changed[place] = lambda moment: moment + times * EVERY
            elif isinstance(kinds[column], models.FloatField):
                changed[place] = lambda number: number + times * EVERY.total_seconds() if number > MOMENT_S else number
            elif self.model is UtilizationSample and column == "tick":  # a moment that is counted in EVERY
                changed[place] = lambda tick: tick + times
        if not changed:
            return self.rows
        return [tuple(changed[n](each) if n in changed and each is not None else each for n, each in enumerate(row)) for row in self.rows]


@dataclass(frozen=True)
class Snapshot:
    """A studio that was seeded at `now`: what is in its database, a copy of its EDT_HOME, and the handles to it."""

    now: dt.datetime
    tables: list[Table]
    files: tempfile.TemporaryDirectory[str]
    handles: seed.Seeded


_made: Snapshot | None = None


def studio(home: Path) -> seed.Seeded:
    """Into an empty database, and a home in which nothing is yet."""
    global _made
    if _made is not None:
        return _put_back(_made, home, now=timezone.now())
    assert connection.vendor == "sqlite", "rows are put back as SQLite has them"
    assert not _tables(), "the database is not empty"
    now = timezone.now()
    handles = seed.studio(now=now, steps=60)
    _made = Snapshot(now, _tables(), tempfile.TemporaryDirectory(prefix="edt-seeded-"), copy.deepcopy(handles))
    shutil.copytree(home, _made.files.name, dirs_exist_ok=True)
    return handles


def _put_back(made: Snapshot, home: Path, *, now: dt.datetime) -> seed.Seeded:
    with connection.cursor() as cursor:
        for table in made.tables:
            name, places = connection.ops.quote_name(table.model._meta.db_table), ", ".join(["%s"] * len(table.columns))
            cursor.executemany(f"INSERT INTO {name} VALUES ({places})", table.put_off((now - made.now) // EVERY))
    shutil.copytree(made.files.name, home, dirs_exist_ok=True, copy_function=shutil.copy)  # written now, as by the seeding
    handles = {each.name: _again(getattr(made.handles, each.name)) for each in fields(made.handles)}
    return seed.Seeded(**handles)


def _again(handle: models.Model) -> models.Model:
    return type(handle)._default_manager.get(pk=handle.pk)


def _tables() -> list[Table]:
    """Those with anything in them."""
    found = []
    with connection.cursor() as cursor:
        for model in apps.get_models(include_auto_created=True):
            if model._meta.db_table not in KEPT:
                cursor.execute(f"SELECT * FROM {connection.ops.quote_name(model._meta.db_table)}")
                found.append(Table(model, [column[0] for column in cursor.description], cursor.fetchall()))
    return [table for table in found if table.rows]
