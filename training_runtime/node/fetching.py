"""Gets what a run needs from the studio before it begins here: its code and data, by names that stand for their content, and the run's own
folder where it has been elsewhere. Each is whole in its place or not there."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Collection
from pathlib import Path

from training_runtime.host.runs import workdir
from training_runtime.node.files import Files
from training_runtime.node.folders import CODE, Folder, Folders
from training_runtime.node.mirror import File

ARRIVING = ".arriving-"
CACHED = ("code", "assets")
UNUSED_S = 14 * 86400.0


def is_here(home: Path, room: str, name: str) -> bool:
    return (home / room / name).is_dir()


def forget_unused(home: Path, needed: Collection[tuple[str, str]], *, now: float) -> list[Path]:
    """Delete trees of code and data that no run has needed for UNUSED_S. `now`: Unix seconds; those in `needed` count as used then."""
    gone = []
    for room in CACHED:
        for tree in (home / room).iterdir():
            if (room, tree.name) in needed:
                os.utime(tree, (now, now))
            elif now - tree.stat().st_mtime > UNUSED_S:
                gone.append(tree)
    for tree in gone:
        shutil.rmtree(tree, ignore_errors=True)
    return gone


def fetch_tree(files: Files, home: Path, room: str, name: str, *, say: Callable[[int, int], None]) -> None:
    """A tree that never changes. `say`: (bytes that have come, bytes in all), again and again."""
    target = home / room / name
    if target.is_dir():
        return
    beside = target.with_name(f"{ARRIVING}{name}")
    _fetch_files(files, room, name, beside, files.tree(room, name), say=say)
    for path in (beside, *beside.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)  # the users that runs are boxed as read it
    beside.rename(target)


def fetch_run(files: Files, folders: Folders, folder: Folder, *, code: Path, say: Callable[[int, int], None]) -> None:
    """The run's folder as the studio has it, of a run whose driver is elsewhere what was written here; what was here from an earlier stay
    is put away first. `code`: the run's, for its working folder, of which the studio keeps only what its script has written."""
    folders.put_away(folder.name)
    target = folders.path(folder.name)
    beside = target.with_name(f"{ARRIVING}{folder.name}")
    shutil.rmtree(beside, ignore_errors=True)
    term = folder.term if folder.guest else ""
    found = files.tree("runs", folder.name, term=term)
    for name in sorted({file.path.split("/")[1] for file in found if file.path.startswith(f"{CODE}/") and file.path.count("/") > 1}):
        (beside / CODE).mkdir(parents=True, exist_ok=True)
        workdir.make(code, beside / CODE / name)
        for file in found:  # what the script has written takes the place of what was uploaded
            if file.path.startswith(f"{CODE}/{name}/"):
                (beside / file.path).unlink(missing_ok=True)
    _fetch_files(files, "runs", folder.name, beside, found, say=say, term=term)
    beside.rename(target)
    folder.arrived = {file.path: file for file in found}
    folders.begin(folder)


def _fetch_files(
    files: Files, room: str, name: str, beside: Path, found: list[File], *, say: Callable[[int, int], None], term: str = ""
) -> None:
    total, done = sum(file.size for file in found), 0
    beside.mkdir(parents=True, exist_ok=True)
    for file in found:
        _check(file.path)
        files.fetch(room, name, file, beside / file.path, term=term)
        done += file.size
        say(done, total)


def _check(path: str) -> None:
    if path.startswith("/") or any(part in ("", ".", "..") for part in path.split("/")) or "\0" in path:
        raise ValueError(f"the studio names a file {path!r}, which leads out of its folder")
