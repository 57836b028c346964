"""The tests run on the database that they were asked to run on, set up as it must be."""

from __future__ import annotations

import os
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection
from django.db.migrations.autodetector import MigrationAutodetector
from django.db.migrations.loader import MigrationLoader
from django.utils import timezone

from experiments.models import LoggedFacts, Metric, MetricSeries, TrainingRun
from tests.domain.upgrades import Steps, step_by_step

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


def one_run_each(models: Any, names: str) -> list[int]:
    """The numbers of runs with these names, in the tables of an earlier version."""

    def row(name: str, /, **values: object) -> Any:
        return models.get_model("experiments", name).objects.create(**values)

    by = row("User", username="alice")
    project = row("Project", name="p", created_by=by)
    definition = row("TrainingDefinition", project=project, name="d", created_by=by)
    bundle = row("Bundle", sha256="0" * 64, size_bytes=1, entries=1)
    version = row("DefinitionVersion", definition=definition, number=1, bundle=bundle, file_name="c.zip", created_by=by)
    experiment = row("Experiment", project=project, name="e", created_by=by)
    facts = {"experiment": experiment, "version": version, "submitted_by": by, "submitted_at": timezone.now()}
    return [row("TrainingRun", name=name, **facts).pk for name in names]


@pytest.mark.timeout(600)  # some fifty migrations back, and the same forth
@pytest.mark.django_db(transaction=True)
def test_an_upgrade_keeps_the_folders_and_the_seeds_of_the_runs_that_there_are() -> None:
    """On its way it stops at two versions, each of which leaves something to the next: going back and forth takes long."""
    executor = step_by_step()
    newest = executor.loader.graph.leaf_nodes()
    folders, seeds = ("experiments", "0017_processors"), ("experiments", "0056_each_person_disk")
    try:
        executor.migrate([folders])
        old = executor.loader.project_state([folders]).apps
        numbers = one_run_each(old, "abcde")
        series = old.get_model("experiments", "MetricSeries").objects.create(run_id=numbers[0], group="train", name="loss")
        old.get_model("experiments", "Metric").objects.create(series=series, step=1, seq=1, epoch=1, t=0.0, value=1.0)

        executor = step_by_step()
        executor.migrate([seeds])
        old = executor.loader.project_state([seeds]).apps
        with_facts, without, never = numbers[2:]
        old.get_model("experiments", "LoggedFacts").objects.create(run_id=with_facts, parameters={"lr": "1"})
        old.get_model("experiments", "SlotUse").objects.create(run_id=with_facts, tick=1, t=5.0, counted_s=5.0, busy_s=2.0)
        old.get_model("experiments", "PresentUse").objects.create(run_id=with_facts, t=5.0, slots=[[1]])
        told = old.get_model("experiments", "RunEvent").objects
        for run, seq, seed in ((with_facts, 1, 3), (without, 1, 4), (without, 9, 5), (10**6, 1, 6)):
            told.create(run_id=run, seq=seq, at=timezone.now(), kind="started", message="", detail={"seed": seed})
    finally:
        step_by_step().migrate(newest)
    assert {run.pk: run.folder for run in TrainingRun.objects.all()} == {number: str(number) for number in numbers}
    assert Metric.objects.get().series.run_id == numbers[0]
    assert dict(LoggedFacts.objects.values_list("run_id", "seed")) == {with_facts: 3, without: 5}
    assert LoggedFacts.objects.get(run=with_facts).parameters == {"lr": "1"}
    measured = TrainingRun.objects.get(pk=with_facts)
    assert (measured.utilization_samples.get().busy_s, measured.latest_utilization.slots) == (2.0, [[1]])
    assert never in TrainingRun.objects.values_list("pk", flat=True)
    TrainingRun.objects.get(pk=numbers[0]).delete()
    assert MetricSeries.objects.count() == 1, "what there is much of goes later, in pieces"


def test_the_migrations_say_what_the_models_say() -> None:
    call_command("makemigrations", "experiments", check=True, dry_run=True, verbosity=0)


def test_a_new_database_has_what_one_from_before_has_after_every_step() -> None:
    before, new = (loader.project_state() for loader in (Steps(connection), MigrationLoader(connection)))
    assert MigrationAutodetector(before, new)._detect_changes() == {}
    assert MigrationAutodetector(new, before)._detect_changes() == {}
