"""Versions of a data set by the command `edt`: added, listed, deleted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx

from tests import cast
from tests.web.browsing import Site


def test_the_command_adds_lists_and_deletes_versions(site: Site, tmp_path: Path) -> None:
    url = site.pages["url"]
    made = httpx.post(f"{url}/api/v1/tokens", json={"name": "edt", "scope": "write"}, auth=("alice", cast.PASSWORD), timeout=60)
    token = made.json()["token"]

    def edt(words: list[str], *, status: int = 0) -> Any:
        done = subprocess.run(
            [sys.executable, "-m", "edt_client", *words],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2]), "EDT_STUDIO": url, "EDT_TOKEN": token},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == status, done.stderr
        return json.loads(done.stdout) if "--json" in words else done.stdout + done.stderr

    (tmp_path / "a.csv").write_text("1\n")
    project = ["--project", "From a shell"]
    assert "(digits v1)" in edt(["upload", "a.csv", "--name", "digits", *project])
    assert "digits v1, the newest version" in edt(["upload", "a.csv", "--next-of", "digits", *project], status=1)
    (tmp_path / "a.csv").write_text("2\n")
    second = edt(["upload", "a.csv", "--next-of", "digits", "--note", "twos", *project, "--json"])
    assert (second["version"], second["note"]) == (2, "twos")
    assert [each["version"] for each in edt(["data", "digits", *project, "--json"])] == [2, 1]
    assert "v2" in edt(["data", *project])
    assert "it has 1, 2" in edt(["data", "digits@9", *project], status=1)
    assert "name one (digits@2), or say --delete-all" in edt(["data", "digits", "--delete", "--yes", *project], status=1)
    assert edt(["data", "digits@2", "--delete", "--yes", *project]) == "Deleted digits v2.\n"
    assert [each["version"] for each in edt(["data", "digits", *project, "--json"])] == [1]
    assert edt(["data", "digits", "--delete-all", "--yes", *project]) == "Deleted all 1 versions of digits.\n"
    assert edt(["data", *project, "--json"]) == []
