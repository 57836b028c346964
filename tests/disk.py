"""A disk that can be filled: a small file system of its own, for tests of what happens where there is no room."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


class SmallDisk:
    """Mounted at `folder`. `fill` takes all that is left, `make_room` gives it back."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._filler = folder / "somebody-elses-file"

    def fill(self, *, but: int = 0) -> None:
        """`but`: bytes that stay free."""
        block = b"\0" * 4096
        with open(self._filler, "ab", buffering=0) as file:
            try:
                while self.free() > but:
                    file.write(block)
            except OSError as error:
                assert error.errno == errno.ENOSPC

    def make_room(self) -> None:
        self._filler.unlink()

    def free(self) -> int:
        found = os.statvfs(self.folder)
        return found.f_bavail * found.f_frsize


@contextmanager
def small_disk(folder: Path, size_bytes: int) -> Iterator[SmallDisk]:
    """Skips the test where this machine does not let us mount one."""
    folder.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size_bytes},mode=755", "edt-test", str(folder)], capture_output=True, text=True
    )
    if done.returncode:
        pytest.skip(f"no file system can be mounted here: {done.stderr.strip()}")
    try:
        yield SmallDisk(folder)
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
