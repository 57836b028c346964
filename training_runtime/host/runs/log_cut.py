"""Keeps each log of a run to a size: its beginning and what was written last stay, and a line between them says how much was left out.

Whoever writes a log has it open to append, and knows nothing of this: what it writes goes on at the end. So what is kept is moved towards
the front and the rest is cut off, as logrotate's `copytruncate` does. What is written in the moment between is lost, some lines of a log
that has hundreds of thousands.

User code owns the folder. Only plain files of the folder's own user, with one name, under the names that this runtime gives to logs are
touched, and no link is followed.
"""

from __future__ import annotations

import contextlib
import os
import stat

FOLDER, NAME = "log", "console.log"
HEAD = 1 << 20
_PIECE = 1 << 20
_MOST_LOGS = 1000
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE_FLAGS = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def cut(top: int, most: int) -> int:
    """Has no log in this run's folder larger than `most` bytes, at least 4 MiB; how many were cut. What cannot be looked at is left."""
    owner, done = os.fstat(top).st_uid, 0
    with contextlib.suppress(OSError):
        logs = os.open(FOLDER, _FOLDER_FLAGS, dir_fd=top)
        try:
            with os.scandir(logs) as entries:
                names = [entry.name for entry, _ in zip(entries, range(_MOST_LOGS), strict=False)]
            for name in names:
                with contextlib.suppress(OSError):
                    done += _in_folder(logs, name, most, owner)
        finally:
            os.close(logs)
    return done


def _in_folder(logs: int, name: str, most: int, owner: int) -> bool:
    folder = os.open(name, _FOLDER_FLAGS, dir_fd=logs)
    try:
        file = os.open(NAME, _FILE_FLAGS, dir_fd=folder)
    finally:
        os.close(folder)
    try:
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1 or found.st_uid != owner or found.st_size <= most:
            return False
        _shorten(file, found.st_size, most)
        return True
    finally:
        os.close(file)


def _shorten(file: int, size: int, most: int) -> None:
    """To a half, so that it is seldom: the first MiB, the sentence, and whole lines of the end."""
    head = _end_of_line(file, HEAD, most)
    begin = _end_of_line(file, size - most // 2, size)
    said = sentence(begin - head, most).encode()
    os.pwrite(file, said, head)
    at, source = head + len(said), begin
    while piece := os.pread(file, _PIECE, source):  # to its end, wherever that is by now
        at += os.pwrite(file, piece, at)
        source += len(piece)
    os.ftruncate(file, at)


def _end_of_line(file: int, at: int, most: int) -> int:
    """The first byte after the line that `at` is in; `at` itself where the line is too long to look for."""
    piece = os.pread(file, min(_PIECE, most - at), at)
    return at + piece.index(b"\n") + 1 if b"\n" in piece else at


def sentence(left_out: int, most: int) -> str:
    """For whoever reads the log."""
    return (
        f"\n[EDT Studio: {left_out / (1 << 20):.0f} MiB were left out here. A log keeps its beginning and what was written last, "
        f"{most / (1 << 20):.0f} MiB at most (EDT_RUN_LOG).]\n"
    )
