"""The studio's own processes, as it keeps them."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import psutil
import pytest

from tests.disk import small_disk
from webapp.studio import log
from webapp.studio.processes import Child, Program


def test_a_process_that_cannot_be_written_down_is_ended(tmp_path: Path) -> None:
    """On a full disk its note would be empty, and the next studio would start another beside it."""
    (tmp_path / "log").mkdir()
    with small_disk(tmp_path / "run", 1 << 20) as disk:
        program = Program("host", (sys.executable, "-c", "import signal; signal.pause()"), {}, tmp_path, tied=False)
        child = Child(program, tmp_path)
        before = psutil.Process().children()
        disk.fill()
        try:
            with pytest.raises(OSError, match="No space left"):
                child.start()
            assert not child.alive()
            assert psutil.Process().children() == before
            disk.make_room()
            child.start()
            assert Child(program, tmp_path).take_over(), "a later studio finds it"
        finally:
            if child.popen is not None:
                child.kill()
                child.popen.wait()


def test_one_that_ends_with_the_studio_starts_on_a_full_disk_too_and_the_studio_goes_on_saying_what_it_does(tmp_path: Path) -> None:
    with small_disk(tmp_path / "home", 1 << 20) as disk:
        (disk.folder / "log").mkdir()
        (disk.folder / "run").mkdir()
        (disk.folder / "log" / "studio.log").write_bytes(b"x" * 100)
        child = Child(Program("web", (sys.executable, "-c", "import signal; signal.pause()"), {}, tmp_path), disk.folder)
        out = io.StringIO()
        disk.fill()
        (disk.folder / "log" / "web.log").touch()
        try:
            child.start()
            assert child.alive()
            log.Terminal(disk.folder, (), out=out).say("web has ended unexpectedly")
            assert "web has ended unexpectedly" in out.getvalue()
            assert not log.rotate(disk.folder / "log" / "studio.log", limit_bytes=10)
            assert (disk.folder / "log" / "studio.log").stat().st_size >= 100
        finally:
            child.kill()
            if child.popen is not None:
                child.popen.wait()
