"""A run that continues from another one's checkpoint: the file is opened with the host's rights, before the box, and copied with the
run's own.

What is in it is not looked at here; the engine takes its values and calls nothing in it. The folder it comes from was written by user
code: no link is followed, and only a regular file of that folder's own user is taken.
"""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

from training_runtime.errors import SandboxRefused
from training_runtime.protocol import RunSpec

_FOLDER, _FILE = "checkpoint", "engine.pt"
_INHERITED = "inherited.pt"  # under which the engine knows that somebody else's run wrote it


def open_checkpoint(spec: RunSpec, result: Path) -> int | None:
    """A descriptor of the checkpoint that this run begins with; None where it begins at the start or has one of its own already, or where
    that is another machine's affair. SandboxRefused where there is none."""
    own = any((result / _FOLDER / name).exists() for name in (_FILE, _INHERITED))
    if not spec.continue_from or spec.remote or own:
        return None
    missing = SandboxRefused(f"the run to continue from has no checkpoint ({spec.continue_from})")
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        run = os.open(spec.continue_from, flags | os.O_DIRECTORY)
        folder = _open_in(run, _FOLDER, flags | os.O_DIRECTORY)
        owner = os.fstat(folder).st_uid  # before it is closed
        file = _open_in(folder, _FILE, flags | os.O_NONBLOCK)
    except OSError:
        raise missing from None
    found = os.fstat(file)
    if not stat.S_ISREG(found.st_mode) or found.st_uid != owner:
        os.close(file)
        raise missing
    return file


def _open_in(folder: int, name: str, flags: int) -> int:
    """`folder` is closed."""
    try:
        return os.open(name, flags, dir_fd=folder)
    finally:
        os.close(folder)


def copy_inherited(descriptor: int, result: Path) -> None:
    """Make it this run's own; whole or not at all."""
    beside = result / _FOLDER / f".{_INHERITED}"
    with open(descriptor, "rb") as source, open(beside, "wb") as target:
        shutil.copyfileobj(source, target, 1 << 20)
        target.flush()
        os.fsync(target.fileno())
    beside.replace(result / _FOLDER / _INHERITED)
