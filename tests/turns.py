"""In what order tests run, and which are left out where a machine is too slow for all of them.

What drives whole studios, browsers and trainings takes nine tenths of the time, and goes first: among it what the project promises
first of all, then the rest by turns, in another order for each commit. What computes for milliseconds ends it, so that all processes
end together. Who sets EDT_TEST_UNTIL (seconds since the epoch), as tools/test.sh does, has those of the first kind that have not begun
by then skipped, with a reason that says so. See docs/decisions/test-time.md.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
from functools import cache
from pathlib import Path

from tests.side_by_side import IN_A_BROWSER

ROOT = Path(__file__).resolve().parents[1]
UNTIL = "EDT_TEST_UNTIL"
LATE = "this machine was too slow for it: not begun before the time was up (EDT_TEST_MINUTES, see docs/decisions/test-time.md)"
LONG = ("e2e", "engine", "host", "platform")  # folders
ALWAYS = ("attack",)  # however long they take
PROMISED = (  # of LONG: every step once, the same bits, nothing lost, and a first start
    "e2e/test_story.py",
    "engine/test_exactness.py",
    "engine/test_exactness_programs.py",
    "engine/test_elasticity.py",
    "engine/test_emergency_checkpoint.py",
    "engine/test_agents_apart.py",
    "engine/test_failures.py",
    "engine/test_loop.py",
    "engine/test_torchrun.py",
    "host/test_deaths.py",
    "platform/test_studio.py",
    "platform/test_demo.py",
)


def rank(path: Path) -> int:
    """What a file is sorted by, before its `turn`. The long chains, each of one process, begin first."""
    folder = path.parent.name
    if folder == "e2e":
        return 0
    if folder in ALWAYS:
        return 1
    if path.name.endswith(IN_A_BROWSER):
        return 2
    return 3 if folder in LONG else 4


def turn(path: Path) -> str:
    """What a file is sorted by among those of its rank."""
    name = f"{path.parent.name}/{path.name}"
    if name in PROMISED:
        return f"0 {PROMISED.index(name):02}"
    return f"1 {hashlib.sha256(f'{_commit()} {name}'.encode()).hexdigest()}" if path.parent.name in LONG else ""


def is_late(path: Path, now: float) -> bool:
    """Whether a test of the file `path` is left out at `now`, in seconds since the epoch."""
    until = os.environ.get(UNTIL)
    return bool(until) and now > float(until or 0) and (path.parent.name in LONG or path.name.endswith(IN_A_BROWSER))


@cache
def _commit() -> str:
    """Of the checkout; nothing where there is none: all processes of a run come to the same."""
    asked = ["git", "rev-parse", "HEAD"]
    try:
        return subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:
        return ""
