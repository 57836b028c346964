"""The folder of a run, as the studio touches it: user code writes there, so no link is ever followed and only regular files are opened.

It has a name of its own (`TrainingRun.folder`), not the run's number: a database that is put back from a copy gives numbers out again.

Every path is walked one part at a time from the run's folder (openat, O_NOFOLLOW): a folder that becomes a link in between leads nowhere.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import io
import itertools
import os
import re
import stat
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from django.conf import settings

from experiments.files import stores
from experiments.files.store import copies
from experiments.models import Tombstone, TrainingRun
from training_runtime.protocol import UNCHANGED_CODE_NS

HIGHEST = ".highest"  # the highest number of a run that has had a folder, beside the folders
CODE = "_submitted_code"  # with the working folder in it
DRIVER_LOG = "log/driver/console.log"
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # not blocking: a pipe without a writer would hold the reader for ever
NO_FILE = (errno.ENOTDIR, errno.ELOOP, errno.ENXIO)  # of a file, a link or a pipe in the place of a folder or a file
MAX_DEPTH = 32
MOST_LOGS = 1000
MOST_LOOKED = 10_000  # entries of folders that a listing looks at
_UNNAMEABLE = re.compile(r"[\x00-\x1f\x7f\x85\u2028\u2029\ud800-\udfff]")  # line breaks, control characters, bytes that are no text
_ENGINES = re.compile(r"checkpoint/\.[^/]*")  # its lock, half-written files, and by what the run's machines know each other: a secret
_LOG_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")


@dataclass(frozen=True)
class FoundFile:
    """A regular file: its path below the run's folder, its size, and when it was last written and changed in any way (nanoseconds of Unix
    time)."""

    path: str
    size_bytes: int
    mtime_ns: int
    ctime_ns: int

    @property
    def modified(self) -> float:
        """Unix seconds."""
        return self.mtime_ns / 1e9


@dataclass
class Walked:
    """What `walk` found. `more`: there is more than was asked for or looked at. `unnameable`: files whose names no page can show."""

    files: list[FoundFile] = field(default_factory=list)
    more: bool = False
    unnameable: int = 0


def folder(run: TrainingRun) -> Path:
    return _runs() / stores.named(run.folder)


def folder_of(number: int) -> Path | None:
    """The folder of the run with this number; None where there is no such run."""
    name = TrainingRun.objects.filter(pk=number).values_list("folder", flat=True).first()
    return _runs() / stores.named(name) if name is not None else None


def make(run: TrainingRun) -> Path:
    """The run's folder, made if it is not there. The host gives it to the user that the run is boxed as. Raises NotHere for that of a run
    that has begun, while it may come back from the object store."""
    path = folder(run)
    if not path.is_dir():
        if copies.has_begun(run):
            copies.missing(Tombstone.Kind.RUN, run.folder)
        remember(run.pk)
        path.mkdir(parents=True, exist_ok=True)
    return path


def highest_number() -> int:
    """The highest number of a run that has had a folder here; 0 where none has."""
    try:
        return int((_runs() / HIGHEST).read_text() or 0)
    except FileNotFoundError:
        return 0


def remember(number: int) -> None:
    """A database that is put back from a copy would give numbers out again, and with them the users of this machine that runs are boxed as
    (see prepare.database)."""
    with os.fdopen(os.open(_runs() / HIGHEST, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644), "r+b", buffering=0) as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # two processes at once: the higher number stays
        if number > int(file.read() or 0):
            file.seek(0)
            file.write(str(number).encode())  # one write, and never shorter than what was there


def _runs() -> Path:
    path: Path = settings.EDT_HOME / "runs"
    return path


def is_engines(path: str) -> bool:
    """Whether a file of this path is the engine's own, which nobody is shown."""
    return _ENGINES.fullmatch(path) is not None


def open_regular(run: TrainingRun, path: str) -> int:
    """A descriptor for reading. Raises FileNotFoundError for all but a regular file reached without a link, and what is the engine's."""
    if is_engines(path):
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


def open_below(top: Path, path: str, *, most_depth: int = MAX_DEPTH) -> int:
    """A regular file below any folder of ours, as `open_regular`."""
    parts = path.split("/")
    if not path or len(parts) > most_depth or "\0" in path or any(part in ("", ".", "..") for part in parts):
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


class TooLarge(Exception):
    """A file that somebody sends has more bytes than it may."""


def write(run: TrainingRun, path: str, body: IO[bytes] | io.BufferedIOBase, *, most_bytes: int) -> None:
    """A regular file below the folder of a run that no user code writes to, with the folders above it; whole or not at all. Raises
    FileNotFoundError for a path that is no name of a file there, TooLarge for more bytes than that."""
    with contextlib.ExitStack() as cleanup:
        at, name = parent_of(run, path, cleanup)
        beside = f".{uuid.uuid4().hex}"
        with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644, dir_fd=at), "wb") as file:
            try:
                _copy(body, file, most_bytes)
                os.rename(beside, name, src_dir_fd=at, dst_dir_fd=at)
            except IsADirectoryError:
                os.unlink(beside, dir_fd=at)
                raise FileNotFoundError(path) from None
            except BaseException:
                os.unlink(beside, dir_fd=at)
                raise


def checked(path: str) -> list[str]:
    """The parts of a path that a file of a run can have. Raises FileNotFoundError for any other."""
    parts = path.split("/")
    if len(parts) > MAX_DEPTH or _UNNAMEABLE.search(path) or any(part in ("", ".", "..") or len(part.encode()) > 255 for part in parts):
        raise FileNotFoundError(path)
    return parts


def parent_of(run: TrainingRun, path: str, cleanup: contextlib.ExitStack, *, owned: bool = False) -> tuple[int, str]:
    """A descriptor of the folder that a file of this path belongs in, made where it is not there and reached without a link, and the file's
    name. Raises FileNotFoundError for a path that is no name of a file. `owned`: folders that are made belong to who owns the run's."""
    parts = checked(path)
    try:
        at = os.open(folder(run), _FOLDER)
        cleanup.callback(os.close, at)
        owner = os.fstat(at)
        for part in parts[:-1]:
            made = False
            with contextlib.suppress(FileExistsError):
                os.mkdir(part, dir_fd=at)
                made = True
            at = os.open(part, _FOLDER, dir_fd=at)
            cleanup.callback(os.close, at)
            if made and owned and os.geteuid() == 0:
                os.fchown(at, owner.st_uid, owner.st_gid)
    except OSError as error:
        if error.errno in NO_FILE:
            raise FileNotFoundError(path) from None
        raise
    return at, parts[-1]


def _copy(body: IO[bytes] | io.BufferedIOBase, file: IO[bytes], most_bytes: int) -> None:
    left = most_bytes
    while piece := body.read(1 << 20):
        left -= len(piece)
        if left < 0:
            raise TooLarge
        file.write(piece)
    file.flush()


def walk(run: TrainingRun, *, limit: int) -> Walked:
    """Regular files below the run's folder, folder by folder in order, at most `limit`; not its tmp/, nor what is the engine's own, nor of
    its working folder the files of its code that are as they were.

    What is looked at is bounded too, folders included: user code can make any number of them.
    """
    found = Walked()
    looked, most = 0, max(MOST_LOOKED, 2 * limit)
    pending = [""]
    while pending:
        below = pending.pop()
        if below == CODE:  # its code is no more than was uploaded, and does not hide what the script has written among it
            most += 2 * run.version.bundle.entries
        try:
            at = open_folder(folder(run), below)
        except FileNotFoundError:  # gone in between, or not there yet
            continue
        try:
            folders, names, count = _entries(at, most=most - looked)
            looked += 1 + count
            for name in sorted(names):
                _add(found, f"{below}/{name}" if below else name, name, at)
                if len(found.files) > limit:
                    found.files.pop()
                    found.more = True
                    return found
        finally:
            os.close(at)
        if looked >= most:
            found.more = True
            break
        if below.count("/") < MAX_DEPTH - 2:
            inside = (f"{below}/{name}" if below else name for name in sorted(folders, reverse=True))
            pending += [path for path in inside if path not in ("tmp", CODE)]
            if not below and CODE in folders:  # last: it may have as many files as a listing looks at
                pending.insert(0, CODE)
    return found


def _entries(at: int, *, most: int) -> tuple[list[str], list[str], int]:
    """Names of folders, names of all else, and how many there were; not more than `most`."""
    folders: list[str] = []
    names: list[str] = []
    count = 0
    with os.scandir(at) as entries:
        for entry in itertools.islice(entries, most):
            count += 1
            (folders if entry.is_dir(follow_symlinks=False) else names).append(entry.name)
    return folders, names, count


def _add(found: Walked, path: str, name: str, at: int) -> None:
    if is_engines(path):
        return
    with contextlib.suppress(OSError):  # gone in between
        facts = os.stat(name, dir_fd=at, follow_symlinks=False)
        if not stat.S_ISREG(facts.st_mode) or (path.startswith(f"{CODE}/") and facts.st_mtime_ns == UNCHANGED_CODE_NS):
            return
        if _UNNAMEABLE.search(path):
            found.unnameable += 1
        else:
            found.files.append(FoundFile(path, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns))


@dataclass(frozen=True)
class Entry:
    """Of a folder: a file, or a folder, which has no size."""

    name: str
    size_bytes: int | None


def entries(run: TrainingRun, path: str, *, limit: int) -> list[Entry]:
    """Regular files and folders of one folder, by name; none where there is no such folder. Those whose names no page can show are not
    there, nor are links."""
    try:
        at = open_folder(folder(run), path)
    except FileNotFoundError:
        return []
    with contextlib.ExitStack() as cleanup:
        cleanup.callback(os.close, at)
        found = []
        for entry in itertools.islice(os.scandir(at), limit):
            with contextlib.suppress(OSError):  # gone in between
                facts = entry.stat(follow_symlinks=False)
                is_folder = stat.S_ISDIR(facts.st_mode)
                if (is_folder or stat.S_ISREG(facts.st_mode)) and not _UNNAMEABLE.search(entry.name):
                    found.append(Entry(entry.name, None if is_folder else facts.st_size))
        return sorted(found, key=lambda one: one.name)


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
    """Names of the folders below log/ that hold a console.log: "driver" first, then remote agents by machine, then the workers by
    number."""
    names = []
    for name in {"driver", *_names(run, "log")}:
        with contextlib.suppress(FileNotFoundError):
            os.close(open_regular(run, f"log/{name}/console.log"))
            names.append(name)
    return sorted(names, key=lambda name: (name != "driver", not name.startswith("agent-"), len(name), name))[:MOST_LOGS]


def _names(run: TrainingRun, below: str) -> list[str]:
    with contextlib.ExitStack() as cleanup:
        try:
            at = os.open(folder(run), _FOLDER)
            cleanup.callback(os.close, at)
            at = os.open(below, _FOLDER, dir_fd=at)
            cleanup.callback(os.close, at)
            return [entry.name for entry in itertools.islice(os.scandir(at), 2 * MOST_LOGS) if _LOG_NAME.match(entry.name)]
        except OSError:
            return []
