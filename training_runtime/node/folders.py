"""The folders of runs on a joined machine, written down so that a node that starts again knows what has arrived in the studio.

A run's folder is this machine's for a *term*: its stay here. While that lasts what lies here is the truth and the studio has a copy; with
another term the studio's is, and what was here is out of date. What is put away stays in `.trash` for a day.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from training_runtime.node.mirror import MOST_FILES, File
from training_runtime.protocol import UNCHANGED_CODE_NS

CODE = "_submitted_code"
TRASH = ".trash"
TRASH_S = 86400.0
_NAME = re.compile(r"[0-9A-Za-z][0-9A-Za-z-]{0,63}")
_ENGINES = re.compile(r"checkpoint/\.[^/]*")  # its lock, half-written files, a secret: nothing that is sent
_SHOWN = re.compile(r"[^\x00-\x1f\x7f\x85\u2028\u2029\ud800-\udfff]+")
_MOST_DEPTH = 30
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass
class Folder:
    """`arrived`: the studio's copy. `before`: files as last looked at. `complete`: a look that began after the run had ended found
    everything there. `attempt`: of the run, when last heard of. `guest`: its driver is elsewhere, and what counts of the run is what is
    there; from here come logs, and what its code writes."""

    run: int
    name: str
    term: str
    attempt: int = 1
    arrived: dict[str, File] = field(default_factory=dict)
    before: dict[str, File] = field(default_factory=dict)
    complete: bool = False
    guest: bool = False


class Folders:
    """Those of `home`/runs that are this machine's, by name."""

    def __init__(self, home: Path) -> None:
        self._runs = home / "runs"
        self._notes = home / "terms"
        for path in (self._runs, self._notes):
            path.mkdir(parents=True, exist_ok=True)
        self.known: dict[str, Folder] = {}
        for note in self._notes.glob("*.json"):
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                raw = json.loads(note.read_text())
                arrived = {path: File(path, size, mtime_ns) for path, (size, mtime_ns) in raw["arrived"].items()}
                self.known[note.stem] = Folder(raw["run"], note.stem, raw["term"], raw["attempt"], arrived, guest=raw.get("guest", False))

    def path(self, name: str) -> Path:
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} cannot be the name of a run's folder")
        return self._runs / name

    def begin(self, folder: Folder) -> None:
        """From now on the folder is this machine's."""
        self.path(folder.name).mkdir(exist_ok=True)
        self.save(folder)
        self.known[folder.name] = folder

    def save(self, folder: Folder) -> None:
        """Whole or not at all."""
        arrived = {file.path: (file.size, file.mtime_ns) for file in folder.arrived.values()}
        raw = {"run": folder.run, "term": folder.term, "attempt": folder.attempt, "arrived": arrived, "guest": folder.guest}
        note = self._notes / f"{folder.name}.json"
        beside = note.with_suffix(".new")
        beside.write_text(json.dumps(raw))
        beside.replace(note)

    def put_away(self, name: str) -> None:
        """It is this machine's no more: the note goes, what is there goes to the trash."""
        path = self.path(name)
        self.known.pop(name, None)
        (self._notes / f"{name}.json").unlink(missing_ok=True)
        if path.is_dir() and not path.is_symlink():
            trash = self._runs / TRASH
            trash.mkdir(exist_ok=True, mode=0o700)
            path.rename(trash / f"{time.time_ns()}-{name}")

    def empty_trash(self, now: float) -> None:
        """Delete what was put away more than a day before `now` (Unix seconds)."""
        for entry in (self._runs / TRASH).glob("*-*"):
            since = entry.name.split("-", 1)[0]
            if since.isdigit() and now - int(since) / 1e9 > TRASH_S:
                shutil.rmtree(entry, ignore_errors=True)


def look(top: Path) -> list[File]:
    """Regular files below a run's folder, without following a link: not its tmp/, nor what is the engine's own, nor files of its code that
    are as they were. At most MOST_FILES. Raises OSError where a folder cannot be read: what is in it must not be taken for deleted."""
    found: list[File] = []
    for below, names, at in _walk(top):
        for name in names:
            path = f"{below}{name}"
            if _ENGINES.fullmatch(path) or not _SHOWN.fullmatch(path):
                continue
            with contextlib.suppress(FileNotFoundError):  # gone in between
                facts = os.stat(name, dir_fd=at, follow_symlinks=False)
                if not stat.S_ISREG(facts.st_mode) or (path.startswith(f"{CODE}/") and facts.st_mtime_ns == UNCHANGED_CODE_NS):
                    continue
                found.append(File(path, facts.st_size, facts.st_mtime_ns))
                if len(found) >= MOST_FILES:
                    return found
    return found


def open_file(top: Path, path: str) -> int:
    """A regular file below a run's folder, as `look` has found it: whoever owns the folders on the way may have put a link in their place
    since, to what only this process may read. Raises OSError."""
    *folders, name = path.split("/")
    with contextlib.ExitStack() as cleanup:
        at = os.open(top, _FOLDER)
        cleanup.callback(os.close, at)
        for folder in folders:
            at = os.open(folder, _FOLDER, dir_fd=at)
            cleanup.callback(os.close, at)
        found = os.open(name, _FILE, dir_fd=at)
    if not stat.S_ISREG(os.fstat(found).st_mode):
        os.close(found)
        raise FileNotFoundError(path)
    return found


def _walk(top: Path) -> Iterator[tuple[str, list[str], int]]:
    """(path below `top` with a slash behind it or empty, names of files, descriptor) of each folder."""

    def fail(error: OSError) -> None:
        raise error

    for path, folders, names, at in os.fwalk(top, onerror=fail, follow_symlinks=False):
        below = os.path.relpath(path, top)
        below = "" if below == "." else f"{below}/"
        if not below:
            folders[:] = [name for name in folders if name != "tmp"]
        if below.count("/") >= _MOST_DEPTH:
            folders.clear()
        yield below, names, at
