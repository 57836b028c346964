"""Scripts whose steps wait until they are allowed (the file "allowed" of their results), and which write what happens into "noted"."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

from tests.engine.harness import Run


def allow(run: Run, steps: int) -> None:
    draft = run.result_dir / "allowed.new"
    draft.write_text(str(steps))
    draft.replace(run.result_dir / "allowed")


def noted(run: Run, key: str) -> list:
    path = run.result_dir / "noted"
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return [line[key] for line in lines if key in line]


def move(run: Run, folder: Path) -> None:
    """As to another machine, where runs lie elsewhere, while no driver lives."""
    run.folder.rename(folder)
    run.folder, run.code_dir, run.result_dir = folder, folder / "code", folder / "result"
    run.spec = dataclasses.replace(run.spec, code_dir=str(run.code_dir), result_dir=str(run.result_dir), data_dir=str(folder))
    run.log = run.result_dir / "log" / "driver" / "console.log"
