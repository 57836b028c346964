"""`python main.py` without the studio trains on the local slots, on the same code path."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.engine.scripts import SMALL
from training_runtime import journal
from training_runtime.elastic.processes import script
from training_runtime.errors import UserError
from training_runtime.fabric.laptop import local_slots

ROOT = Path(__file__).resolve().parents[2]


def laptop(tmp_path: Path, *args: str, slots: int = 2, code: str = SMALL, stdout: int = subprocess.PIPE, **more: str) -> subprocess.Popen:
    (tmp_path / "main.py").write_text(code)
    keep = {k: v for k, v in os.environ.items() if not k.startswith(("EDT_", "RESULT_DIR"))}
    env = {**keep, "PYTHONPATH": os.pathsep.join(script.module_paths()), "EDT_SLOTS": str(slots), "COLUMNS": "200", **more}
    command = [sys.executable, "main.py", *args]
    return subprocess.Popen(command, cwd=tmp_path, env=env, stdout=stdout, stderr=subprocess.STDOUT, text=True)


def test_it_trains_and_leaves_results_in_a_folder_of_its_own_and_draws_no_bar_into_a_log(tmp_path):
    process = laptop(tmp_path, "--epochs", "2")
    output, _ = process.communicate(timeout=150)
    assert process.returncode == 0, output
    (folder,) = (tmp_path / "edt-results").iterdir()
    assert "edt: step 1: 0 -> 2 workers, started" in output
    assert "edt: epoch 1/2  batches 4  loss" in output
    assert "steps/s" not in output
    assert "\x1b" not in output
    events = [line.event for line in journal.follow(folder / "journal.jsonl")]
    assert events[-1].outcome == "completed"
    assert torch.load(folder / "model/train/model_epoch_final.pth", weights_only=True)


def in_a_terminal(tmp_path: Path, *args: str, **more: str) -> tuple[int, bytes]:
    """Its exit status, and what it showed."""
    ours, theirs = pty.openpty()
    process = laptop(tmp_path, *args, stdout=theirs, **more)
    os.close(theirs)
    shown = b""
    with contextlib.suppress(OSError):  # the terminal is gone when its last process is
        while part := os.read(ours, 65536):
            shown += part
    os.close(ours)
    return process.wait(60), shown


def test_a_terminal_without_the_bars_characters_gets_others_and_the_training_goes_on(tmp_path):
    status, shown = in_a_terminal(tmp_path, "--epochs", "4", PYTHONIOENCODING="iso-8859-1")
    assert status == 0, shown.decode("iso-8859-1")
    assert b"=" * 20 + b" 100%  84/84  " in shown


def test_in_a_terminal_a_bar_shows_rate_time_left_and_workers_and_events_stand_above_it(tmp_path):
    status, shown = in_a_terminal(tmp_path, "--epochs", "4")
    text = shown.decode()
    assert status == 0, text
    assert re.search(r"epoch \d/4 ━*─+ +\d+%  \d+/84  [\d.]+ steps/s  ETA \d:\d\d  2 workers \(generation 1\)  loss", text), text
    assert "━" * 20 + " 100%  84/84  " in text
    lines = [line.rpartition("\x1b[2K")[2].rstrip() for line in text.split("\n")]
    assert any(line.startswith("edt: step 1: 0 -> 2 workers, started") for line in lines)
    assert sum(line.startswith("edt: epoch") and "test: loss" in line for line in lines) == 4


@pytest.mark.parametrize("said", ["inf", "nan", "10min", "-1"])
def test_a_time_for_the_export_that_is_none_is_refused_before_the_training(tmp_path, said):
    exports = SMALL.replace("optimizer).train", "optimizer, save_to_onnx=True).train")
    assert exports != SMALL
    process = laptop(tmp_path, "--epochs", "1", code=exports, EDT_ONNX_TIMEOUT=said)
    output, _ = process.communicate(timeout=150)
    assert process.returncode == 1
    assert f"EDT_ONNX_TIMEOUT must be seconds, more than 0 and at most 1000000, not {said}" in output
    assert "epoch 1/1" not in output


def test_another_machine_joins_with_the_results_folder_and_ends_with_the_training(tmp_path):
    for name in ("home", "other"):
        (tmp_path / name).mkdir()
    results = tmp_path / "results"
    home = laptop(tmp_path / "home", "--epochs", "100", slots=1, RESULT_DIR=str(results), EDT_ADDRESS="127.0.0.1")
    assert home.stdout is not None
    assert f"join with EDT_JOIN={results}" in home.stdout.readline()
    other = laptop(tmp_path / "other", "--epochs", "100", slots=1, EDT_JOIN=str(results))
    assert any("1 -> 2 workers, another machine joins" in line for line in home.stdout)
    home.send_signal(signal.SIGINT)
    output, _ = home.communicate(timeout=150)
    said, _ = other.communicate(timeout=150)
    assert home.returncode == -signal.SIGINT, output
    assert other.returncode == 0, said
    assert "takes part in the training" in said
    assert not (tmp_path / "other" / "edt-results").exists()


TWICE = """
import os, torch
from torch import nn
from fabric_model import FabricModel
def data():
    return torch.utils.data.TensorDataset(torch.randn(16, 4), torch.zeros(16, dtype=torch.int64)), None
model = nn.Linear(4, 2)
fabric = FabricModel(model, data, nn.functional.cross_entropy, torch.optim.SGD(model.parameters(), 0.1))
fabric.train(1, 4, 2)
os.environ["EDT_START_METHOD"] = "spawn"  # now workers have to find the train() that they are for
fabric.train(1, 4, 2)
del os.environ["EDT_START_METHOD"]
os.environ["RESULT_DIR"] = os.path.abspath("given")
fabric.train(1, 4, 2)
fabric.train(1, 4, 2)
"""


def test_a_second_train_has_a_folder_of_its_own_and_is_refused_where_it_has_none(tmp_path):
    process = laptop(tmp_path, code=TWICE)
    output, _ = process.communicate(timeout=150)
    assert process.returncode != 0
    assert "train() can be called once in a run" in output
    folders = [*(tmp_path / "edt-results").iterdir(), tmp_path / "given"]
    assert [len([*folder.glob("model/train/model_epoch_final.pth")]) for folder in folders] == [1, 1, 1]


def test_ctrl_c_stops_at_a_step_and_leaves_no_process(tmp_path):
    process = laptop(tmp_path, "--epochs", "1000")
    assert process.stdout is not None
    while "workers" not in process.stdout.readline():
        pass
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=150)
    assert process.returncode != 0
    (folder,) = (tmp_path / "edt-results").iterdir()
    assert [line.event for line in journal.follow(folder / "journal.jsonl")][-1].outcome == "stopped"


@pytest.mark.parametrize("said", ["abc", "0", "-2", "1.5"])
def test_slots_that_are_no_number_are_refused_in_words(said, monkeypatch):
    monkeypatch.setenv("EDT_SLOTS", said)
    with pytest.raises(UserError, match="EDT_SLOTS must be a number, at least 1"):
        local_slots()
