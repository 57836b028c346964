"""Reads on in files of a script that grow. Whatever lies there, nothing is raised and nothing waits."""

from __future__ import annotations

import os
import stat
from pathlib import Path


def read_piece(path: Path, offset: int, *, most: int) -> bytes:
    """What the file has at `offset`, at most so many bytes; nothing of what is no regular file, or a link."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except (OSError, ValueError):
        return b""
    try:
        facts = os.fstat(fd)
        if not stat.S_ISREG(facts.st_mode) or facts.st_size <= offset:
            return b""
        return os.pread(fd, most, offset)
    except OSError:
        return b""
    finally:
        os.close(fd)
