"""The order of the tests, and what a machine that is too slow for all of them leaves out."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests import turns

TESTS = turns.ROOT / "tests"


def test_what_is_promised_first_of_all_comes_first_and_is_there() -> None:
    files = sorted(TESTS.glob("*/test_*.py"), key=lambda file: (turns.rank(file), turns.turn(file)))
    told = [f"{file.parent.name}/{file.name}" for file in files]
    assert told[0] == turns.PROMISED[0]
    others = [name for name in told if not name.startswith(("e2e/", "attack/")) and not name.endswith(turns.IN_A_BROWSER)]
    assert others[: len(turns.PROMISED) - 1] == list(turns.PROMISED[1:])


def test_the_rest_is_in_another_order_for_each_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    def order(commit: str) -> list[Path]:
        monkeypatch.setattr(turns, "_commit", lambda: commit)
        return sorted(TESTS.glob("host/test_*.py"), key=turns.turn)

    assert order("a") == order("a")
    assert order("a") != order("b")


@pytest.mark.parametrize(
    ("name", "late"),
    [
        ("engine/test_tree.py", True),
        ("e2e/test_rest.py", True),
        ("web/test_live_browser.py", True),
        ("web/test_api.py", False),
        ("domain/test_access.py", False),
        ("attack/test_box.py", False),
    ],
)
def test_only_what_is_long_is_left_out_and_only_when_the_time_is_up(monkeypatch: pytest.MonkeyPatch, name: str, late: bool) -> None:
    monkeypatch.delenv(turns.UNTIL, raising=False)
    assert not turns.is_late(TESTS / name, 10.0), "nobody has set a time"
    monkeypatch.setenv(turns.UNTIL, "9.5")
    assert not turns.is_late(TESTS / name, 9.0)
    assert turns.is_late(TESTS / name, 10.0) == late


def test_what_is_left_out_is_counted_and_says_why() -> None:
    environment = os.environ | {turns.UNTIL: str(time.time() - 1)}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "tests/engine/test_tree.py",
        "tests/scheduling/test_shares.py",
    ]
    done = subprocess.run(command, cwd=turns.ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert turns.LATE in done.stdout
    skipped, passed = done.stdout.splitlines()[-1].split(" skipped")[0].split(), "passed" in done.stdout.splitlines()[-1]
    assert passed
    assert int(skipped[-1]) > 0
