"""Tests that run side by side: of a process that dies one test has failed, and all others are done."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.e2e.studio import REPOSITORY

CONFTEST = "import pytest\nfrom tests.side_by_side import Scheduling\n@pytest.hookimpl\ndef pytest_xdist_make_scheduler(config, log):\n"
CONFTEST += "    return Scheduling(config, log)\n"
DIES = "import os\ndef test_before(): pass\ndef test_dies(): os._exit(3)\n"


def test_a_process_that_dies_takes_one_test_with_it(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_first.py").write_text(DIES + "def test_after(): pass\n")
    for number in range(3):
        (tmp_path / f"test_{number}.py").write_text("def test_one(): pass\ndef test_two(): pass\n")
    (tmp_path / "test_last.py").write_text(DIES)
    options = ["-q", "-n", "2", "-p", "no:django", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", str(tmp_path)]
    command = [sys.executable, "-m", "pytest", *options, str(tmp_path)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")} | {"PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert "2 failed, 9 passed" in done.stdout, done.stdout + done.stderr
    assert done.returncode == 1
