"""The short form of `python -m benchmarks.chaos`: half a minute of everything breaking at random, and what is left of it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]
ROOT = Path(__file__).resolve().parents[2]
TALLY = ("differences", "lost", "doubled", "open_grants", "processes_left", "runs_failed")


def test_nothing_is_lost_whatever_breaks() -> None:
    command = [sys.executable, "-m", "benchmarks.chaos", "--minutes", "0.5", "--seed", "7", "--epochs", "6"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    figures = json.loads(done.stdout.splitlines()[-1])["figures"]
    assert {name: figures[name] for name in TALLY} == dict.fromkeys(TALLY, 0), done.stdout
    assert figures["runs"] >= 4
    assert figures["blows"] > 5
