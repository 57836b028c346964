"""What a backup holds and refuses, what a restore refuses, also on PostgreSQL. While a job trains: tests/e2e/test_backup.py."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from tests.disk import small_disk
from tests.domain import postgres

REPOSITORY = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.timeout(500)

SEED = """
import io, zipfile
from django.utils import timezone
from experiments.ops import installation; from experiments.files import runfiles; from experiments import services
from experiments.models import *
by = User.objects.create_user("alice", password="a long enough secret")
file = io.BytesIO()
with zipfile.ZipFile(file, "w") as archive:
    archive.writestr("code/main.py", "print(1)")
file.seek(0)
project = services.create_project(by=by, name="Backed up")
services.add_data(project, by=by, name="d", files=[("a/b", 3, io.BytesIO(b"one"))])
version = services.create_definition(project, by=by, name="x", upload=file, file_name="x.zip", command="main.py")
experiment = services.create_experiment(project, by=by, name="e", versions=[version])
run, = services.run_experiment(experiment, by=by)
folder = runfiles.make(run)
(folder / "result").write_text("found")
(folder / "link").symlink_to("/etc/passwd")
(folder / "tmp").mkdir()
(folder / "tmp" / "scratch").write_text("x" * 1000)
import os
os.mkfifo(folder / "pipe")
services.register_version(run, by=by, name="m", path="result", lineage={}, now=timezone.now())
Delivery.objects.create(person=by, body={}, created_at=timezone.now(), next_at=timezone.now())
"""
LOOK = """
import json
from experiments.files import bundles, datastore, modelstore, runfiles; from experiments import services
from experiments.models import *
run = TrainingRun.objects.get()
folder = runfiles.folder(run)
found = {
    "user": User.objects.get().check_password("a long enough secret"), "state": run.state,
    "files": sorted(each.name for each in folder.iterdir()), "link": str((folder / "link").readlink()),
    "code": (bundles.unpacked(run.version.bundle) / "main.py").read_text(),
    "data": (datastore.root(DataAsset.objects.get()) / "a" / "b").read_text(),
    "model": modelstore.opened(ModelFile.objects.get().sha256).read().decode(),
    "mail": Delivery.objects.get().outcome,
    "next": services.run_experiment(run.experiment, by=User.objects.get())[0].pk - run.pk,
}
print(json.dumps(found))
"""
EXPECTED = {
    **{"user": True, "state": "queued", "files": ["link", "result"], "link": "/etc/passwd", "code": "print(1)", "data": "one", "next": 1},
    "model": "found",
    "mail": "not sent: it was waiting when the backup was made",
}


def manage(home: Path, *words: str, database: str = "") -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "DATABASE_URL"}
    environment |= {"EDT_HOME": str(home), "DJANGO_SETTINGS_MODULE": "webapp.settings", **({"DATABASE_URL": database} if database else {})}
    # Nobody listens to what is said to pages and workers.
    environment["EDT_REDIS_URL"] = "redis://127.0.0.1:1/0"
    return subprocess.run(
        [sys.executable, "manage.py", *words], cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False, timeout=120
    )


def done(process: subprocess.CompletedProcess[str]) -> str:
    assert process.returncode == 0, process.stderr
    return process.stdout


def refused(process: subprocess.CompletedProcess[str], words: str) -> None:
    assert (process.returncode, words in process.stderr) == (2, True), process.stderr


def seeded(home: Path, database: str = "") -> Path:
    done(manage(home, "prepare", database=database))
    done(manage(home, "shell", "--no-imports", "-c", SEED, database=database))
    return home


def looked(home: Path, database: str = "") -> object:
    return json.loads(done(manage(home, "shell", "--no-imports", "-c", LOOK, database=database)).splitlines()[-1])


def test_what_is_put_back_is_what_was_there_and_nothing_is_put_over_anything(tmp_path: Path) -> None:
    home = seeded(tmp_path / "home")
    assert "2 things were left out" not in (said := done(manage(home, "backup", str(tmp_path / "one"))))
    assert "1 things were left out" in said, "the pipe"
    refused(manage(home, "backup", str(tmp_path / "one")), "is not empty")
    refused(manage(home, "backup", str(home / "inside")), "inside EDT_HOME")
    refused(manage(home, "backup", str(tmp_path / "two"), "--previous", str(tmp_path)), "no complete backup")
    assert "copied" in done(manage(home, "backup", str(tmp_path / "two"), "--previous", str(tmp_path / "one")))

    refused(manage(home, "restore", str(tmp_path / "one")), "is not empty")
    other = tmp_path / "other"
    manifest = tmp_path / "two" / "backup.json"
    whole = json.loads(manifest.read_text())
    manifest.write_text(json.dumps({**whole, "migrations": [*whole["migrations"], ["experiments", "9999_of_tomorrow"]]}))
    refused(manage(other, "restore", str(tmp_path / "two")), "9999_of_tomorrow")
    manifest.write_text(json.dumps({**whole, "database": "postgresql"}))
    refused(manage(other, "restore", str(tmp_path / "two")), "the same kind")
    manifest.unlink()
    refused(manage(other, "restore", str(tmp_path / "two")), "no complete backup")
    done(manage(other, "restore", str(tmp_path / "one")))
    assert looked(other) == EXPECTED
    keys = [(each / "installation").read_text() for each in (home, other)]
    assert uuid.UUID(keys[0].strip()) != uuid.UUID(keys[1].strip()), "the two are not mixed up"
    assert (home / "secrets" / "secret_key").read_text() == (other / "secrets" / "secret_key").read_text()
    done(manage(other, "prepare"))


@pytest.mark.skipif(postgres.programs() is None, reason="the PostgreSQL wheel is not installed")
def test_postgresql_is_backed_up_and_put_back_too(tmp_path: Path) -> None:
    with postgres.running() as url:
        home = seeded(tmp_path / "home", url)
        done(manage(home, "backup", str(tmp_path / "one"), database=url))
        refused(manage(tmp_path / "other", "restore", str(tmp_path / "one"), database=url), "database is not empty")
        make = "from django.db import connection; connection.cursor().execute('CREATE DATABASE other')"
        done(manage(home, "shell", "--no-imports", "-c", make, database=url))
        empty = url.replace("/postgres?", "/other?")
        done(manage(tmp_path / "other", "restore", str(tmp_path / "one"), database=empty))
        assert looked(tmp_path / "other", empty) == EXPECTED
        done(manage(tmp_path / "other", "prepare", database=empty))


def test_what_finds_no_room_says_so_and_is_made_again_where_there_is(tmp_path: Path) -> None:
    home = seeded(tmp_path / "home")
    (home / "data" / "large").write_bytes(b"x" * (3 << 20))
    with small_disk(tmp_path / "small", 2 << 20) as disk:
        full = manage(home, "backup", str(disk.folder / "one"))
        assert (full.returncode, "Traceback" in full.stderr) == (1, False), full.stderr
        assert f"Remove {disk.folder / 'one'}, make room" in full.stderr
        refused(manage(tmp_path / "other", "restore", str(disk.folder / "one")), "no complete backup")
    done(manage(home, "backup", str(tmp_path / "two")))
    with small_disk(tmp_path / "tight", 2 << 20) as disk:
        full = manage(disk.folder / "home", "restore", str(tmp_path / "two"))
        assert (full.returncode, "Traceback" in full.stderr) == (1, False), full.stderr
        assert f"Remove {disk.folder / 'home'}, make room" in full.stderr
    done(manage(tmp_path / "wide", "restore", str(tmp_path / "two")))
    assert looked(tmp_path / "wide") == EXPECTED
