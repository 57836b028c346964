"""docs/notebooks.md: its commands and its cell do what it says."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.notebooks.execution import Notebook, html, text

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "notebooks.md"
DATASETS = """
import torch


def get_datasets():
    rows = torch.randn(256, 64, generator=torch.Generator().manual_seed(1))
    data = torch.utils.data.TensorDataset(rows, rows.argmax(1) % 10)
    return data, data
"""


def test_jupyter_learns_of_the_kernel_by_the_commands_that_are_printed(tmp_path: Path) -> None:
    lines = [line.strip() for line in GUIDE.read_text().splitlines() if line.startswith("    .venv/bin/python")]
    assert len(lines) == 2
    for line in lines:
        command = [sys.executable, *shlex.split(line)[1:]]
        own = {"HOME": str(tmp_path), "JUPYTER_DATA_DIR": str(tmp_path / "jupyter")}
        done = subprocess.run(command, env={**os.environ, **own}, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    said = json.loads((tmp_path / "jupyter" / "kernels" / "edt-studio" / "kernel.json").read_text())
    assert (said["display_name"], Path(said["argv"][0])) == ("EDT Studio", Path(sys.executable))


@pytest.mark.timeout(300)
def test_the_cell_of_the_guide_trains(tmp_path: Path) -> None:
    (cell,) = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), flags=re.DOTALL)
    notebook = Notebook(tmp_path, EDT_STUDIO="local")
    try:
        notebook.run(DATASETS)
        assert "Completed: epoch 10 of 10" in html(notebook.run(cell))
        shown = text(notebook.run("print(training.state, training.step, len(training.history['train loss']))"))
        assert shown.split() == ["completed", "20", "20"]
    finally:
        notebook.close()
