"""Deletes folders that user code wrote, however deep and however full. No link is ever followed.

Nothing here recurses, and no folder is opened but the top one and those directly below it: a folder found deeper is first moved up to the
top. So depth costs nothing, and a removal that was cut off goes on when it is called again.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import uuid
from pathlib import Path

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_PLACE = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove(path: Path, *, most: int | None = None) -> bool:
    """Delete a file, a link (not what it points to) or a folder with all that is in it; whether nothing is left.

    At most about `most` entries are deleted: then it returns False, and the caller goes on when it likes. What is not there is gone. Two
    callers at once do no harm. Raises OSError for what cannot be deleted.
    """
    try:
        parent = os.open(path.parent, _FOLDER)
    except FileNotFoundError:
        return True
    try:
        if not _is_folder(path.name, parent):
            _unlink(path.name, parent)
            return True
        return _remove_folder(path.name, parent, most=most)
    finally:
        os.close(parent)


def _remove_folder(name: str, parent: int, *, most: int | None) -> bool:
    try:
        top = _open(name, parent)
    except FileNotFoundError:
        return True
    try:
        done = 0
        while most is None or done < most:
            removed = _empty_some(top, most=None if most is None else most - done)
            done += removed
            if not removed:
                break
    finally:
        os.close(top)
    return _rmdir(name, parent)


def _empty_some(top: int, *, most: int | None) -> int:
    """One pass over what is directly in the folder: files go, folders are taken apart; how many entries were touched."""
    done = 0
    with os.scandir(top) as entries:
        for entry in entries:
            if most is not None and done >= most:
                break
            if entry.is_dir(follow_symlinks=False):
                done += 1 + _take_apart(entry.name, top, most=None if most is None else most - done)
            else:
                _unlink(entry.name, top)
                done += 1
    return done


def _take_apart(name: str, top: int, *, most: int | None) -> int:
    """Delete the files of a folder, move its folders up beside it, and delete it when it is empty."""
    try:
        inner = _open(name, top)
    except FileNotFoundError:
        return 0
    done = 0
    try:
        with os.scandir(inner) as entries:
            for entry in entries:
                if most is not None and done >= most:
                    break
                if entry.is_dir(follow_symlinks=False):
                    _move_up(entry.name, inner, top)
                else:
                    _unlink(entry.name, inner)
                done += 1
    finally:
        os.close(inner)
    _rmdir(name, top)
    return done


def _move_up(name: str, inner: int, top: int) -> None:
    fresh = uuid.uuid4().hex
    with contextlib.suppress(FileNotFoundError):
        try:
            os.rename(name, fresh, src_dir_fd=inner, dst_dir_fd=top)
        except PermissionError:  # moving a folder changes its "..", so it must be writable itself
            _open_to_us(name, inner)
            os.rename(name, fresh, src_dir_fd=inner, dst_dir_fd=top)


def _open(name: str, at: int) -> int:
    """A descriptor of a folder that can be listed and changed, whatever rights its owner has left on it."""
    try:
        found = os.open(name, _FOLDER, dir_fd=at)
    except PermissionError:
        _open_to_us(name, at)
        found = os.open(name, _FOLDER, dir_fd=at)
    facts = os.fstat(found)
    if facts.st_uid == os.geteuid() and facts.st_mode & stat.S_IRWXU != stat.S_IRWXU:
        os.fchmod(found, stat.S_IRWXU)
    return found


def _open_to_us(name: str, at: int) -> None:
    place = os.open(name, _PLACE, dir_fd=at)
    try:
        Path(f"/proc/self/fd/{place}").chmod(stat.S_IRWXU)
    finally:
        os.close(place)


def _is_folder(name: str, at: int) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return stat.S_ISDIR(os.stat(name, dir_fd=at, follow_symlinks=False).st_mode)
    return False


def _unlink(name: str, at: int) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name, dir_fd=at)


def _rmdir(name: str, at: int) -> bool:
    """Whether it is gone; not where something is in it."""
    try:
        os.rmdir(name, dir_fd=at)
    except FileNotFoundError:
        return True
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        return False
    return True
