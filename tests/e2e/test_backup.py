"""A backup that is made while a job trains is put back elsewhere, by the commands that the documentation prints, and the job trains on."""

from __future__ import annotations

import json
import re
import shlex
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.studio import REPOSITORY, Studio, wait_until
from tests.engine.harness import weights
from tests.engine.scripts import HELD

# Slow enough to be backed up in the middle, and never done before it may be.
SLOW = HELD.replace(
    'while os.path.exists(folder + f"/stay-{epoch}"):',
    'end = time.monotonic() + 0.3\n        while (epoch == 16 or time.monotonic() < end) and not os.path.exists(folder + "/go"):',
)
SUBMIT = """
import io, zipfile
from experiments import services
from experiments.models import User
by = User.objects.get(username="alice")
file = io.BytesIO()
with zipfile.ZipFile(file, "w") as archive:
    archive.writestr("main.py", {script!r})
file.seek(0)
project = services.create_project(by=by, name="Backed up")
version = services.create_definition(project, by=by, name="slow", upload=file, file_name="slow.zip", command="main.py --epochs 24")
experiment = services.create_experiment(project, by=by, name="slow", versions=[version])
print(services.run_experiment(experiment, by=by)[0].pk)
"""
PRINTED = r"^    ((?:EDT_HOME=\S+ )?\.venv/bin/python manage\.py (?:backup|restore) .*)$"
COMMANDS = re.findall(PRINTED, (REPOSITORY / "docs/operations.md").read_text(), re.MULTILINE)
CHECKPOINT = "SELECT 1 FROM experiments_runevent WHERE run_id = ? AND kind = 'checkpoint' AND message LIKE 'Wrote the state%'"
ENDED = "SELECT state FROM experiments_trainingrun WHERE ended_at IS NOT NULL"
POINTS = (
    "SELECT COUNT(*), MIN(step), MAX(step) FROM experiments_metric m JOIN experiments_metricseries s ON s.id = m.series_id "
    "WHERE s.name = 'loss' AND s.\"group\" = 'train'"
)


@pytest.fixture
def restored() -> Iterator[Studio]:
    studio = Studio()
    studio.home.rmdir()  # it is not there yet
    yield studio
    studio.close()


def run_command(words: list[str], studio: Studio) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *words], cwd=REPOSITORY, env=studio.environment, capture_output=True, text=True, check=False)


def as_printed(command: str, studio: Studio, places: dict[str, Path]) -> str:
    """Run a line of the documentation; only the folders and the interpreter are ours."""
    words = [word for word in shlex.split(command, comments=True) if not word.startswith("EDT_HOME=")]
    done = run_command([str(places.get(word, word)) for word in words[1:]], studio)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


@pytest.mark.timeout(800)
def test_a_job_that_was_backed_up_while_it_trained_goes_on_elsewhere_to_the_same_weights(
    studio: Studio, restored: Studio, tmp_path: Path
) -> None:
    assert SLOW != HELD
    places = {"/backup/monday": tmp_path / "monday", "/backup/tuesday": tmp_path / "tuesday"}
    monday, tuesday, restore = COMMANDS
    studio.account("alice")
    run = int(studio.shell(SUBMIT.format(script=SLOW)).split()[-1])
    wait_until(lambda: studio.rows(CHECKPOINT, run), lambda: f"a checkpoint\n{studio.tail()}")
    as_printed(monday, studio, places)
    assert studio.rows("SELECT state FROM experiments_trainingrun") == [("running",)]
    said = as_printed(tuesday, studio, places)
    (studio.folder(run) / "go").touch()

    backup = places["/backup/tuesday"]
    assert json.loads((backup / "backup.json").read_text())["counts"]["shared"] > 0
    (bundle,) = (backup / "bundles").iterdir()
    assert bundle.samefile(places["/backup/monday"] / "bundles" / bundle.name)
    assert "studio's keys" in said
    assert stat.S_IMODE(backup.stat().st_mode) == 0o700

    assert "Restored the backup" in as_printed(restore, restored, places)
    assert list((restored.home / "code").iterdir()) == [], "it is unpacked when it is needed"
    restored.start()
    (restored.folder(run) / "go").touch()
    wait_until(lambda: studio.rows(ENDED), lambda: f"the job ends where it began\n{studio.tail()}", deadline_s=240)
    wait_until(lambda: restored.rows(ENDED), f"the job ends where it was restored\n{restored.tail()}", deadline_s=240)
    why = restored.rows("SELECT state_reason, error_message FROM experiments_trainingrun")
    assert studio.rows(ENDED) == restored.rows(ENDED) == [("completed",)], why
    assert weights(restored.folder(run)) == weights(studio.folder(run))
    assert restored.rows(POINTS) == studio.rows(POINTS)
    lines = [json.loads(line) for line in (restored.folder(run) / "journal.jsonl").read_text().splitlines()]
    assert [line for line in lines if line["kind"] == "resumed"], "it went on from its checkpoint"

    again = run_command(["manage.py", "restore", str(backup)], restored)
    assert (again.returncode, "is not empty" in again.stderr) == (2, True)
