"""A run's working folder: its own copy of its code, which its script may write to and beside. The stored code is many runs' and stays as it
was uploaded.

A copy and no hard links: what is written to a linked file would be written to the stored one, and to those of all other runs. Where the
file system can (btrfs, xfs) files share their blocks until one is written to; elsewhere a large file, which is data more likely than code,
is a link that is read through. Copies bear a time of their own, by which listings tell them from what the script has written.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from training_runtime import notebooks
from training_runtime.protocol import UNCHANGED_CODE_NS

LARGE_BYTES = 8 << 20
CONFIG = "config.json"
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_FICLONE = 0x40049409  # linux/fs.h
_CANNOT = (errno.EOPNOTSUPP, errno.ENOTTY, errno.EINVAL, errno.EXDEV, errno.EPERM, errno.ENOSYS)


def make(code: Path, folder: Path) -> None:
    """`folder` is a working folder with the code in it; what an earlier attempt has left there stays. Of one on another machine only what
    its script has written is there, and the code is added. Raises OSError."""
    beside = folder.with_name(f".{folder.name}.{os.getpid()}.{time.monotonic_ns()}")
    if folder.is_dir() and not folder.is_symlink():
        if not _has_code(code, folder):
            try:
                _copy(code, beside)
                _add_missing(beside, folder)
            finally:
                shutil.rmtree(beside, ignore_errors=True)
        return
    try:
        _copy(code, beside)
    except BaseException:  # a full disk
        shutil.rmtree(beside, ignore_errors=True)
        raise
    if folder.is_symlink():  # of a run that was begun by an earlier version
        folder.unlink()
    try:
        beside.rename(folder)
    except OSError:  # the run's driver and its remote agents on other machines make it at once: whoever is first has
        if not folder.is_dir():
            raise
        shutil.rmtree(beside, ignore_errors=True)


def write_config(text: str, folder: Path) -> None:
    """`text` as the working folder's config.json, in the place of one that came with the code. Raises OSError."""
    _write(text, folder / CONFIG)


def write_script(notebook: str, code: Path, folder: Path) -> None:
    """Of a notebook of the code, beside it in the working folder, unless the code has a script of that name; of one that is no notebook, a
    script that says so. Raises OSError."""
    if (code / notebooks.script_name(notebook)).is_file():
        return
    try:
        text = notebooks.script_of((code / notebook).read_bytes(), name=notebook)
    except notebooks.NotANotebook as refused:
        text = f"raise SystemExit({str(refused)!r})\n"
    _write(text, folder / notebooks.script_name(notebook), modified_ns=UNCHANGED_CODE_NS)


def _write(text: str, path: Path, *, modified_ns: int | None = None) -> None:
    beside = path.with_name(f".{path.name}.{os.getpid()}.{time.monotonic_ns()}")
    try:
        with os.fdopen(os.open(beside, _NEW, 0o644), "w", encoding="utf-8") as file:
            file.write(text)
        if modified_ns is not None:
            os.utime(beside, ns=(modified_ns, modified_ns))
        beside.replace(path)  # what reads it meanwhile, on another machine, has the one or the other, and both say the same
    except OSError:
        beside.unlink(missing_ok=True)
        raise


def _has_code(code: Path, folder: Path) -> bool:
    """Whether the last file that is added is there as it was uploaded. Where the script has changed it, what is missing is looked for
    again."""
    last = max(_files(code), default="")
    try:
        facts = (folder / last).lstat()
    except OSError:
        return False
    return not last or facts.st_mtime_ns == UNCHANGED_CODE_NS or stat.S_ISLNK(facts.st_mode)


def _add_missing(copy: Path, folder: Path) -> None:
    """Move what is in the copy of the code and not in the folder, in the order of the names; what the script has put in its place stays."""
    for name in sorted(_files(copy)):
        target = folder / name
        with contextlib.suppress(FileExistsError, NotADirectoryError):  # a file is where a folder was
            target.parent.mkdir(parents=True, exist_ok=True)
            if not os.path.lexists(target):
                (copy / name).rename(target)


def _files(top: Path) -> Iterator[str]:
    """The paths below it of all that is no folder."""
    for path, _, names in os.walk(top):
        for name in names:
            yield os.path.relpath(Path(path, name), top)


def _copy(code: Path, folder: Path) -> None:
    shares = True
    folder.mkdir()
    pending = [(code, folder)]
    while pending:
        source, target = pending.pop()
        with os.scandir(source) as entries:
            for entry in entries:
                path = target / entry.name
                if entry.is_dir(follow_symlinks=False):
                    path.mkdir()
                    pending.append((Path(entry.path), path))
                elif entry.is_file(follow_symlinks=False):
                    shares = _copy_file(entry, path, shares=shares)


def _copy_file(entry: os.DirEntry[str], path: Path, *, shares: bool) -> bool:
    """Whether the file system shares blocks, as far as is known after it."""
    if shares:
        shares = _share(entry.path, path)
    if not shares:
        if entry.stat(follow_symlinks=False).st_size > LARGE_BYTES:
            path.unlink(missing_ok=True)
            path.symlink_to(entry.path)
            return False
        shutil.copyfile(entry.path, path)
    os.utime(path, ns=(UNCHANGED_CODE_NS, UNCHANGED_CODE_NS))
    return shares


def _share(source: str, path: Path) -> bool:
    with open(source, "rb") as file, open(path, "wb") as copy:
        try:
            fcntl.ioctl(copy.fileno(), _FICLONE, file.fileno())
        except OSError as error:
            if error.errno in _CANNOT:
                return False
            raise
    return True
