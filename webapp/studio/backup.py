"""A backup of the whole studio, made while it runs and jobs train: the database first, then the files.

That order makes them fit each other: what the database names is there or grows (a journal), and a cursor that is behind its journal
catches up. What is deleted meanwhile stays until the backup is done (`installation.files_stay`). The result is a folder that is complete
once it has its `backup.json`; another one made with `previous` shares the files that have not changed, as hard links, and either can be
thrown away.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import os
import shutil
import stat
import tomllib
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from django.conf import settings
from django.db import connection

from experiments.files import runfiles
from experiments.ops import installation
from webapp.studio import dump

FORMAT = 1
MANIFEST = "backup.json"
STORES = ("bundles", "assets", "models", "runs")


def _nothing(path: str) -> bool:  # noqa: ARG001  (one of the ways to say what is left out)
    return False


def _hidden(path: str) -> bool:
    """The trash, locks and drafts of a store, beside what is stored."""
    return path.startswith(".") and path != runfiles.HIGHEST


def _of_no_use(path: str) -> bool:
    """Of runs also what is for their processes alone."""
    return _hidden(path) or path.split("/")[1:] == ["tmp"]


SKIPPED: dict[str, Callable[[str], bool]] = {"bundles": _hidden, "assets": _hidden, "models": _hidden, "runs": _of_no_use}


def skipped(store: str) -> Callable[[str], bool]:
    """What of a store is in no backup, and not taken from one: the number of the runs' first user, say, which is a machine's own."""
    return SKIPPED.get(store, _nothing)


class BackupRefused(Exception):
    """The backup is not made, or not put back. The message says why and what to do."""


@dataclass
class Counts:
    """What was copied. `shared`: hard links to a previous backup. `left_out`: what is no file, folder or link, is nested too deep, or went
    meanwhile."""

    files: int = 0
    bytes: int = 0
    shared: int = 0
    left_out: int = 0


@dataclass(frozen=True)
class Manifest:
    """`backup.json`: what made the backup, and what is in it."""

    format: int
    version: str
    made_at: str
    database: str
    migrations: list[tuple[str, str]]
    tables: dict[str, list[str]] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)


def make(destination: Path, *, previous: Path | None, with_data: bool, now: dt.datetime) -> Manifest:
    """Write a backup into a folder that is new or empty. Raises BackupRefused."""
    home: Path = settings.EDT_HOME
    _check(destination, previous, home)
    destination.mkdir(parents=True, exist_ok=True)
    destination.chmod(0o700)  # it holds the studio's keys, and everybody's results
    counts = Counts()
    with installation.files_stay(wait=True):
        migrations, tables = dump.applied(), dump.write(destination)
        stores = [*STORES, *(["data"] if with_data and (home / "data").is_dir() and not (home / "data").is_symlink() else [])]
        for store in stores:
            before = previous / store if previous is not None else None
            copy_tree(home / store, destination / store, counts=counts, previous=before, skip=skipped(store))
    copy_tree(home / "secrets", destination / "secrets", counts=counts)
    manifest = Manifest(
        format=FORMAT,
        version=_version(),
        made_at=now.isoformat(),
        database=connection.vendor,
        migrations=migrations,
        tables={table: list(columns) for table, columns in tables.items()},
        counts=asdict(counts),
    )
    draft = destination / f".{MANIFEST}"
    with open(draft, "w", encoding="utf-8") as file:
        json.dump(asdict(manifest), file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    os.sync()  # all that was copied is on the disk before the backup counts as one
    draft.replace(destination / MANIFEST)
    return manifest


def manifest_of(source: Path) -> Manifest:
    """Raises BackupRefused for what is no complete backup."""
    try:
        raw = json.loads((source / MANIFEST).read_text(encoding="utf-8"))
        found = Manifest(**{**raw, "migrations": [(app, name) for app, name in raw["migrations"]]})
    except (OSError, ValueError, TypeError, KeyError):
        raise BackupRefused(f"{source} is no complete backup: it has no {MANIFEST}, which is written last.") from None
    if not all(isinstance(said, str) and said.isprintable() for said in (found.version, found.made_at, found.database)):
        raise BackupRefused(f"{source} is no complete backup: its {MANIFEST} is not as the studio writes it.")
    if found.format != FORMAT:
        raise BackupRefused(f"{source} was made by another version of the studio ({found.version}): use that one.")
    return found


def copy_tree(source: Path, target: Path, *, counts: Counts, previous: Path | None = None, skip: Callable[[str], bool] = _nothing) -> None:
    """Copy what is below a folder, links as links. User code may be writing there, so no link is followed. `skip`: by path below it."""
    target.mkdir(mode=0o755, exist_ok=True)
    pending = [""]
    while pending:
        below = pending.pop()
        try:
            at = runfiles.open_folder(source, below)
        except FileNotFoundError:  # deeper than any page shows, or gone
            counts.left_out += 1
            continue
        try:
            with os.scandir(at) as entries:
                for entry in entries:
                    path = f"{below}/{entry.name}" if below else entry.name
                    if skip(path):
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        (target / path).mkdir(exist_ok=True)
                        pending.append(path)
                    else:
                        _copy(entry, at, target / path, previous / path if previous is not None else None, counts)
        finally:
            os.close(at)


def _copy(entry: os.DirEntry[str], at: int, target: Path, previous: Path | None, counts: Counts) -> None:
    try:
        if entry.is_symlink():
            target.symlink_to(os.readlink(entry.name, dir_fd=at))
            return
        handle = os.open(entry.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=at)
    except OSError:
        counts.left_out += 1
        return
    with open(handle, "rb") as file:
        facts = os.fstat(handle)
        if not stat.S_ISREG(facts.st_mode):
            counts.left_out += 1
        elif previous is not None and _shares(previous, target, facts):
            counts.shared += 1
        else:
            with open(target, "xb") as copy:
                shutil.copyfileobj(file, copy, 1 << 20)
            target.chmod(facts.st_mode & 0o777)
            os.utime(target, ns=(facts.st_atime_ns, facts.st_mtime_ns))
            counts.files, counts.bytes = counts.files + 1, counts.bytes + facts.st_size


def _shares(previous: Path, target: Path, facts: os.stat_result) -> bool:
    """Link to the file of the previous backup where that is the same by size and time."""
    with contextlib.suppress(OSError):
        before = previous.lstat()
        if stat.S_ISREG(before.st_mode) and (before.st_size, before.st_mtime_ns) == (facts.st_size, facts.st_mtime_ns):
            os.link(previous, target, follow_symlinks=False)
            return True
    return False


def _check(destination: Path, previous: Path | None, home: Path) -> None:
    if destination.exists() and (not destination.is_dir() or any(destination.iterdir())):
        raise BackupRefused(f"{destination} is not empty: name a folder that is not there yet.")
    if home in (destination, *destination.parents):
        raise BackupRefused(f"{destination} is inside EDT_HOME ({home}): choose a place outside, best on another disk.")
    if not installation.matches():
        raise BackupRefused("EDT_HOME and the database do not belong together, or the studio was never started. See manage.py adopt.")
    if previous is not None:
        manifest_of(previous)


def _version() -> str:
    project = tomllib.loads((settings.BASE_DIR / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return str(project["version"])
