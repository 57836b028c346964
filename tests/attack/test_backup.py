"""A backup that somebody else has had in hand: what an administrator puts back with root's rights reaches nothing but the studio's own."""

from __future__ import annotations

import datetime as dt
import json
import os
import shutil
import sqlite3
import stat
import subprocess
import sys
import uuid
import zipfile
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from experiments import selectors
from experiments.cluster import desired, scheduling
from experiments.files import bundles, pruning, runfiles, stores
from experiments.models import Bundle, Project, Tombstone, TrainingRun, User
from experiments.ops import installation
from tests import cast
from tests.conftest import SentMessages
from tests.e2e.studio import REPOSITORY, prepared_home

pytestmark = pytest.mark.timeout(180)
WAYS_OUT = ("../victim", "../../victim", "/victim", "..", ".", "", "a/../../victim", "victim\0", "\u2025/victim")


def restore(source: Path, home: Path) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "DATABASE_URL"}
    environment |= {"EDT_HOME": str(home), "DJANGO_SETTINGS_MODULE": "webapp.settings", "EDT_REDIS_URL": "redis://127.0.0.1:1/0"}
    command = [sys.executable, "manage.py", "restore", str(source)]
    return subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False, timeout=60)


@pytest.fixture
def backup(tmp_path: Path) -> Path:
    """Of a studio that was never used; as manage.py backup writes one."""
    prepared, _ = prepared_home()
    made = tmp_path / "backup"
    for name in ("bundles", "assets", "models", "runs", "data", "secrets"):
        (made / name).mkdir(parents=True)
    shutil.copytree(prepared / "secrets", made / "secrets", dirs_exist_ok=True)
    shutil.copy(prepared / "db.sqlite3", made / "database.sqlite3")
    with sqlite3.connect(made / "database.sqlite3") as database:
        migrations = database.execute("SELECT app, name FROM django_migrations").fetchall()
    manifest = {
        "format": 1,
        "version": "0.1.0",
        "made_at": "2026-11-23",
        "database": "sqlite",
        "migrations": migrations,
        "tables": {},
        "counts": {},
    }
    (made / "backup.json").write_text(json.dumps(manifest))
    return made


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A file of the machine's."""
    path = tmp_path / "victim"
    path.write_text("the machine's own")
    path.chmod(0o644)
    return path


def test_links_pipes_and_numbers_in_place_of_the_studios_own_are_refused(backup: Path, victim: Path, tmp_path: Path) -> None:
    """The studio would follow them with its own rights: change their modes, write into them, read them for whoever asks."""
    laid = {"runs/linked": victim, "runs/.highest": victim, "secrets/linked": victim, "bundles/linked.zip": victim, "assets": tmp_path}
    (backup / "assets").rmdir()
    for name, to in laid.items():
        (backup / name).symlink_to(to)
    os.mkfifo(backup / "bundles" / "pipe.zip")
    done = restore(backup, tmp_path / "other")
    assert done.returncode == 2, done.stderr
    assert "is no backup that a studio made" in done.stderr
    assert "and 1 more" in done.stderr
    assert stat.S_IMODE(victim.stat().st_mode) == 0o644
    assert not (tmp_path / "other" / "installation").exists()
    assert [path.name for store in ("runs", "bundles", "assets", "models") for path in (tmp_path / "other" / store).iterdir()] == []


def test_a_pipe_in_place_of_its_list_is_not_waited_for_and_no_terminal_is_spoken_to(backup: Path, tmp_path: Path) -> None:
    manifest = json.loads((backup / "backup.json").read_text())
    (backup / "backup.json").write_text(json.dumps({**manifest, "version": "\x1b]0;owned\x07"}))
    done = restore(backup, tmp_path / "other")
    assert (done.returncode, "\x1b" in done.stdout + done.stderr) == (2, False), done.stderr
    (backup / "backup.json").unlink()
    os.mkfifo(backup / "backup.json")
    done = restore(backup, tmp_path / "other")
    assert (done.returncode, "is no backup that a studio made: 'backup.json'" in done.stderr) == (2, True), done.stderr


def test_what_it_says_of_this_machines_users_is_not_taken(backup: Path, victim: Path, tmp_path: Path) -> None:
    """By `.uid-base` the first runs would be root's, or anybody's. And a set-user-id bit and a link in a run stay what they are worth."""
    run = backup / "runs" / str(uuid.uuid4())
    run.mkdir()
    (backup / "runs" / ".uid-base").write_text("-7\n")
    (run / "program").write_text("#!/bin/sh\n")
    (run / "program").chmod(0o6777)
    (run / "link").symlink_to(victim)
    done = restore(backup, tmp_path / "other")
    assert done.returncode == 0, done.stderr
    runs = tmp_path / "other" / "runs"
    assert not (runs / ".uid-base").exists()
    assert stat.S_IMODE((runs / run.name / "program").stat().st_mode) == 0o777
    assert (runs / run.name / "link").is_symlink()
    assert stat.S_IMODE(victim.stat().st_mode) == 0o644


@pytest.fixture
def run(project: Project, alice: User, said: SentMessages) -> TrainingRun:
    """With a machine that is to run it."""
    cast.node()
    made = cast.run(project, by=alice)
    scheduling.tick(timezone.now())
    made.refresh_from_db()
    return made


@pytest.fixture
def outside(home: Path) -> Path:
    """Folders beside and above EDT_HOME that a name with a way out in it would mean."""
    for folder in (home / "victim", home.parent / "victim", home / "code" / "victim"):
        (folder / "log" / "driver").mkdir(parents=True)
        (folder / "log" / "driver" / "console.log").write_text("the machine's own")
        (folder / "main.py").write_text("the machine's own")
    return home.parent


@pytest.mark.parametrize("name", [*WAYS_OUT[:2], "{outside}/victim", *WAYS_OUT[3:6]])
def test_a_run_whose_folder_is_said_to_be_elsewhere_has_none(name: str, run: TrainingRun, outside: Path, home: Path) -> None:
    TrainingRun.objects.filter(pk=run.pk).update(folder=name.format(outside=outside))
    run.refresh_from_db()
    assert runfiles.folder(run).parent == home / "runs"
    assert runfiles.folder_of(run.pk) == runfiles.folder(run)
    assert selectors.files(run) == []
    assert selectors.log_tail(run, "driver").text == ""
    assert run.head_node is not None
    (wanted,) = desired.desired_state(run.head_node, now=timezone.now()).runs
    assert Path(wanted.spec.result_dir).parent == home / "runs"


@pytest.mark.parametrize("name", ["../victim", "../../victim", "{outside}/victim", "..", "."])
@pytest.mark.parametrize("kind", list(Tombstone.Kind))
def test_what_is_said_to_be_deleted_elsewhere_is_not(kind: Any, name: str, db: None, outside: Path, home: Path) -> None:
    before = sorted(str(path) for path in outside.rglob("*"))
    Tombstone.objects.create(kind=kind, key=name.format(outside=outside), at=timezone.now())
    installation.bind()
    before.append(str(home / "installation"))
    while pruning.clear(timezone.now(), kept=dt.timedelta(0)):
        pass
    trash = {str(home / store / pruning.TRASH) for store in pruning.STORES}
    locks = {str(home / name) for name in (".files.lock", "bundles/.lock", "models/.lock")}
    assert sorted({str(path) for path in outside.rglob("*")} - trash - locks) == sorted(before)


def test_code_that_is_said_to_lie_elsewhere_is_not_there(run: TrainingRun, outside: Path, home: Path) -> None:
    bundle = run.version.bundle
    for sha256, root in (
        (f"{outside}/victim", ""),
        ("../../victim", ""),
        (bundle.sha256, "../../victim"),
        (bundle.sha256, f"{outside}/victim"),
    ):
        Bundle.objects.filter(pk=bundle.pk).update(sha256=sha256, root=root)
        hostile = Bundle.objects.get(pk=bundle.pk)
        assert bundles.code_dir(hostile).resolve().is_relative_to(home / "code")
        assert not (bundles.code_dir(hostile) / "main.py").exists()
        assert bundles.zip_path(sha256).parent == home / "bundles"


def test_data_that_is_said_to_lie_elsewhere_is_not_given_to_a_run(home: Path, outside: Path) -> None:
    data = home / "data"
    (data / "images").mkdir(parents=True)
    (data / "link").symlink_to(outside / "victim")
    (data / "near").symlink_to(data / "images")
    assert stores.inside(data, "") == data
    assert stores.inside(data, "images") == data / "images"
    assert stores.inside(data, "near") == data / "near"
    for below in ("..", "../victim", "/etc", str(outside), "link", "images/../..", "a\0b"):
        assert stores.inside(data, below) == data / stores.NOWHERE, below


def test_a_zip_of_code_that_was_put_in_place_is_checked_when_it_is_unpacked(run: TrainingRun, home: Path) -> None:
    """Its row says that it was."""
    bundle = run.version.bundle
    shutil.rmtree(home / "code" / bundle.sha256)
    with zipfile.ZipFile(bundles.zip_path(bundle.sha256), "w") as archive:
        archive.writestr("main.py", "print(1)")
        archive.writestr("../../victim.py", "x")
    with pytest.raises(bundles.BundleRefused):
        bundles.unpacked(bundle)
    assert not list(home.glob("victim*"))
