"""The tests run on the database that they were asked to run on, set up as it must be."""

from __future__ import annotations

import os

import pytest
from django.core.management import call_command
from django.db import connection
from django.db.migrations.autodetector import MigrationAutodetector
from django.db.migrations.loader import MigrationLoader

from tests.domain.upgrades import Steps

pytestmark = pytest.mark.django_db


def test_the_database_is_the_one_that_was_asked_for() -> None:
    asked = os.environ.get("DATABASE_URL", "sqlite:///").partition(":")[0]
    assert connection.vendor == {"postgres": "postgresql"}.get(asked, asked)


def test_sqlite_is_sound_and_takes_its_lock_when_a_transaction_begins() -> None:
    if connection.vendor != "sqlite":
        pytest.skip("another database")
    with connection.cursor() as cursor:
        assert cursor.execute("SELECT sqlite_version()").fetchone()[0] >= "3.51.3"
        assert cursor.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
    assert connection.transaction_mode == "IMMEDIATE"


def test_postgresql_gives_up_who_hangs_in_a_transaction() -> None:
    if connection.vendor != "postgresql":
        pytest.skip("another database")
    with connection.cursor() as cursor:
        assert cursor.execute("SHOW idle_in_transaction_session_timeout").fetchone()[0] == "30s"


def test_the_migrations_say_what_the_models_say() -> None:
    call_command("makemigrations", "experiments", check=True, dry_run=True, verbosity=0)


def test_a_new_database_has_what_one_from_before_has_after_every_step() -> None:
    before, new = (loader.project_state() for loader in (Steps(connection), MigrationLoader(connection)))
    assert MigrationAutodetector(before, new)._detect_changes() == {}
    assert MigrationAutodetector(new, before)._detect_changes() == {}
