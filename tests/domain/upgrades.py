"""A database from before, brought up to date as one is: step by step."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.loader import MigrationLoader


class Steps(MigrationLoader):
    """Every step that a database from before takes, without what stands for several of them in a new one."""

    def load_disk(self) -> None:
        super().load_disk()
        self.disk_migrations = {key: each for key, each in self.disk_migrations.items() if not each.replaces}


class Before:
    """A database of an earlier version, which goes on to later ones."""

    def __init__(self) -> None:
        self._executor = _step_by_step()
        self._models: Any = None

    def upgrade(self, migration: str) -> None:
        """To the version whose last migration of ours has this name."""
        self._executor.migrate([("experiments", migration)])
        self._executor = _step_by_step()
        self._models = self._executor.loader.project_state([("experiments", migration)]).apps

    def row(self, name: str, /, **values: object) -> Any:
        """A new one in the tables of that version."""
        return self._models.get_model("experiments", name).objects.create(**values)


@contextmanager
def database_from_before() -> Iterator[Before]:
    """In place of that of the tests, without a table at first; afterwards it has had every step."""
    _drop_all_tables()
    try:
        yield Before()
    finally:
        executor = _step_by_step()
        executor.migrate(executor.loader.graph.leaf_nodes())


def _step_by_step() -> MigrationExecutor:
    executor = MigrationExecutor(connection)
    executor.loader = Steps(connection)
    return executor


def _drop_all_tables() -> None:
    with connection.cursor() as cursor:
        cascade = "CASCADE" if connection.vendor == "postgresql" else ""
        with connection.constraint_checks_disabled():
            for table in connection.introspection.table_names(cursor):
                cursor.execute(f"DROP TABLE {connection.ops.quote_name(table)} {cascade}")
