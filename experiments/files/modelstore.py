"""The files of registered models, kept by their content: `EDT_HOME/models/SHA256`, once however many versions have them, and never changed.

They are copies: a run's own files belong to its user code, which may write to them as long as it has them open, and go with the run.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import io
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from django.conf import settings

from experiments.files import datastore, stores
from experiments.files.store import copies
from experiments.models import Tombstone

CHUNK_BYTES = 1 << 20
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class ModelRefused(Exception):
    """The files are not kept. The message says why and what to do."""


@dataclass(frozen=True)
class Draft:
    """A copy beside the store: `store_file` takes it in."""

    at: Path
    sha256: str
    size_bytes: int


def check_room(needed_bytes: int) -> None:
    """Raises ModelRefused where the disk has not got that much left."""
    if needed_bytes > datastore.free_bytes():
        raise ModelRefused(datastore.no_room(needed_bytes))


def copied(source: BinaryIO, *, name: str, cleanup: contextlib.ExitStack) -> Draft:
    """A copy of an open file of a run, removed when `cleanup` ends, unless it was placed. Raises ModelRefused where it is being written at
    this moment, or where the disk is full."""
    with drafted(cleanup) as (at, draft), in_words():
        before = os.fstat(source.fileno())
        digest, size = hashlib.sha256(), 0
        while size <= before.st_size and (piece := source.read(CHUNK_BYTES)):
            digest.update(piece)
            draft.write(piece)
            size += len(piece)
        after = os.fstat(source.fileno())
        if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns) or size != before.st_size:
            raise ModelRefused(f"{name} is being written at this moment: try again when the run has written it.")
        draft.flush()
        os.fsync(draft.fileno())
    return Draft(at, digest.hexdigest(), size)


@contextlib.contextmanager
def drafted(cleanup: contextlib.ExitStack) -> Iterator[tuple[Path, io.BufferedRandom]]:
    """A new file beside the store, removed when `cleanup` ends, unless it was placed."""
    handle, name = tempfile.mkstemp(prefix="model-", dir=settings.EDT_HOME / "tmp")
    cleanup.callback(Path(name).unlink, missing_ok=True)
    with os.fdopen(handle, "w+b") as file:
        yield Path(name), file


def made(at: Path, file: io.BufferedRandom) -> Draft:
    """A draft of what somebody has written to a file of `drafted`."""
    os.fsync(file.fileno())
    file.seek(0)
    sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    return Draft(at, sha256, file.seek(0, os.SEEK_END))


def store_file(draft: Draft) -> bool:
    """Take it in, under `files_stay`; whether its content was not there yet."""
    target = path_of(draft.sha256)
    if target.exists():
        return False
    draft.at.chmod(0o444)
    draft.at.replace(target)
    return True


def remove(sha256: str) -> None:
    """What was placed and then came to nothing, under `files_stay`."""
    path_of(sha256).unlink(missing_ok=True)


@contextlib.contextmanager
def files_stay() -> Iterator[None]:
    """Held while files come or go with their rows, around the transaction: what is registered again just when it was deleted stays."""
    with open(settings.EDT_HOME / "models" / ".lock", "wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def opened(sha256: str) -> BinaryIO:
    """Raises FileNotFoundError where it is not there, NotHere while it is on its way back from the object store."""
    if not path_of(sha256).exists():
        copies.missing(Tombstone.Kind.MODEL, sha256)
    return open(os.open(path_of(sha256), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb")


def path_of(sha256: str) -> Path:
    path: Path = settings.EDT_HOME / "models" / stores.named(sha256)
    return path


@contextlib.contextmanager
def in_words() -> Iterator[None]:
    """A full disk as something that a person can read."""
    try:
        yield
    except OSError as error:
        if error.errno in _NO_ROOM:
            raise ModelRefused(datastore.no_room(0)) from None
        raise
