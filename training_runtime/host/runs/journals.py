"""What the host reads in a run's journal, which user code may have replaced by anything: as little as possible, and without waiting."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from training_runtime import journal
from training_runtime.errors import JournalError

_PART_BYTES = 1 << 18


def journal_size(result_dir: str) -> int:
    """The journal's size in bytes; 0 where there is none or where user code has put something else in its place."""
    try:
        found = Path(result_dir, journal.FILE_NAME).lstat()
    except OSError:
        return 0
    return found.st_size if stat.S_ISREG(found.st_mode) else 0


def outcome_in_journal(result_dir: str, start: int) -> int | None:
    """How an attempt ended according to its journal from byte `start` on: 0, 1, or None where it does not say.

    Asked where nobody was left to be told the driver's exit code. Reads the end of the file only.
    """
    ends = [
        event for event in _events(result_dir, max(start, journal_size(result_dir) - _PART_BYTES)) if isinstance(event, journal.Finished)
    ]
    return int(ends[-1].outcome == "failed") if ends else None


def has_trained(result_dir: str, start: int) -> bool:
    """Whether an attempt, whose part of the journal begins at byte `start`, has done a step. Steps that are done again are not in it."""
    return any(isinstance(event, journal.Train) for event in _events(result_dir, start))


def _events(result_dir: str, offset: int) -> Iterator[journal.Event]:
    """Those of the lines that can be read, in the part of the file that begins here."""
    try:
        fd = os.open(Path(result_dir, journal.FILE_NAME), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return
        lines = os.pread(fd, _PART_BYTES, offset).splitlines()
    finally:
        os.close(fd)
    for raw in lines:
        try:
            yield journal.parse(raw).event
        except JournalError:
            continue
