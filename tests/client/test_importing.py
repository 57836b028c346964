"""What MLflow and TensorBoard have kept, read by their own libraries: real stores and event files."""

from __future__ import annotations

import datetime as dt
import math
from pathlib import Path

import pytest

from edt_client import importing
from edt_client.errors import ClientError
from edt_client.importing import RecordedRun


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of MLflow's with two runs of one experiment and one of another, which still runs."""
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    import mlflow

    folder = tmp_path / "mlruns"
    client = mlflow.MlflowClient(tracking_uri=str(folder))
    letters, digits = client.create_experiment("letters"), client.create_experiment("digits")
    for name, status, began_ms in (("first", "FINISHED", 1_700_000_000_000), ("second", "FAILED", 1_700_000_001_000)):
        run = client.create_run(letters, run_name=name, tags={"team": "vision"}, start_time=began_ms).info.run_id
        client.log_param(run, "lr", 0.1)
        for step, value in ((2, 0.5), (1, 1.0), (3, math.inf)):
            client.log_metric(run, "loss", value, step=step, timestamp=began_ms + step)
        client.log_text(run, name, "notes/a.txt")
        client.set_terminated(run, status=status, end_time=1_700_000_060_000)
    client.create_run(digits, run_name="third")
    return folder


def test_runs_of_a_folder_of_mlflows_are_read(store: Path) -> None:
    first, second, third = importing.mlflow_runs(str(store))
    assert [(run.name, run.state) for run in (first, second, third)] == [("first", "completed"), ("second", "failed"), ("third", None)]
    assert [(point["step"], point["value"]) for point in first.points] == [(1, 1.0), (2, 0.5), (3, "Infinity")]
    assert first.points[0]["time"] == 1_700_000_000.001
    assert (first.parameters, first.tags["team"], first.tags["mlflow experiment"]) == ({"lr": "0.1"}, "vision", "letters")
    began = dt.datetime.fromtimestamp(1_700_000_000, dt.UTC)
    assert (first.started_at, first.ended_at) == (began, began + dt.timedelta(minutes=1))
    with first.files() as files:
        assert {name: path.read_text() for name, path in files.items()} == {"notes/a.txt": "first"}
    assert len({run.key for run in (first, second, third)}) == 3


def test_one_experiment_of_it_is_chosen_by_its_name(store: Path) -> None:
    assert [run.name for run in importing.mlflow_runs(str(store), ["digits"])] == ["third"]
    with pytest.raises(ClientError, match="no experiment named words"):
        list(importing.mlflow_runs(str(store), ["words"]))


@pytest.mark.parametrize("named", ["mlruns", "mlflow.db", "sqlite:///mlflow.db"])
def test_what_is_not_there_is_not_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ClientError, match="name a folder"):
        list(importing.mlflow_runs(named))
    assert list(tmp_path.iterdir()) == []


def test_a_server_that_is_away_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with pytest.raises(ClientError, match="MLflow cannot read http:"):
        list(importing.mlflow_runs("http://127.0.0.1:9"))


def events(folder: Path) -> list[RecordedRun]:
    return list(importing.tensorboard_runs(folder))


def test_each_folder_of_event_files_is_a_run_with_its_own_times(tmp_path: Path) -> None:
    from torch.utils.tensorboard import SummaryWriter

    for name in ("a", "b/deep"):
        with SummaryWriter(str(tmp_path / name)) as writer:
            for step, value in enumerate((1.0, 0.5, math.nan)):
                writer.add_scalar("loss/train", value, step, walltime=1_700_000_000 + step)
            writer.add_text("notes", "hello", 0, walltime=1_700_000_000)
    (tmp_path / "other.txt").write_text("no events")
    first, second = events(tmp_path)
    assert [(run.name, run.state) for run in (first, second)] == [("a", "completed"), ("b/deep", "completed")]
    assert [(each["name"], each["step"], each["value"]) for each in first.points] == [
        ("loss/train", 0, 1.0),
        ("loss/train", 1, 0.5),
        ("loss/train", 2, "NaN"),
    ]
    assert first.started_at == dt.datetime.fromtimestamp(1_700_000_000, dt.UTC)
    with first.files() as files:
        assert [name.startswith(importing.EVENTS) for name in files] == [True]
    assert first.key != second.key


def test_hyperparameters_and_what_a_second_file_adds_are_of_the_same_run(tmp_path: Path) -> None:
    from torch.utils.tensorboard import SummaryWriter
    from torch.utils.tensorboard.summary import hparams

    for first in (0, 2):
        with SummaryWriter(str(tmp_path), filename_suffix=f".{first}") as writer:
            for part in hparams({"lr": 0.1, "net": "small"}, {"accuracy": 0.0}):
                writer.file_writer.add_summary(part)  # type: ignore[union-attr]
            writer.add_scalar("loss", 1.0, first)
            writer.add_scalar("loss", 1.0, first + 1)
    (run,) = events(tmp_path)
    assert run.name == tmp_path.name
    assert run.parameters == {"lr": "0.1", "net": "small"}
    assert [each["step"] for each in run.points] == [0, 1, 2, 3]


def test_a_file_that_was_cut_short_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(tmp_path)) as writer:
        for step in range(5):
            writer.add_scalar("loss", 1.0, step)
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:-10])
    (run,) = events(tmp_path)
    assert [each["step"] for each in run.points] == [0, 1, 2, 3]


def test_a_folder_without_event_files_is_said(tmp_path: Path) -> None:
    with pytest.raises(ClientError, match="tensorboard --logdir"):
        events(tmp_path)
