"""The folder of a run, as the studio touches it: user code writes there, so no link is ever followed and only regular files are opened.

It has a name of its own (`TrainingRun.folder`), not the run's number: a database that is put back from a copy gives numbers out again.

Every path is walked one part at a time from the run's folder (openat, O_NOFOLLOW): a folder that becomes a link in between leads nowhere.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from django.conf import settings

from experiments.models import TrainingRun

HIGHEST = ".highest"  # the highest number of a run that has had a folder, beside the folders
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


def folder(run: TrainingRun) -> Path:
    return _runs() / run.folder


def folder_of(number: int) -> Path | None:
    """The folder of the run with this number; None where there is no such run."""
    name = TrainingRun.objects.filter(pk=number).values_list("folder", flat=True).first()
    return _runs() / name if name is not None else None


def make(run: TrainingRun) -> Path:
    """The run's folder, made if it is not there. The host gives it to the user that the run is boxed as."""
    path = folder(run)
    if not path.is_dir():
        _remember(run.pk)
        path.mkdir(parents=True, exist_ok=True)
    return path


def highest_number() -> int:
    """The highest number of a run that has had a folder here; 0 where none has."""
    try:
        return int((_runs() / HIGHEST).read_text() or 0)
    except FileNotFoundError:
        return 0


def _remember(number: int) -> None:
    """A database that is put back from a copy would give numbers out again, and with them the users of this machine that runs are boxed as
    (see prepare.database)."""
    with os.fdopen(os.open(_runs() / HIGHEST, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644), "r+b", buffering=0) as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # two agents at once: the higher number stays
        if number > int(file.read() or 0):
            file.seek(0)
            file.write(str(number).encode())  # one write, and never shorter than what was there


def _runs() -> Path:
    path: Path = settings.EDT_HOME / "runs"
    return path


def open_regular(run: TrainingRun, path: str) -> int:
    """A file descriptor for reading. Raises FileNotFoundError for all that is not a regular file reached without a link, and for what is
    the engine's own."""
    if _ENGINES.fullmatch(path):
        raise FileNotFoundError(path)
    return open_below(folder(run), path)


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


def walk(run: TrainingRun, *, limit: int) -> Iterator[Found]:
    """Regular files below the run's folder, folder by folder in order, at most `limit`; not its tmp/, nor what is the engine's own."""
    left = limit
    top = str(folder(run))
    if not folder(run).is_dir():
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


def read(run: TrainingRun, path: str, *, begin: int, limit_bytes: int) -> tuple[bytes, int]:
    """(bytes from `begin` on, the file's size); nothing and 0 where there is no such file."""
    try:
        handle = open_regular(run, path)
    except FileNotFoundError:
        return b"", 0
    with os.fdopen(handle, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        file.seek(min(begin, size))
        return file.read(limit_bytes), size


def log_names(run: TrainingRun) -> list[str]:
    """Names of the folders below log/ that hold a console.log: "driver" first, then stations by machine, then the workers by number."""
    names = []
    for name in _names(run, "log"):
        with contextlib.suppress(FileNotFoundError):
            os.close(open_regular(run, f"log/{name}/console.log"))
            names.append(name)
    return sorted(names, key=lambda name: (name != "driver", not name.startswith("station-"), len(name), name))[:MOST_LOGS]


def _names(run: TrainingRun, below: str) -> list[str]:
    with contextlib.ExitStack() as cleanup:
        try:
            at = os.open(folder(run), _FOLDER)
            cleanup.callback(os.close, at)
            at = os.open(below, _FOLDER, dir_fd=at)
            cleanup.callback(os.close, at)
            return [entry.name for entry in itertools.islice(os.scandir(at), 10 * MOST_LOGS) if _LOG_NAME.match(entry.name)]
        except OSError:
            return []
