"""How the tests try to break out of the box: user code that attempts something, and what became of it."""

from __future__ import annotations

import dataclasses
import json

import pytest

from tests.groups import missing
from tests.host.conftest import HostUnderTest, has_landlock, is_root

BOTH_LEVELS = ("own users", "one user")
needs_landlock = pytest.mark.skipif(not has_landlock, reason="this kernel has no Landlock")
needs_root = pytest.mark.skipif(not is_root, reason="only root can give each run its own user")
needs_groups = pytest.mark.skipif(bool(missing()), reason="this machine lends no control groups to the tests")
needs_box = pytest.mark.skipif(not (has_landlock or is_root), reason="this machine can box nothing in: no Landlock, not root")


def needs_own_users(host: HostUnderTest) -> None:
    if "user" not in host.look().node.sandbox_level:
        pytest.skip("promised only where each run has its own user")


ATTEMPT = """
import json, os, sys
from pathlib import Path
def attempt(action):
    try:
        return ["done", repr(action())[:300]]
    except BaseException as error:
        return [type(error).__name__, str(error)[:300]]
findings = {}
%s
Path(os.environ["RESULT_DIR"], "findings.json").write_text(json.dumps(findings))
"""


def try_in_the_box(host: HostUnderTest, body: str, *, run: int = 7, env: dict[str, str] | None = None, network: bool = False) -> dict:
    """Runs `body` as user code; it fills `findings[name] = attempt(callable)`: ["done", ...] or [error, ...]."""
    spec = host.spec(run, "script", "main.py", code={"main.py": ATTEMPT % body}, env=env)
    host.want(dataclasses.replace(spec, network=network))
    host.apply()
    seen = host.until_run(run, lambda seen: seen.state == "exited", deadline_s=40)
    assert seen.exit_code == 0, host.console(run) + host.log()
    return json.loads((host.result(run) / "findings.json").read_text())


def opened(findings: dict[str, list[str]]) -> dict[str, list[str]]:
    """The attempts that were not refused."""
    return {name: finding for name, finding in findings.items() if not refused(finding)}


def refused(finding: list[str]) -> bool:
    return finding[0] in ("PermissionError", "FileNotFoundError", "ProcessLookupError") or "Read-only file system" in finding[1]
