"""The folder of a run, as the studio touches it: user code writes there, so no link is ever followed and only regular files are opened.

Every path is walked one part at a time from the run's folder (openat, O_NOFOLLOW): a folder that becomes a link in between leads nowhere.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import shutil
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from django.conf import settings

DRIVER_LOG = "log/driver/console.log"
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # not blocking: a pipe without a writer would hold the reader for ever
MAX_DEPTH = 32
MOST_LOGS = 1000
_ENGINES = re.compile(r"checkpoint/\.[^/]*")  # its lock, half-written files, and by what the run's machines know each other: a secret
_LOG_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")


@dataclass(frozen=True)
class Found:
    """A regular file: its path below the run's folder, its size and when it was last written (Unix seconds)."""

    path: str
    size_bytes: int
    modified: float


def folder(run_id: int) -> Path:
    path: Path = settings.EDT_HOME / "runs" / str(run_id)
    return path


def make(run_id: int) -> Path:
    """The run's folder, made if it is not there. The host gives it to the user that the run is boxed as."""
    path = folder(run_id)
    path.mkdir(parents=True, exist_ok=True)
    return path


def remove(run_id: int) -> None:
    """Delete the folder with all that is in it, links themselves and not what they point to."""
    assert shutil.rmtree.avoids_symlink_attacks, "this platform cannot delete a folder that user code wrote"
    shutil.rmtree(folder(run_id), ignore_errors=True)


def remove_all(runs: Iterable[int]) -> None:
    for run_id in runs:
        remove(run_id)


def open_regular(run_id: int, path: str) -> int:
    """A file descriptor for reading. Raises FileNotFoundError for all that is not a regular file reached without a link, and for what is
    the engine's own."""
    if _ENGINES.fullmatch(path):
        raise FileNotFoundError(path)
    return open_below(folder(run_id), path)


def open_folder(top: Path, path: str) -> int:
    """A file descriptor of a folder below `top` ("" for that itself), reached without a link. Raises FileNotFoundError for all else."""
    parts = path.split("/") if path else []
    if len(parts) > MAX_DEPTH or "\0" in path or any(part in ("", ".", "..") for part in parts):
        raise FileNotFoundError(path)
    with contextlib.ExitStack() as cleanup:
        try:
            at = os.open(top, _FOLDER)
            for part in parts:
                cleanup.callback(os.close, at)
                at = os.open(part, _FOLDER, dir_fd=at)
        except OSError:
            raise FileNotFoundError(path) from None
        return at


def open_below(top: Path, path: str) -> int:
    """A regular file below any folder of ours, as `open_regular`."""
    parts = path.split("/")
    if not path or len(parts) > MAX_DEPTH or "\0" in path or any(part in ("", ".", "..") for part in parts):
        raise FileNotFoundError(path)
    with contextlib.ExitStack() as cleanup:
        try:
            at = os.open(top, _FOLDER)
            cleanup.callback(os.close, at)
            for part in parts[:-1]:
                at = os.open(part, _FOLDER, dir_fd=at)
                cleanup.callback(os.close, at)
            found = os.open(parts[-1], _FILE, dir_fd=at)
        except OSError:
            raise FileNotFoundError(path) from None
    if not stat.S_ISREG(os.fstat(found).st_mode):
        os.close(found)
        raise FileNotFoundError(path)
    return found


def walk(run_id: int, *, limit: int) -> Iterator[Found]:
    """Regular files below the run's folder, folder by folder in order, at most `limit`; not its tmp/, nor what is the engine's own."""
    left = limit
    top = str(folder(run_id))
    if not folder(run_id).is_dir():
        return
    for root, folders, names, at in os.fwalk(top, follow_symlinks=False):
        below = root[len(top) :].strip("/")
        folders[:] = sorted(name for name in folders if below or name != "tmp") if below.count("/") < MAX_DEPTH - 2 else []
        for name in sorted(each for each in names if not _ENGINES.fullmatch(f"{below}/{each}")):
            with contextlib.suppress(OSError, UnicodeEncodeError):  # gone in between, or not a name that can be shown
                facts = os.stat(name, dir_fd=at, follow_symlinks=False)
                name.encode()
                if stat.S_ISREG(facts.st_mode):
                    yield Found(f"{below}/{name}" if below else name, facts.st_size, facts.st_mtime)
                    left -= 1
            if left <= 0:
                return


def read(run_id: int, path: str, *, begin: int, limit_bytes: int) -> tuple[bytes, int]:
    """(bytes from `begin` on, the file's size); nothing and 0 where there is no such file."""
    try:
        handle = open_regular(run_id, path)
    except FileNotFoundError:
        return b"", 0
    with os.fdopen(handle, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        file.seek(min(begin, size))
        return file.read(limit_bytes), size


def log_names(run_id: int) -> list[str]:
    """Names of the folders below log/ that hold a console.log: "driver" first, then stations by machine, then the workers by number."""
    names = []
    for name in _names(run_id, "log"):
        with contextlib.suppress(FileNotFoundError):
            os.close(open_regular(run_id, f"log/{name}/console.log"))
            names.append(name)
    return sorted(names, key=lambda name: (name != "driver", not name.startswith("station-"), len(name), name))[:MOST_LOGS]


def _names(run_id: int, below: str) -> list[str]:
    with contextlib.ExitStack() as cleanup:
        try:
            at = os.open(folder(run_id), _FOLDER)
            cleanup.callback(os.close, at)
            at = os.open(below, _FOLDER, dir_fd=at)
            cleanup.callback(os.close, at)
            return [entry.name for entry in itertools.islice(os.scandir(at), 10 * MOST_LOGS) if _LOG_NAME.match(entry.name)]
        except OSError:
            return []
