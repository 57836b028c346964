"""The studio's own processes, as it keeps them."""

from __future__ import annotations

import sys
from pathlib import Path

import psutil
import pytest

from tests.disk import small_disk
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
