"""Folders that a box writes to: given to its user, measured, and taken back. Nothing in them is believed, no link is followed."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path


def give(folder: Path, uid: int) -> None:
    for _, folders, files, fd in os.fwalk(folder):
        for name in (*folders, *files):
            os.chown(name, uid, uid, dir_fd=fd, follow_symlinks=False)
    os.chown(folder, uid, uid)


def make_read_only(folder: Path, *, chown: bool) -> int:
    """Everybody can read the folder and all in it, and only the owner write there: this process' user, or with `chown` false who has made
    it; its size in bytes. Links lead nowhere."""
    size = 0
    own = os.geteuid()
    for _, folders, files, fd in os.fwalk(folder, follow_symlinks=False):
        for name in (*folders, *files):
            seen = os.stat(name, dir_fd=fd, follow_symlinks=False)
            if chown and seen.st_uid != own:
                os.chown(name, own, os.getegid(), dir_fd=fd, follow_symlinks=False)
            if stat.S_ISLNK(seen.st_mode):
                continue
            if not (stat.S_ISREG(seen.st_mode) or stat.S_ISDIR(seen.st_mode)):
                os.unlink(name, dir_fd=fd)
                continue
            readable = 0o555 if stat.S_ISDIR(seen.st_mode) or seen.st_mode & 0o111 else 0o444
            os.chmod(name, readable | 0o200, dir_fd=fd)
            size += seen.st_size if stat.S_ISREG(seen.st_mode) else 0
    os.chown(folder, own, os.getegid())
    folder.chmod(0o755)
    return size


def size(folder: Path) -> int:
    """Of the plain files below it, links not followed; what vanishes meanwhile does not count."""
    size, waiting = 0, [str(folder)]
    while waiting:
        with contextlib.suppress(OSError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    else:
                        size += entry.stat(follow_symlinks=False).st_size
    return size
