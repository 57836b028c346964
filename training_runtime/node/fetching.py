"""Gets what a run needs from the studio before it begins here: its code and data, by names that stand for their content, and the run's own
folder where it has been elsewhere. Each is whole in its place or not there."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from training_runtime.host.runs import workdir
from training_runtime.node.arriving import arriving, bring, forget, forget_old
from training_runtime.node.files import Files, Listed
from training_runtime.node.folders import CODE, TRASH_S, Folder, Folders

MAKING = ".making-"
CACHED = ("code", "assets")
UNUSED_S = 14 * 86400.0


def is_here(home: Path, room: str, name: str) -> bool:
    return (home / room / name).is_dir()


def forget_unused(home: Path, needed: Collection[tuple[str, str]], *, now: float) -> list[Path]:
    """Delete trees of code and data that no run has needed for UNUSED_S, and folders of runs that have come in part and are not gone on
    with for a day. `now`: Unix seconds; those in `needed` count as used then."""
    forget_old(home / "runs", now - TRASH_S)
    gone = []
    for room in CACHED:
        forget_old(home / room, now - UNUSED_S)
        for tree in (home / room).iterdir():
            if not tree.is_dir():
                continue
            if (room, tree.name) in needed:
                os.utime(tree, (now, now))
            elif now - tree.stat().st_mtime > UNUSED_S:
                gone.append(tree)
    for tree in gone:
        shutil.rmtree(tree, ignore_errors=True)
    return gone


def fetch_tree(files: Files, home: Path, room: str, name: str, *, say: Callable[[int, int], None]) -> None:
    """A tree of code or data, which never changes, or what a run continues from. `say`: as `bring` has it."""
    target = home / room / name
    if target.is_dir():
        return
    beside = arriving(target)
    found = bring(files, room, name, beside, say=say, unchanging=room in CACHED)
    _set_times(beside, found)
    for path in (beside, *beside.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)  # the users that runs are boxed as read it
    beside.rename(target)
    forget(beside)


def fetch_run(files: Files, folders: Folders, folder: Folder, *, code: Path, say: Callable[[int, int], None]) -> None:
    """The run's folder as the studio has it, of a run whose driver is elsewhere what was written here; what was here from an earlier stay
    is put away first. `code`: the run's, for its working folder, of which the studio keeps only what its script has written."""
    folders.put_away(folder.name)
    target = folders.path(folder.name)
    beside = arriving(target)
    found = bring(files, "runs", folder.name, beside, say=say, term=folder.term if folder.guest else "")
    whole = target.with_name(f"{MAKING}{folder.name}")
    shutil.rmtree(whole, ignore_errors=True)
    _assemble(beside, found, whole, code)
    whole.rename(target)
    forget(beside)
    folder.arrived = {each.file.path: each.file for each in found}
    folders.begin(folder)


def _assemble(beside: Path, found: Sequence[Listed], whole: Path, code: Path) -> None:
    """The folder of files that have come, which stay where they are by a second name until it is in its place: whatever ends this, none is
    brought again."""
    whole.mkdir()
    for name in sorted({path.split("/")[1] for each in found if (path := each.file.path).startswith(f"{CODE}/") and path.count("/") > 1}):
        (whole / CODE).mkdir(exist_ok=True)
        workdir.make(code, whole / CODE / name)
    for each in found:
        place = whole / each.file.path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.unlink(missing_ok=True)  # what the script has written takes the place of what was uploaded
        place.hardlink_to(beside / each.file.path)
    _set_times(whole, found)


def _set_times(top: Path, found: Sequence[Listed]) -> None:
    for each in found:
        os.utime(top / each.file.path, ns=(each.file.mtime_ns, each.file.mtime_ns))
