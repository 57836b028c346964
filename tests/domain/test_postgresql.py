"""What holds on SQLite holds on PostgreSQL: the tests where the database matters, run again on a real server."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.domain import postgres

REPOSITORY = Path(__file__).resolve().parents[2]
WHERE_IT_MATTERS = [
    [
        "database",
        "upgrades",
        "deletion",
        "concurrency",
        "data_versions",
        "scheduling",
        "many_runs",
        "ingest",
        "fleet",
        "selectors",
        "run_values",
        "run_filters",
    ],
    ["transfer"],
]


@pytest.mark.timeout(960)  # usually a minute: many times that on a machine that is busy with something else
@pytest.mark.skipif(postgres.programs() is None, reason="the PostgreSQL wheel is not installed")
@pytest.mark.parametrize("names", WHERE_IT_MATTERS, ids=lambda names: names[0])
def test_the_same_holds_on_postgresql(names: list[str], tmp_path: Path) -> None:
    files = [f"tests/domain/test_{name}.py" for name in names]
    with postgres.running() as url:
        environment = os.environ | {"DATABASE_URL": url, "EDT_HOME": str(tmp_path / "home")}
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *files],
            cwd=REPOSITORY,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=900,
            check=False,
        )
    assert done.returncode == 0, done.stdout[-6000:]
    assert " passed" in done.stdout
