"""What a host wrote down for the next one, also one of an earlier release."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

from training_runtime.host import state


def test_runs_and_spares_of_a_host_from_before_shims_were_called_so_are_found(tmp_path: Path) -> None:
    spare = state.SavedSpare(**{each.name: 7 for each in dataclasses.fields(state.SavedSpare) if each.default is dataclasses.MISSING})
    saved, path = state.Saved("boot", 3, (), (spare,)), tmp_path / "state.json"
    state.save(path, saved)
    told = json.loads(path.read_text())
    for old, new in (("keeper", "shim"), ("keeper_ticks", "shim_ticks")):
        told["spares"][0][old] = told["spares"][0].pop(new)
    path.write_text(json.dumps(told))
    assert state.load(path) == saved
