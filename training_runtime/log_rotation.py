"""Keeps a log that a process appends to from growing without end, and needs nothing from that process: a file over the limit is copied to
NAME.log.1 and cut to nothing, after which its writer goes on at the start. A line written between the copy and the cut is lost.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

LIMIT_BYTES = 16 << 20


def rotate(path: Path, *, limit_bytes: int = LIMIT_BYTES) -> bool:
    """Whether it was; a disk without room for the copy lets it grow."""
    if path.stat().st_size <= limit_bytes:
        return False
    older = path.with_suffix(".log.1")
    try:
        shutil.copyfile(path, older)
    except OSError:
        older.unlink(missing_ok=True)
        return False
    os.truncate(path, 0)
    return True
