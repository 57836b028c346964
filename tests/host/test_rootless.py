"""Users of their own for runs, without root: who gets them, and that the box of a run is then as strong as root's."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import somebody
from tests.e2e.studio import REPOSITORY
from training_runtime.errors import RootlessUnavailable
from training_runtime.host import rootless, settings
from training_runtime.user_ids import machine_uid, mapped_ids

needs_somebody = pytest.mark.skipif(bool(somebody.problem()), reason=somebody.problem())
IN_IT = [sys.executable, "-m", "training_runtime.host.rootless"]
SAYS_WHO_IT_IS = [sys.executable, "-c", "import os; from training_runtime.user_ids import machine_uid; print(os.getuid(), machine_uid())"]


@pytest.mark.parametrize(
    ("said", "marked", "moves"), [("", False, False), ("", True, True), ("0", False, False), ("1", False, True), ("1", True, True)]
)
def test_a_program_moves_where_it_is_told_to_and_where_the_home_has_files_of_such_users(said: str, marked: bool, moves: bool) -> None:
    assert rootless.should_move(said, marked=marked) is moves


@pytest.mark.parametrize(("said", "marked", "why"), [("0", True, "chown -R 0:0"), ("yes", False, "EDT_ROOTLESS='yes'")])
def test_what_cannot_be_gets_a_sentence(said: str, marked: bool, why: str) -> None:
    with pytest.raises(RootlessUnavailable, match=re.escape(why)):
        rootless.should_move(said, marked=marked)


def test_the_longest_range_that_somebody_has_is_taken_whatever_else_stands_in_the_table() -> None:
    table = "alice:100000:65536\nbob:165536:65536\n# a word\nalice:x:3\n\n1000:300000:70000\n"
    assert rootless.range_for(table, names=("alice", "1000")) == (300_000, 70_000)
    assert rootless.range_for(table, names=("alice",)) == (100_000, 65_536)
    assert rootless.range_for(table, names=("charlie",)) is None


def test_the_users_of_runs_are_among_the_ids_that_there_are(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    assert settings.uid_base(tmp_path, ids=65_537) == rootless.UID_BASE
    assert settings.uid_base(tmp_path, ids=1 << 32) >= settings.FIRST_BASE
    assert rootless.UID_BASE + 50_000 <= rootless.NEEDED
    assert mapped_ids() >= 1
    assert machine_uid() == os.getuid() or mapped_ids() < settings.FIRST_BASE


@pytest.fixture
def folder() -> Iterator[Path]:
    """That everybody can reach, which a test's own is not."""
    with tempfile.TemporaryDirectory(prefix="edt-somebody-", ignore_cleanup_errors=True) as name:
        yield Path(name)


def _as_somebody(folder: Path, command: list[str], *, first: int | None = None) -> subprocess.CompletedProcess[str]:
    ids = 100_000_000 + os.getpid() % 1000 * 100_000 if first is None else first
    before = somebody.commands_as_somebody(folder, first=ids)
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "EDT_HOME": str(folder / "home" / "edt")}
    return subprocess.run([*before, *command], cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False)


@needs_somebody
def test_who_is_root_there_is_the_same_user_to_the_machine(folder: Path) -> None:
    done = _as_somebody(folder, [*IN_IT, *SAYS_WHO_IT_IS])
    assert done.stdout.split() == ["0", str(somebody.USER)], done.stderr


@needs_somebody
def test_somebody_without_a_range_is_told_what_an_administrator_does(folder: Path) -> None:
    done = _as_somebody(folder, [*IN_IT, "true"], first=0)
    assert done.returncode != 0
    assert f"usermod --add-subuids 100000-165535 {somebody.NAME}" in done.stderr
    studio = _as_somebody(folder, ["env", "EDT_ROOTLESS=1", sys.executable, "manage.py", "prepare"], first=0)
    assert studio.returncode == 2
    assert studio.stderr.count("\n") == 1, studio.stderr
    assert "usermod" in studio.stderr


@needs_somebody
@pytest.mark.timeout(300)
def test_the_box_of_a_run_is_as_strong_as_roots(folder: Path) -> None:
    """The tests of root's box, run by somebody without a right: with users of their own for runs, and not one of them left out for that."""
    files = ["test_box_files.py", "test_box_root.py", "test_box_processes.py"]
    pytest_there = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--basetemp={folder}/home/tests"]
    chosen = ["-k", "not landlock and (counts or not (one and user))", *(f"tests/host/{name}" for name in files)]
    done = _as_somebody(folder, [*IN_IT, *pytest_there, *chosen])
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    (passed,) = re.findall(r"(\d+) passed", done.stdout)
    assert int(passed) > 30, done.stdout
    assert "only root" not in done.stdout, done.stdout
