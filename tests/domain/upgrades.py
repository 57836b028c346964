"""A database from before, brought up to date as one is: step by step."""

from __future__ import annotations

from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.loader import MigrationLoader


class Steps(MigrationLoader):
    """Every step that a database from before takes, without what stands for several of them in a new one."""

    def load_disk(self) -> None:
        super().load_disk()
        self.disk_migrations = {key: each for key, each in self.disk_migrations.items() if not each.replaces}


def step_by_step() -> MigrationExecutor:
    executor = MigrationExecutor(connection)
    executor.loader = Steps(connection)
    return executor
