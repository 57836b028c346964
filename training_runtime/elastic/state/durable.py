"""Files that are there whole or not at all: written beside, fsynced, renamed; a reader never sees half a file."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from training_runtime import storage
from training_runtime.elastic.worker import heartbeat


def write(path: Path, save: Callable[[Any], None], *, check: Callable[[Any], None] | None = None) -> int:
    """Let `save` write a file object and `check` read it, then put it in place; its size in bytes. OSError where the storage does not take
    it: what was there before stays."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.uname().nodename}.{os.getpid()}")  # machines may share the folder
    try:
        with open(beside, "wb+") as file:
            save(heartbeat.Beating(file))
            file.flush()
            os.fsync(file.fileno())
            size = file.seek(0, os.SEEK_END)
            if check is not None:
                check(file)
        beside.replace(path)
    except RuntimeError as error:
        if (found := storage.cause(error)) is None:
            raise
        raise OSError(found.errno, found.strerror, str(path)) from error  # torch.save makes one of its own of it
    finally:
        beside.unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
    return size


def write_by_path(path: Path, save: Callable[[Path], None]) -> int:
    """As `write`, where `save` takes a path; its ending counts."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{os.uname().nodename}.{os.getpid()}.{path.name}")
    try:
        save(beside)
        with open(beside, "rb") as file:
            os.fsync(file.fileno())
        return beside.replace(path).stat().st_size
    finally:
        beside.unlink(missing_ok=True)
