"""Whether runs can write on this machine. What to make of it is decided by pure functions; `FreeSpaceWatch` looks, and keeps a reserve.

The reserve is a file that takes up room while there is plenty. It is deleted when there is none, so that the database, the broker, the
journals and the state of runs that are being suspended still find some.
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from training_runtime import storage

log = logging.getLogger(__name__)
LOOK_S = 1.0
_MIB = 1 << 20
_FEW_FILES = 1000
GIVEN_UP = 8  # that part of the reserve is free when it is given up


@dataclass(frozen=True)
class Marks:
    """Settings of an administrator, in bytes. Below `low` runs are suspended and none begins, from `enough` on they go on. `reserve`: the
    size of that file, 0 for none."""

    low: int = storage.LOW_BYTES
    enough: int = 2 * storage.LOW_BYTES
    reserve: int = 64 * _MIB


@dataclass(frozen=True)
class FreeSpace:
    """What was found. `problem`: why nothing can be written at all, however much is free."""

    free_bytes: int
    problem: str = ""


def judge(space: FreeSpace, marks: Marks, *, full_before: bool) -> bool:
    """Whether the disk counts as full. It does until there is clearly more room than when it began to."""
    return space.free_bytes < (marks.enough if full_before else marks.low)


def reserve(space: FreeSpace, marks: Marks, *, there: bool) -> Literal["take", "give"] | None:
    """What to do about the reserve. It is taken only where that leaves enough, and given up when next to nothing is left: before, whoever
    fills the disk would fill it too."""
    if there:
        return "give" if space.free_bytes < marks.reserve // GIVEN_UP else None
    return "take" if marks.reserve and not space.problem and space.free_bytes >= marks.enough + marks.reserve else None


def sentence(space: FreeSpace, marks: Marks, *, full: bool, node: str) -> str:
    """For people, on the pages of the node and of its runs; empty where all is well. The size is rounded up to a power of two, so that the
    words do not change with every byte."""
    if space.problem:
        return f"Nothing can be written on node {node}: {space.problem}. Runs wait there and go on by themselves when that is mended."
    if not full:
        return ""
    below = 1 << (space.free_bytes // _MIB).bit_length()
    wanted = -(-marks.enough // _MIB)
    return f"The disk of node {node} is full: less than {below} MiB free. Runs wait there and go on by themselves when {wanted} MiB are."


class FreeSpaceWatch:
    """Of the disk that the folder `runs` is on. `problem`: see `sentence`; `due`: when to look again."""

    def __init__(self, runs: Path, reserve_file: Path, marks: Marks, *, node: str) -> None:
        self._runs, self._file, self._marks, self._node = runs, reserve_file, marks, node
        self._full = False
        self.problem = ""
        self.due = 0.0

    def look(self, now: float, *, unsaved: str = "") -> bool:
        """Whether `problem` has changed. `unsaved`: what the host itself could not write, and why."""
        self.due = now + LOOK_S
        space, before = self._measure(unsaved), self.problem
        self._full = judge(space, self._marks, full_before=self._full)
        if self._full and space.problem == unsaved:
            space = FreeSpace(space.free_bytes)  # that is why, and says more of what to do
        self.problem = sentence(space, self._marks, full=self._full, node=self._node)
        self._keep_reserve(space)
        if self.problem != before:
            log.warning("%s free_bytes=%d", self.problem or "There is room on the disk again.", space.free_bytes)
        return self.problem != before

    def _measure(self, unsaved: str) -> FreeSpace:
        folder = self._runs if self._runs.is_dir() else self._runs.parent  # none was made yet
        try:
            found = os.statvfs(folder)
        except OSError as error:
            return FreeSpace(0, f"{folder}: {error.strerror}")
        free = found.f_bavail * found.f_frsize
        if found.f_files and found.f_favail < _FEW_FILES:
            return FreeSpace(free, f"the file system of {folder} has no room for more files")
        if not os.access(folder, os.W_OK | os.X_OK):
            return FreeSpace(free, f"the folder {folder} is read-only")
        return FreeSpace(free, unsaved)

    def _keep_reserve(self, space: FreeSpace) -> None:
        wish = reserve(space, self._marks, there=self._file.exists())
        try:
            if wish == "give":
                self._file.unlink()
                log.warning("the reserve is given up bytes=%d", self._marks.reserve)
            elif wish == "take":
                with open(self._file, "wb") as file:
                    os.posix_fallocate(file.fileno(), 0, self._marks.reserve)
        except OSError as error:
            log.warning("there is no reserve on the disk: %s", error)
            self._file.unlink(missing_ok=True)
