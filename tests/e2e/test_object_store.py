"""The disk of a studio is lost while a job trains: its files come back from the object store, by the commands that the documentation
prints, and the job trains on to the same weights."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.studio import REPOSITORY, Studio, wait_until
from tests.e2e.test_backup import CHECKPOINT, ENDED, SLOW, SUBMIT, as_printed, run_command
from tests.engine.harness import weights
from tests.objectstore import S3Server

PRINTED = r"^    (\.venv/bin/python manage\.py store .*)$"
*_, FETCH, ADOPT = re.findall(PRINTED, (REPOSITORY / "docs/operations.md").read_text(), re.MULTILINE)
TRAINS = "SELECT 1 FROM experiments_trainingrun WHERE started_at < strftime('%Y-%m-%d %H:%M:%f', 'now', '-4 seconds')"


@pytest.fixture
def s3(tmp_path: Path) -> Iterator[S3Server]:
    with S3Server(tmp_path / "s3") as server:
        yield server


@pytest.fixture
def stored(s3: S3Server) -> Iterator[Studio]:
    """A run that trains is copied every few seconds."""
    made = Studio(settings={**s3.environment, "EDT_STORE": s3.url, "EDT_STORE_MINUTES": "0.05"})
    yield made
    made.close()


@pytest.fixture
def restored(s3: S3Server) -> Iterator[Studio]:
    made = Studio(settings={**s3.environment, "EDT_STORE": s3.url})
    made.home.rmdir()  # it is not there yet
    yield made
    made.close()


@pytest.mark.timeout(600)
def test_a_studio_whose_disk_is_lost_has_its_files_again_and_a_job_trains_on_to_the_same_weights(
    stored: Studio, restored: Studio, tmp_path: Path
) -> None:
    stored.start()
    stored.account("alice")
    run = int(stored.shell(SUBMIT.format(script=SLOW)).split()[-1])
    wait_until(lambda: stored.rows(CHECKPOINT, run) and stored.rows(TRAINS), lambda: f"a checkpoint\n{stored.tail()}")
    run_command(["manage.py", "store", "copy"], stored)  # which the next copy of a run that trains may follow at once
    assert stored.rows("SELECT state FROM experiments_trainingrun") == [("running",)]
    assert stored.rows("SELECT 1 FROM experiments_storecopy WHERE kind = 'run' AND copied_at IS NOT NULL")
    backup = tmp_path / "backup"
    assert run_command(["manage.py", "backup", str(backup)], stored).returncode == 0
    for room in ("bundles", "runs"):  # as of a database that is elsewhere
        shutil.rmtree(backup / room)
        (backup / room).mkdir()
    (stored.folder(run) / "go").touch()

    assert run_command(["manage.py", "restore", str(backup)], restored).returncode == 0
    assert not restored.folder(run).exists()
    assert "2 things came back" in as_printed(FETCH, restored, {})
    as_printed(ADOPT, restored, {})
    restored.start()
    (restored.folder(run) / "go").touch()
    wait_until(lambda: stored.rows(ENDED), lambda: f"the job ends where it began\n{stored.tail()}", deadline_s=240)
    wait_until(lambda: restored.rows(ENDED), lambda: f"the job ends where it was restored\n{restored.tail()}", deadline_s=240)
    why = restored.rows("SELECT state_reason, error_message FROM experiments_trainingrun")
    assert stored.rows(ENDED) == restored.rows(ENDED) == [("completed",)], why
    assert weights(restored.folder(run)) == weights(stored.folder(run))
    lines = [json.loads(line) for line in (restored.folder(run) / "journal.jsonl").read_text().splitlines()]
    assert [line for line in lines if line["kind"] == "resumed"], "it went on from its checkpoint"
