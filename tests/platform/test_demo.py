"""`manage.py demo`, as it is: interrupted while Alice trains, then told again to its end on the same data."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.e2e.studio import REPOSITORY, Studio, wait_until

COMMAND = [sys.executable, "manage.py", "demo", "--port", "0", "--epochs", "6"]


@pytest.fixture
def studio() -> Iterator[Studio]:
    """A home, and what is left of the processes in it at the end."""
    studio = Studio()
    studio.home.chmod(0o755)
    try:
        yield studio
    finally:
        studio.close()


def begin(studio: Studio, *arguments: str) -> None:
    studio.output.unlink(missing_ok=True)
    studio.process = subprocess.Popen(
        [*COMMAND, *arguments],
        cwd=REPOSITORY,
        env=studio.environment,
        stdout=studio.output.open("ab"),
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


def said(studio: Studio) -> str:
    return studio.output.read_text(errors="replace") if studio.output.exists() else ""


@pytest.mark.timeout(600)
def test_it_can_be_interrupted_and_told_again_on_the_same_data(studio: Studio) -> None:
    begin(studio, "--epochs", "300")  # Bob comes after an eighth of them, and is not to come before the interrupt
    assert studio.process is not None
    wait_until(lambda: re.search(r"alice +running +4 slots", said(studio)), "Alice's run on four slots", deadline_s=120)
    assert said(studio).lstrip().startswith("EDT Studio is at "), "nothing that could frighten somebody comes before it"
    studio.process.send_signal(signal.SIGINT)
    assert studio.process.wait(60) == 0, said(studio)
    assert studio.processes() == []
    first = dict(re.findall(r"^  (\w+) +password (\S+)$", said(studio), flags=re.M))
    assert set(first) == {"alice", "bob"}

    begin(studio, "--exit")
    status = studio.process.wait(400)
    assert status == 0, said(studio)
    assert re.search(r"Slots of alice\+bob: 4\+0 → .*2\+2 → .*(0\+4|4\+0)\. No step was lost or repeated\.", said(studio))
    assert studio.processes() == []

    again = dict(re.findall(r"^  (\w+) +password (\S+)$", said(studio), flags=re.M))
    assert not set(first.values()) & set(again.values())
    states = studio.rows("SELECT state FROM experiments_trainingrun ORDER BY id")
    assert states == [("stopped",), ("completed",), ("completed",)]
    projects = studio.rows("SELECT name FROM experiments_project ORDER BY id")
    assert projects == [("Alice's digits",), ("Bob's digits",)]
    assert studio.held() == {}
