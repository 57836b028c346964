"""A database and an EDT_HOME that do not belong together start no studio, and a number is never given to two runs of one home."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from experiments.ops.installation import InstallationKeys, refusal

REPOSITORY = Path(__file__).resolve().parents[2]
ONE, OTHER = uuid.uuid4(), uuid.uuid4()


def found(
    database: uuid.UUID | None, home: uuid.UUID | None, *, people: bool = True, names_files: bool = True, has_files: bool = True
) -> InstallationKeys:
    return InstallationKeys(database, home, has_people=people, names_files=names_files, has_files=has_files)


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (found(ONE, ONE), ""),
        (found(ONE, ONE, people=False, names_files=False, has_files=False), ""),
        (found(None, None, people=False, names_files=False, has_files=False), ""),  # the first start
        (found(None, None), ""),  # of a version that had no keys
        (found(None, None, names_files=False, has_files=False), ""),
        (found(None, None, people=False, names_files=False), "the database is empty"),
        (found(None, None, has_files=False), "holds none"),
        (found(None, ONE, people=False, names_files=False), "this one is empty"),
        (found(None, ONE), "do not belong together"),
        (found(ONE, None), "do not belong together"),
        (found(ONE, OTHER), "do not belong together"),
    ],
)
def test_only_what_belongs_together_starts(state: InstallationKeys, words: str) -> None:
    said = refusal(state, home=Path("/srv/edt"))
    assert (words in said) if words else (said == "")
    if said:
        assert "/srv/edt" in said
        assert "manage.py adopt" in said


def manage(home: Path, *arguments: str, script: str = "") -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "DATABASE_URL"}
    environment |= {"EDT_HOME": str(home), "DJANGO_SETTINGS_MODULE": "webapp.settings"}
    command = [sys.executable, "manage.py", *arguments]
    return subprocess.run(command, cwd=REPOSITORY, env=environment, input=script, capture_output=True, text=True, check=False, timeout=120)


@pytest.mark.timeout(240)
def test_files_beside_a_database_that_does_not_know_them_are_refused_until_somebody_adopts_them(tmp_path: Path) -> None:
    home = tmp_path / "home"
    assert manage(home, "prepare").returncode == 0
    assert manage(home, "prepare").returncode == 0
    (home / "runs" / "f00").mkdir()
    (home / "runs" / ".highest").write_text("41")
    for database in home.glob("db.sqlite3*"):
        database.unlink()
    refused = manage(home, "prepare")
    assert (refused.returncode, "this one is empty" in refused.stderr) == (2, True), refused.stderr
    assert manage(home, "studio", "--port", "0").returncode == 2
    adopted = manage(home, "adopt")
    assert "belong together from now on" in adopted.stdout, adopted.stderr
    assert manage(home, "prepare").returncode == 0
    assert (home / "runs" / "f00").is_dir()
    made = manage(home, "shell", "--no-imports", script=NEXT_RUN)
    assert made.stdout.strip().splitlines()[-1] == "42", made.stderr
    shutil.copy(home / "db.sqlite3", tmp_path / "other.sqlite3")
    (home / "installation").write_text(f"{OTHER}\n")
    refused = manage(home, "prepare")
    assert (refused.returncode, "do not belong together" in refused.stderr) == (2, True), refused.stderr


NEXT_RUN = """
from django.utils import timezone
from experiments.models import *
by = User.objects.create_user("alice")
project = Project.objects.create(name="p", created_by=by)
definition = TrainingDefinition.objects.create(project=project, name="d", created_by=by)
bundle = Bundle.objects.create(sha256="0" * 64, size_bytes=1, entries=1)
version = DefinitionVersion.objects.create(definition=definition, number=1, bundle=bundle, file_name="c.zip", created_by=by)
experiment = Experiment.objects.create(project=project, name="e", created_by=by)
print(TrainingRun.objects.create(experiment=experiment, version=version, name="r", submitted_by=by, submitted_at=timezone.now()).pk)
"""
