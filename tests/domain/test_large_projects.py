"""A project of very many runs is removed, and made of an archive, in pieces: it is there for everybody or for nobody, whoever is killed in
between, and other people's writes need not wait for all of it."""

from __future__ import annotations

import datetime as dt
import uuid
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from django.core.management import CommandError, call_command
from django.http import Http404
from django.test import Client
from django.utils import timezone

from experiments import access, services, tasks
from experiments.models import (
    DataAsset,
    Experiment,
    Notification,
    Project,
    ProjectImport,
    RunValue,
    Tombstone,
    TrainingDefinition,
    TrainingRun,
    User,
)
from experiments.ops import installation
from experiments.selectors.jobs import JobFilter, jobs
from experiments.services import deletion, projects
from experiments.transfer import files, importing, making, pieces
from tests import cast, transferred
from tests.conftest import SentMessages

pytestmark = pytest.mark.usefixtures("said")


class Killed(BaseException):
    """The process is no more."""


def with_runs(by: User, name: str, count: int) -> tuple[Project, list[TrainingRun]]:
    project = services.create_project(by=by, name=name)
    runs = [services.stop_run(cast.run(project, by=by), by=by) for _ in range(count)]
    services.add_data(project, by=by, name=name, files=[("a", 1, cast.io.BytesIO(b"1"))])
    return project, runs


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deletion, "PIECE", 2)
    monkeypatch.setattr(projects, "AT_ONCE", 1)
    monkeypatch.setattr(pieces, "AT_ONCE", 2)


@pytest.mark.usefixtures("small_pieces")
def test_a_large_project_is_gone_for_everybody_at_once_and_its_runs_in_pieces(alice: User, said: SentMessages, home: Path) -> None:
    large, runs = with_runs(alice, "large", 5)
    kept, others = with_runs(alice, "kept", 2)
    key = uuid.uuid4()
    Project.objects.filter(pk=large.pk).update(idempotency_key=key)
    services.delete_project(large, by=alice)
    assert TrainingRun.objects.filter(experiment__project=large).count() == 3, "a piece is removed, the rest later"
    assert [each.name for each in access.projects_for(alice)] == ["kept"]
    services.delete_project(services.create_project(by=alice, name="large", idempotency_key=key), by=alice)  # as every night
    for number in (runs[0].pk, runs[-1].pk):
        with pytest.raises(Http404):
            access.run(alice, number)
    with pytest.raises(Project.DoesNotExist):
        services.run_experiment(runs[-1].experiment, by=alice)  # whoever had its page open
    assert {row.run.pk for row in jobs(JobFilter(), now=timezone.now())[0]} == {run.pk for run in others}
    assert not deletion.go_on(timezone.now()), "there is no more"
    assert list(Project.every.all()) == [kept]
    assert {run.pk for run in TrainingRun.objects.all()} == {run.pk for run in others}
    assert (Experiment.objects.count(), TrainingDefinition.objects.count(), DataAsset.objects.count()) == (2, 2, 1), (
        "those of the other one"
    )
    stones = Tombstone.objects.filter(kind="run")
    assert {(stone.key, stone.number, stone.by) for stone in stones} == {(run.folder, run.pk, "alice") for run in runs}
    assert Tombstone.objects.filter(kind="asset").count() == 1


@pytest.mark.usefixtures("small_pieces")
def test_whoever_is_killed_while_a_project_is_removed_leaves_the_rest_to_the_next(alice: User, monkeypatch: pytest.MonkeyPatch) -> None:
    large, _ = with_runs(alice, "large", 5)
    real, calls = deletion.of_runs, []

    def second_kills(*said: Any, **named: Any) -> int:
        calls.append(real(*said, **named))
        if len(calls) == 2:
            raise Killed
        return calls[-1]

    with monkeypatch.context() as patch:
        patch.setattr(deletion, "of_runs", second_kills)
        services.delete_project(large, by=alice)
        with pytest.raises(Killed):
            deletion.go_on(timezone.now())
    assert TrainingRun.objects.count() == 3, "the piece that was cut off is there again"
    assert Tombstone.objects.filter(kind="run").count() == 2, "as are its files"
    deletion.go_on(timezone.now())
    assert not Project.every.exists()
    assert Tombstone.objects.filter(kind="run").count() == 5
    assert not deletion.go_on(timezone.now())


@pytest.mark.usefixtures("small_pieces")
def test_a_project_that_is_half_made_of_an_archive_is_there_for_nobody_and_is_begun_anew(
    alice: User, charlie: User, home: Path, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    large, _ = with_runs(alice, "large", 5)
    client.force_login(charlie)
    order, real, calls = transferred.send(transferred.exported(large), charlie), making._some_runs, []

    def third_kills(*said: Any) -> None:
        calls.append(real(*said))
        if len(calls) == 3:
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(making, "_some_runs", third_kills)
        patch.setattr(pieces, "unmake", lambda _: None)
        patch.setattr(files, "take_back", lambda *_, **__: None)
        with pytest.raises(Killed):
            importing.go_on(timezone.now)
    assert TrainingRun.objects.count() == 5 + 4, "two pieces are there"
    assert not access.projects_for(charlie).exists()
    assert not client.get("/profile/").context["projects"]
    assert jobs(JobFilter(), now=timezone.now())[1] == 5
    importing.go_on(timezone.now)
    order.refresh_from_db()
    assert (order.state, order.attempts) == (ProjectImport.State.DONE, 2)
    assert list(access.projects_for(charlie)) == [order.project]
    assert Project.every.count() == 2
    assert TrainingRun.objects.filter(experiment__project=order.project).count() == 5
    assert TrainingRun.objects.count() == 10
    numbers = set(TrainingRun.objects.values_list("pk", flat=True))
    assert set(RunValue.objects.values_list("run_id", flat=True)) <= numbers, "nothing is left of the first attempt"


@pytest.mark.usefixtures("small_pieces")
def test_an_import_that_fails_after_some_runs_leaves_nothing(alice: User, charlie: User, monkeypatch: pytest.MonkeyPatch) -> None:
    large, _ = with_runs(alice, "large", 5)
    order = transferred.send(transferred.exported(large), charlie)
    values = RunValue.objects.count()

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(making, "_searches", full)
    importing.go_on(timezone.now)
    order.refresh_from_db()
    assert order.state == ProjectImport.State.REFUSED
    assert (Project.every.count(), TrainingRun.objects.count(), RunValue.objects.count()) == (1, 5, values)
    assert not Tombstone.objects.filter(kind="run").exists(), "no file of a run is removed for it"


def test_a_project_that_cannot_be_removed_keeps_nothing_else(alice: User, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Notification.objects.create(person=alice, kind="run.failed", text="long ago", at=timezone.now() - dt.timedelta(days=100))

    def fails(_now: dt.datetime) -> bool:
        raise RuntimeError("its rows cannot be read")

    monkeypatch.setattr(deletion, "go_on", fails)
    with pytest.raises(RuntimeError, match="cannot be read"):
        tasks.prune()
    assert not Notification.objects.exists()


def test_the_command_removes_all_else_too_and_says_what_it_could_not(alice: User, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Notification.objects.create(person=alice, kind="run.failed", text="long ago", at=timezone.now() - dt.timedelta(days=100))
    installation.bind()
    monkeypatch.setattr(deletion, "go_on", Mock(side_effect=RuntimeError("its rows cannot be read")))
    with pytest.raises(CommandError, match="all else was: its rows cannot be read"):
        call_command("prune")
    assert not Notification.objects.exists()


def test_who_deletes_a_project_is_not_told_that_it_failed_when_only_the_rest_is_left(
    alice: User, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project, _ = with_runs(alice, "large", 2)
    with monkeypatch.context() as patch:
        patch.setattr(deletion, "of_runs", Mock(side_effect=OSError(28, "No space left on device")))
        services.delete_project(project, by=alice)
    assert not Project.objects.exists()
    while deletion.go_on(timezone.now()):
        pass
    assert not Project.every.exists()
