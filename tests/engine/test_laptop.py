"""`python main.py` without the studio trains on the local slots, on the same code path."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import torch

from tests.engine.scripts import SMALL
from training_runtime import journal

ROOT = Path(__file__).resolve().parents[2]


def laptop(tmp_path: Path, *args: str, slots: int = 2) -> subprocess.Popen:
    (tmp_path / "main.py").write_text(SMALL)
    keep = {k: v for k, v in os.environ.items() if not k.startswith(("EDT_", "RESULT_DIR"))}
    env = {**keep, "PYTHONPATH": str(ROOT / "training_runtime/fabric/path"), "EDT_SLOTS": str(slots)}
    command = [sys.executable, "main.py", *args]
    return subprocess.Popen(command, cwd=tmp_path, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def test_it_trains_and_leaves_results_in_a_folder_of_its_own(tmp_path):
    process = laptop(tmp_path, "--epochs", "2")
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0, output
    (folder,) = (tmp_path / "edt-results").iterdir()
    assert "2 workers" in output
    events = [line.event for line in journal.follow(folder / "journal.jsonl")]
    assert events[-1].outcome == "completed"
    assert torch.load(folder / "model/train/model_epoch_final.pth", weights_only=True)


def test_ctrl_c_stops_at_a_step_and_leaves_no_process(tmp_path):
    process = laptop(tmp_path, "--epochs", "1000")
    assert process.stdout is not None
    while "workers" not in process.stdout.readline():
        pass
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode != 0
    (folder,) = (tmp_path / "edt-results").iterdir()
    assert [line.event for line in journal.follow(folder / "journal.jsonl")][-1].outcome == "stopped"
