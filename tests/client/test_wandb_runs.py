"""Runs of Weights & Biases are read where its own library has put them: what they logged, how they ended, and what they saved."""

from __future__ import annotations

import datetime as dt
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from edt_client.errors import ClientError
from edt_client.importing import RecordedRun
from edt_client.wandb_runs import wandb_runs

SCRIPT = """
import os, sys
import wandb

run = wandb.init(project="digits", name="first try", tags=["small", "fast"], notes="as it came", config={"lr": 0.1}, id="abc123")
for step in range(20):
    wandb.log({"train/loss": 1 / (step + 1)})
with open(os.path.join(run.dir, "best.txt"), "w") as file:
    file.write("0.05")
run.finish(exit_code=int(sys.argv[1]))
"""


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("script")
    mine = {**os.environ, "WANDB_MODE": "offline", "WANDB_SILENT": "true", "WANDB_ERROR_REPORTING": "false", "HOME": str(folder)}
    subprocess.run([sys.executable, "-c", SCRIPT, "0"], cwd=folder, env=mine, check=True, timeout=120, capture_output=True)
    return folder / "wandb"


@pytest.fixture
def folder(kept: Path, tmp_path: Path) -> Path:
    return shutil.copytree(kept, tmp_path / "wandb", symlinks=True)


def log_in(folder: Path) -> Path:
    (found,) = (path for path in folder.glob("offline-run-*/run-abc123.wandb"))
    return found


def only(folder: Path) -> RecordedRun:
    (found,) = wandb_runs(folder)
    return found


def test_a_run_has_its_name_curves_config_and_files(folder: Path) -> None:
    run = only(folder)
    assert (run.name, run.state, run.parameters["lr"]) == ("first try", "completed", "0.1")
    assert [(each["name"], each["step"]) for each in run.points] == [("train/loss", step) for step in range(20)]
    assert run.points[19]["value"] == pytest.approx(0.05)
    assert run.tags == {"wandb run": "abc123", "wandb project": "digits", "wandb tags": "small, fast", "wandb notes": "as it came"}
    assert run.started_at is not None
    assert run.ended_at is not None
    assert dt.timedelta() <= run.ended_at - run.started_at < dt.timedelta(minutes=2)
    with run.files() as files:
        assert files["best.txt"].read_text() == "0.05"


def test_one_that_was_resumed_is_one_run_with_what_all_of_its_folders_have(folder: Path) -> None:
    first = log_in(folder).parent
    shutil.copytree(first, folder / "offline-run-20990101_000000-abc123", symlinks=True)
    (first / "files" / "best.txt").write_text("older")
    run = only(folder)
    assert len(run.points) == 40, "the studio leaves out steps that a curve has passed"
    with run.files() as files:
        assert files["best.txt"].read_text() == "0.05"


def test_one_without_an_end_still_runs_or_was_cut_off(folder: Path) -> None:
    log = log_in(folder)
    log.write_bytes(log.read_bytes()[:1500])
    assert only(folder).state is None
    long_ago = (dt.datetime.now(dt.UTC) - dt.timedelta(hours=1)).timestamp()
    os.utime(log, (long_ago, long_ago))
    assert only(folder).state == "failed"


def test_one_that_ended_with_an_error_has_failed(tmp_path: Path) -> None:
    mine = {**os.environ, "WANDB_MODE": "offline", "WANDB_SILENT": "true", "WANDB_ERROR_REPORTING": "false", "HOME": str(tmp_path)}
    subprocess.run([sys.executable, "-c", SCRIPT, "3"], cwd=tmp_path, env=mine, check=False, timeout=120, capture_output=True)
    assert only(tmp_path / "wandb").state == "failed"


def test_what_is_no_log_is_none(tmp_path: Path, folder: Path) -> None:
    (folder / "run-junk.wandb").write_bytes(b"\0" * 100)
    assert only(folder).name == "first try"
    with pytest.raises(ClientError, match="has no logs of Weights & Biases"):
        list(wandb_runs(tmp_path / "nothing"))
