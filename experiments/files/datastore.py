"""The files of data assets: uploads that arrive piece by piece, and the checked, read-only folders that they become.

The rules are those of model code (`zipcheck`): no way out of the folder, no links, no clashing names, no bombs. A zip that comes alone is
unpacked, anything else is kept as it is. Nothing here knows projects, people or rows of the database.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import shutil
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from django.conf import settings

from experiments.boxed import folders
from experiments.files import zipcheck
from experiments.files.store import copies
from experiments.files.zipcheck import BundleRefused, Limits
from experiments.models import DataAsset, Tombstone

CHUNK_BYTES = 1 << 20
WHOLE_BYTES = 8 << 20  # what a form carries in one go (static/js/sending.js, PIECE)
ADVICE = "split it into several data assets, or have an administrator put it into the shared data root"
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class DataRefused(Exception):
    """The data is not kept. The message says what is wrong and what to do."""


class ContentRefused(DataRefused):
    """It is what has arrived that is wrong: nothing can be gone on with."""


class WrongOffset(Exception):
    """A piece does not begin where the file ends; `size_bytes` is where it does."""

    def __init__(self, size_bytes: int) -> None:
        super().__init__(f"The file has {size_bytes} bytes so far.")
        self.size_bytes = size_bytes


@dataclass(frozen=True)
class Part:
    """A file of an upload as it was announced. `path` is relative to the data asset."""

    path: str
    size_bytes: int


@dataclass(frozen=True)
class StoredFolder:
    """What has become of an upload."""

    files: int
    size_bytes: int
    sha256: str


def root(asset: DataAsset | None) -> Path:
    """The folder of the data asset; the shared data root for none."""
    if asset is None:
        shared: Path = settings.EDT_DATA_ROOT
        return shared
    return _folder_of(asset.key)


def present(asset: DataAsset | None) -> Path:
    """The same for a run. Raises NotHere while the folder is on its way back from the object store."""
    folder = root(asset)
    if asset is not None and not folder.is_dir():
        copies.missing(Tombstone.Kind.ASSET, asset.key.hex)
    return folder


def check(parts: Sequence[Part]) -> None:
    """Whether an upload of these files may begin: their names, their number, their size, and whether there is room. Raises DataRefused."""
    if not parts:
        raise DataRefused("Choose at least one file.")
    if len(parts) > settings.EDT_MAX_DATA_ENTRIES:
        raise DataRefused(f"{len(parts)} files are too many, at most {settings.EDT_MAX_DATA_ENTRIES} are allowed: {ADVICE}.")
    with _in_words():
        zipcheck.checked_paths(part.path for part in parts)
    total = sum(part.size_bytes for part in parts)
    if total > settings.EDT_MAX_DATA_BYTES:
        most = settings.EDT_MAX_DATA_BYTES >> 20
        raise DataRefused(f"These files have {total >> 20} MiB, at most {most} are allowed: {ADVICE}.")
    if total > free_bytes():
        raise DataRefused(no_room(total))


def free_bytes() -> int:
    return shutil.disk_usage(settings.EDT_HOME).free


def received(key: uuid.UUID, count: int) -> list[int]:
    """How many bytes of each part have arrived."""
    return [_size(draft(key) / str(number)) for number in range(count)]


def received_bytes(key: uuid.UUID, parts: Sequence[Part]) -> int:
    """About how many bytes have arrived, for people: files come one after the other, so of those that are there the last alone is looked
    at. An upload may have ten thousand."""
    try:
        there = sorted(int(each.name) for each in draft(key).iterdir() if each.name.isdecimal())
    except FileNotFoundError:
        return 0
    if not there:
        return 0
    return sum(parts[number].size_bytes for number in there[:-1] if number < len(parts)) + _size(draft(key) / str(there[-1]))


def came_whole(key: uuid.UUID, parts: Sequence[Part]) -> bool:
    """Whether it is all there and so small that it came with a form: it is of use to that form alone, and is chosen again at no cost."""
    total = sum(part.size_bytes for part in parts)
    return total <= WHOLE_BYTES and received_bytes(key, parts) == total


def append(key: uuid.UUID, number: int, body: BinaryIO, *, offset: int, most_bytes: int) -> int:
    """Write a piece behind what is there of a part; the size after it.

    Sent twice or out of turn it raises WrongOffset, and nothing changes. Raises DataRefused where it is longer than announced or does not
    fit on the disk; then the part is as it was before.
    """
    folder = draft(key)
    folder.mkdir(mode=0o700, exist_ok=True)
    handle = os.open(folder / str(number), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "r+b") as file, _in_words():
        fcntl.flock(file, fcntl.LOCK_EX)  # two pieces at once, of a browser that asked again: one after the other
        size = file.seek(0, os.SEEK_END)
        if size != offset:
            raise WrongOffset(size)
        try:
            return _copy(body, file, size, most_bytes)
        except BaseException:
            os.ftruncate(file.fileno(), size)
            raise


def opened(key: uuid.UUID, number: int) -> BinaryIO:
    """A part as far as it has arrived. Raises FileNotFoundError where nothing has."""
    return open(os.open(draft(key) / str(number), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb")


def verified(key: uuid.UUID, parts: Sequence[Part], hashes: Sequence[str | None]) -> str:
    """The SHA-256 of the whole upload: of its one file, else of the list of all. Raises DataRefused unless all is there as it was sent."""
    found = []
    for number, (part, wanted) in enumerate(zip(parts, hashes, strict=True)):
        path = draft(key) / str(number)
        if _size(path) != part.size_bytes:
            raise DataRefused(f"{part.path} has not arrived in full ({_size(path)} of {part.size_bytes} bytes): go on with the upload.")
        actual = _digest(path) if part.size_bytes else hashlib.sha256().hexdigest()
        if wanted is not None and wanted != actual:
            raise ContentRefused(f"{part.path} did not arrive as it was sent: choose it again.")
        found.append(actual)
    if len(found) == 1:
        return found[0]
    listed = "".join(f"{digest}  {part.path}\n" for part, digest in zip(parts, found, strict=True))
    return hashlib.sha256(listed.encode()).hexdigest()


def store_upload(key: uuid.UUID, parts: Sequence[Part], hashes: Sequence[str | None]) -> StoredFolder:
    """Turn an upload into the folder of a data asset, with every file compared with its SHA-256 where one is given.

    Doing it again finds what was done. Raises DataRefused, and then the upload stays as it is.
    """
    folder = draft(key)
    folder.mkdir(mode=0o700, exist_ok=True)
    with open(folder / "lock", "wb") as lock, _in_words():
        fcntl.flock(lock, fcntl.LOCK_EX)
        known = folder / "sha256"
        if not _folder_of(key).is_dir():
            known.write_text(verified(key, parts, hashes))
            _build(key, parts)
        files, size_bytes = _measure(_folder_of(key))
        return StoredFolder(files, size_bytes, known.read_text())


def draft(key: uuid.UUID) -> Path:
    """Where an upload arrives: its files by number, and what is made of them."""
    path: Path = settings.EDT_HOME / "uploads" / key.hex
    return path


def _folder_of(key: uuid.UUID) -> Path:
    path: Path = settings.EDT_HOME / "assets" / key.hex
    return path


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _copy(body: BinaryIO, file: BinaryIO, size: int, most_bytes: int) -> int:
    while chunk := body.read(CHUNK_BYTES):
        size += len(chunk)
        if size > most_bytes:
            raise DataRefused(f"The file is longer than the {most_bytes} bytes that were announced: begin the upload again.")
        file.write(chunk)
    file.flush()
    return size


def _digest(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _build(key: uuid.UUID, parts: Sequence[Part]) -> None:
    """The folder beside its place, then into it by one rename: runs and pages find all of it or nothing."""
    fresh = _folder_of(key).with_name(f".{key.hex}")
    shutil.rmtree(fresh, ignore_errors=True)  # of an attempt that was killed
    fresh.mkdir(mode=0o755)
    try:
        if len(parts) == 1 and parts[0].path.lower().endswith(".zip"):
            _unpack(draft(key) / "0", parts[0].path, fresh)
        else:
            for number, part in enumerate(parts):
                _link_or_copy(draft(key) / str(number), fresh.joinpath(*part.path.split("/")), top=fresh)
        fresh.rename(_folder_of(key))
    except BaseException:
        shutil.rmtree(fresh, ignore_errors=True)
        raise


def _unpack(path: Path, name: str, into: Path) -> None:
    if not _size(path):  # of an empty file no piece is ever sent
        raise ContentRefused(f"{name} is empty: pack the folder with the data and upload that.")
    limits = Limits(entries=settings.EDT_MAX_DATA_ENTRIES, unpacked_bytes=settings.EDT_MAX_DATA_BYTES, advice=ADVICE)
    try:
        found = folders.unpack(path, into=into, name=name, limits=limits, room=free_bytes())
    except folders.NoRoom as error:
        raise DataRefused(no_room(error.needed_bytes)) from None
    if not found:
        raise ContentRefused(f"{name} holds no files: pack the folder with the data and upload that.")


def _link_or_copy(source: Path, target: Path, *, top: Path) -> None:
    """A hard link, or a copy where the folders are on different disks: the draft stays whole, so that a second attempt can begin anew."""
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
    for folder in target.parents:  # whatever the process's mask says, the users that runs are boxed as must be able to read
        folder.chmod(0o755)
        if folder == top:
            break
    if not source.exists():  # an empty file, of which no piece was ever sent
        source.touch(mode=0o600)
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        shutil.copyfile(source, target)
    target.chmod(0o644)


def _measure(folder: Path) -> tuple[int, int]:
    sizes = [os.stat(name, dir_fd=at, follow_symlinks=False).st_size for _, _, names, at in os.fwalk(folder) for name in names]
    return len(sizes), sum(sizes)


@contextlib.contextmanager
def _in_words() -> Iterator[None]:
    """A full disk and a hostile zip as something that a person can read."""
    try:
        yield
    except BundleRefused as refusal:
        raise ContentRefused(str(refusal)) from None
    except OSError as error:
        if error.errno in _NO_ROOM:
            raise DataRefused(no_room(0)) from None
        raise


def no_room(needed: int) -> str:
    """What to say of a full disk; `needed`: bytes, 0 where nobody knows."""
    free = free_bytes() >> 20
    wanted = f" and this needs {needed >> 20}" if needed else ""
    return f"The studio's disk is full: it has {free} MiB left{wanted}. Delete data or runs that nobody needs, or ask an administrator."
