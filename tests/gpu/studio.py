"""Somebody with a terminal and a studio that has GPUs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.e2e.studio import REPOSITORY, Studio, wait_until


class Person:
    def __init__(self, studio: Studio, name: str, home: Path) -> None:
        self.studio, self.home = studio, home
        self.folder = home / "code"
        self.folder.mkdir(parents=True)
        self._edt("login", studio.url, "--username", name, "--password-stdin", typed=studio.account(name) + "\n")

    def _edt(self, *words: str, typed: str = "") -> str:
        own = {"XDG_CONFIG_HOME": str(self.home / "config"), "HOME": str(self.home), "TERM": "dumb"}
        done = subprocess.run(
            [sys.executable, "-m", "edt_client", *words],
            cwd=self.folder,
            env={**os.environ, **own, "PYTHONPATH": os.pathsep.join([str(REPOSITORY), os.environ.get("PYTHONPATH", "")])},
            input=typed,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, f"edt {' '.join(words)}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def run(self, script: str, *arguments: str, slots: int, kind: str) -> int:
        """The number of a run that was submitted."""
        (self.folder / "main.py").write_text(script)
        said = self._edt("run", ".", "main.py", "--slots", str(slots), "--type", kind, "--detach", "--json", "--", *arguments)
        return int(json.loads(said)["run"])

    def facts(self, run: int) -> dict[str, Any]:
        return dict(json.loads(self._edt("show", str(run), "--json")))

    def log(self, run: int) -> str:
        """Of its driver and of all workers."""
        return "".join(path.read_text() for path in sorted(self.studio.folder(run).glob("log/**/console.log")))

    def until(self, run: int, *states: str) -> dict[str, Any]:
        """Its facts once it is in one of these."""

        def reached() -> dict[str, Any] | None:
            facts = self.facts(run)
            assert facts["state"] in states or facts["state"] not in ("failed", "stopped"), (facts, self.log(run))
            return facts if facts["state"] in states else None

        return wait_until(reached, f"run {run} is {' or '.join(states)}", deadline_s=90, every_s=0.3)
