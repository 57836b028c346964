"""CUDA in the box of runs."""

from __future__ import annotations

from pathlib import Path

from training_runtime.host.sandbox import probe
from training_runtime.host.sandbox.levels import Policy


def test_it_starts_there(reachable: Path) -> None:
    assert [note for note in probe.strongest(reachable, Policy()).notes if "CUDA" in note] == []
