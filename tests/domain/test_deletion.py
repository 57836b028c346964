"""What is deleted is gone from every page at once; a delete that is refused destroys nothing; and only what was deleted is ever removed."""

from __future__ import annotations

import datetime as dt
import logging
import os
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from experiments import services
from experiments.errors import DomainError
from experiments.files import bundles, pruning, removal, runfiles
from experiments.metrics import ingest
from experiments.models import Bundle, DataAsset, Metric, MetricRollup, MetricSeries, Project, RunEvent, Tombstone, TrainingRun, User
from experiments.ops import installation
from tests import cast

WEEK = dt.timedelta(days=7)


def trained(project: Project, by: User, *, steps: int = 200) -> TrainingRun:
    """A run that has ended, with points and a checkpoint."""
    run = cast.run(project, by=by)
    cast.write_journal(run, cast.started(), *map(cast.step, range(1, steps + 1)))
    ingest.catch_up(run.pk, now=run.submitted_at)
    (runfiles.folder(run) / "checkpoint").mkdir()
    (runfiles.folder(run) / "checkpoint" / "engine.pt").write_bytes(b"state")
    return services.stop_run(run, by=by)


def age(path: Path) -> None:
    """As if it had lain there for two days."""
    then = timezone.now().timestamp() - 2 * 86_400
    os.utime(path, (then, then))


@pytest.fixture
def bound(db: None, home: Path) -> Path:
    installation.bind()
    return home


def delete_the_run(run: TrainingRun, by: User) -> None:
    services.delete_run(run, by=by)


def delete_the_experiment(run: TrainingRun, by: User) -> None:
    services.delete_experiment(run.experiment, by=by)


def delete_the_project(run: TrainingRun, by: User) -> None:
    services.delete_project(run.experiment.project, by=by)


DELETES = [delete_the_run, delete_the_experiment, delete_the_project]


@pytest.mark.parametrize("delete", DELETES)
def test_a_delete_that_is_refused_destroys_nothing(
    project: Project, alice: User, bound: Path, delete: Callable[[TrainingRun, User], None]
) -> None:
    run = trained(project, alice)
    services.continue_run(run, by=alice)  # waits for a slot
    with pytest.raises(DomainError):
        delete(run, alice)
    cast.empty_trash()
    assert Metric.objects.filter(series__run=run).count() == 200
    assert (runfiles.folder(run) / "checkpoint" / "engine.pt").exists()
    assert not Tombstone.objects.exists()


@pytest.mark.parametrize("delete", DELETES)
def test_what_is_deleted_is_gone_at_once_and_its_files_and_points_in_pieces_later(
    project: Project, alice: User, bound: Path, delete: Callable[[TrainingRun, User], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = trained(project, alice)
    folder, number, now = runfiles.folder(run), run.pk, timezone.now()
    delete(run, alice)
    assert not TrainingRun.objects.filter(pk=number).exists()
    stone = Tombstone.objects.get(kind="run")
    assert (stone.key, stone.number, stone.by) == (run.folder, number, "alice")
    monkeypatch.setattr(pruning, "ROWS_AT_ONCE", 60)
    monkeypatch.setattr(pruning, "TURN_PIECES", 1)
    assert pruning.clear(now), "there is more"
    assert 0 < Metric.objects.count() < 200, "a turn is bounded"
    while pruning.clear(now):
        pass
    for model in (Metric, MetricRollup, MetricSeries, RunEvent):
        assert not model._default_manager.exists()
    assert not folder.exists()
    kept = list((bound / "runs" / ".trash").iterdir())
    assert [(each / "checkpoint" / "engine.pt").read_bytes() for each in kept] == [b"state"], "an administrator can still get it back"
    assert not pruning.clear(now + WEEK - dt.timedelta(hours=1))
    assert kept[0].exists()
    while pruning.clear(now + WEEK):
        pass
    assert list((bound / "runs" / ".trash").iterdir()) == []
    assert Tombstone.objects.get(kind="run").emptied_at == now + WEEK


def test_pruning_removes_nothing_that_no_tombstone_names(
    project: Project, alice: User, bound: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The rows are lost, not deleted: the files are all that is left."""
    run = trained(project, alice)
    asset = services.add_data(project, by=alice, name="d", files=[("a", 1, cast.io.BytesIO(b"1"))])
    strangers = [bound / store / uuid.uuid4().hex for store in ("assets", "uploads", "code")]
    for stranger in strangers:
        stranger.mkdir()
    cast.empty_trash()  # of the upload, which was finished
    sha256 = Bundle.objects.get().sha256
    mine = [runfiles.folder(run), bound / "assets" / asset.key.hex, bound / "code" / sha256, bound / "bundles" / f"{sha256}.zip"]
    DataAsset.objects.all().delete()
    TrainingRun.objects.all().delete()
    project.experiments.all().delete()
    project.definitions.all().delete()
    Bundle.objects.all().delete()
    for path in (*mine, *strangers):
        age(path)
    now = timezone.now()
    with caplog.at_level(logging.WARNING):
        pruning.prune(now)
        pruning.prune(now + 10 * WEEK)
    assert all(path.exists() for path in (*mine, *strangers))
    assert set(pruning.orphans(now)) == {*mine, *strangers}
    assert "prune --dry-run" in caplog.text
    assert f"{len(mine) + len(strangers)} things" in caplog.text


def test_a_database_that_does_not_belong_to_the_home_removes_nothing(project: Project, alice: User, bound: Path) -> None:
    run = trained(project, alice)
    services.delete_run(run, by=alice)
    (bound / installation.FILE).write_text(f"{uuid.uuid4()}\n")
    assert not pruning.prune(timezone.now() + 10 * WEEK)
    assert not pruning.clear(timezone.now() + 10 * WEEK)
    assert runfiles.folder(run).exists()


def test_what_cannot_be_removed_is_said_and_keeps_nothing_else_waiting(
    project: Project, alice: User, bound: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stuck, other = trained(project, alice, steps=2), trained(project, alice, steps=2)
    services.delete_run(stuck, by=alice)
    services.delete_run(other, by=alice)
    shutil.rmtree(bound / "runs" / ".trash", ignore_errors=True)
    (bound / "runs" / ".trash").write_text("in the way")
    with caplog.at_level(logging.ERROR):
        assert not pruning.clear(timezone.now()), "trying again at once would not help"
    assert caplog.text.count("cannot be removed") == 2
    (bound / "runs" / ".trash").unlink()
    cast.empty_trash()
    assert not (runfiles.folder(stuck).exists() or runfiles.folder(other).exists())


def test_a_draft_that_cannot_be_removed_keeps_nothing_else_waiting(
    project: Project, alice: User, bound: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, stuck = trained(project, alice, steps=2), bound / "tmp" / "stuck"
    stuck.mkdir()
    age(stuck)
    services.delete_run(run, by=alice)
    remove = removal.remove

    def refuses(path: Path, *, most: int | None = None) -> bool:
        if path == stuck:
            raise PermissionError(1, "Operation not permitted", str(path))
        return remove(path, most=most)

    monkeypatch.setattr(removal, "remove", refuses)
    with caplog.at_level(logging.ERROR):
        pruning.prune(timezone.now())
    assert caplog.text.count("cannot be removed") == 1
    assert not runfiles.folder(run).exists()


def test_a_run_with_folders_nested_by_the_thousand_is_removed(project: Project, alice: User, bound: Path) -> None:
    run = trained(project, alice, steps=2)
    at = os.open(runfiles.folder(run), os.O_RDONLY)
    for _ in range(3000):
        os.mkdir("d", dir_fd=at)
        inner = os.open("d", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = inner
    os.close(at)
    services.delete_run(run, by=alice)
    cast.empty_trash()
    assert list((bound / "runs").glob("[!.]*")) == list((bound / "runs" / ".trash").iterdir()) == []


def test_ticked_runs_are_deleted_all_or_none(project: Project, alice: User, bound: Path) -> None:
    experiment = cast.experiment(project, by=alice)
    runs = [services.run_experiment(experiment, by=alice)[0] for _ in range(3)]
    for run in runs[:2]:
        services.stop_run(run, by=alice)
    with pytest.raises(DomainError, match="nothing was deleted"):
        services.delete_runs(runs, by=alice)
    assert TrainingRun.objects.count() == 3
    services.delete_runs(runs[:2], by=alice)
    assert TrainingRun.objects.get() == runs[2]
    assert Tombstone.objects.count() == 2


def test_code_that_is_uploaded_again_after_its_deletion_keeps_its_files(project: Project, alice: User, bound: Path) -> None:
    content = cast.zipped().getvalue()
    version = services.create_definition(project, by=alice, name="x", upload=cast.io.BytesIO(content), file_name="c.zip", command="main.py")
    sha256 = version.bundle.sha256
    services.delete_definition(version.definition, by=alice)
    Bundle.objects.update(created_at=timezone.now() - WEEK)
    now = timezone.now()
    pruning._unused_bundles(now)
    assert Tombstone.objects.get().key == sha256
    again = bundles.store_bundle(cast.io.BytesIO(content), file_name="again.zip")
    while pruning.clear(now + 10 * WEEK, kept=dt.timedelta(0)):
        pass
    assert again.sha256 == sha256
    assert (bundles.code_dir(again) / "main.py").read_text() == cast.MAIN_PY
    assert (bound / "bundles" / f"{sha256}.zip").exists()


def test_a_removal_that_was_killed_goes_on(project: Project, alice: User, bound: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = trained(project, alice)
    services.delete_run(run, by=alice)

    class Killed(BaseException):
        pass

    def killed(*_: object, **__: object) -> bool:
        raise Killed

    for place in ("_remove_rows", "_to_trash"):
        with monkeypatch.context() as patch:
            patch.setattr(pruning, place, killed)
            with pytest.raises(Killed):
                pruning.clear(timezone.now())
    while pruning.clear(timezone.now()):
        pass
    with monkeypatch.context() as patch:
        patch.setattr(removal, "remove", killed)
        with pytest.raises(Killed):
            pruning.clear(timezone.now() + WEEK)
    cast.empty_trash(timezone.now() + WEEK)
    assert not Metric.objects.exists()
    assert list((bound / "runs" / ".trash").iterdir()) == []


def test_an_administrator_can_look_make_room_and_clear_what_belongs_to_nothing(
    project: Project, alice: User, bound: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = trained(project, alice, steps=2)
    stranger = bound / "runs" / "stranger"
    stranger.mkdir()
    age(stranger)
    services.delete_run(run, by=alice)
    call_command("prune", "--dry-run")
    said = capsys.readouterr().out
    assert f"deleted by alice on {timezone.now():%Y-%m-%d}: run {run.folder}" in said
    assert f"belongs to nothing: {stranger}" in said
    assert runfiles.folder(run).exists()
    call_command("prune", "--empty-trash")
    assert list((bound / "runs" / ".trash").iterdir()) == []
    assert "1 things belong to nothing" in capsys.readouterr().out
    assert stranger.exists()
    with pytest.raises(CommandError, match="more than 0"):
        call_command("prune", "--orphans", "--most", "0")
    assert stranger.exists()
    call_command("prune", "--orphans")
    assert not stranger.exists()
    (bound / installation.FILE).unlink()
    with pytest.raises(CommandError, match="do not belong together"):
        call_command("prune")
