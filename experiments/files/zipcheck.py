"""Reads a hostile zip: decides which entries may be kept, and unpacks them with every byte counted. Knows no database.

Refused with the name of the file and what to do: ways out of the folder, links and devices, clashing names, encryption, bombs, damage.
Headers are only believed where believing them is the safe side.
"""

from __future__ import annotations

import errno
import itertools
import os
import re
import stat
import struct
import unicodedata
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from training_runtime import notebooks

MAX_DIRECTORY_BYTES = 64 << 20  # of the zip's own table of contents, which is read into memory
MAX_PATH_BYTES = 1000
MAX_NAME_BYTES = 255
BOMB_RATIO = 200  # ordinary code and data shrink to a tenth; deflate can reach 1032
BOMB_FLOOR_BYTES = 32 << 20  # below this no ratio matters
LOCAL_HEADER_BYTES = 30  # and its name, and what else stands there
CHUNK_BYTES = 1 << 18
WINDOWS = (0, 10, 14)  # file systems, as zips name them: FAT, NTFS, VFAT
CLUTTER = {".DS_Store", "__MACOSX", "Thumbs.db"}


class BundleRefused(Exception):
    """The upload is not kept. The message says which file is wrong and what to do."""


@dataclass(frozen=True)
class Limits:
    """The most a zip may unpack to, in entries and in bytes, and what a person is told to do about one that is larger."""

    entries: int
    unpacked_bytes: int
    advice: str = "leave data sets out and upload them as a data asset"


@dataclass(frozen=True)
class Contents:
    """What is kept of a zip: its files, the one top folder they share (or ""), and the Python files relative to it."""

    files: tuple[zipfile.ZipInfo, ...]
    root: str
    scripts: tuple[str, ...]


@dataclass(frozen=True)
class Shape:
    """The same without the zip: how many files it has."""

    entries: int
    root: str
    scripts: tuple[str, ...]


@contextmanager
def opened(zipped: Path | BinaryIO, *, name: str) -> Iterator[zipfile.ZipFile]:
    """The zip, or BundleRefused, also for damage that shows only while it is read. Closes it."""
    with open(zipped, "rb") if isinstance(zipped, Path) else zipped as file:
        _check_directory_size(file, name=name)
        with _read(file, name=name) as archive:
            yield archive


@contextmanager
def _read(file: BinaryIO, *, name: str) -> Iterator[zipfile.ZipFile]:
    try:
        with zipfile.ZipFile(file) as archive:
            yield archive
    except (zipfile.BadZipFile, zlib.error, EOFError, UnicodeDecodeError, NotImplementedError, struct.error, ValueError) as error:
        raise _damaged(name, error) from None
    except OSError as error:
        if error.errno != errno.EINVAL:  # no room on the disk is not the zip's fault; a place before the file's start is
            raise
        raise _damaged(name, error) from None


def _damaged(name: str, error: Exception) -> BundleRefused:
    return BundleRefused(f"{name} is damaged or not an ordinary zip ({str(error)[:200]}): pack the folder again.")


def contents(archive: zipfile.ZipFile, *, limits: Limits) -> Contents:
    """Model code: the entries that are kept, all of them checked. Raises BundleRefused for the first that must not be."""
    files = checked(archive, limits=limits)
    found = shape([info.filename for info in files])
    return Contents(tuple(files), found.root, found.scripts)


def checked_paths(paths: Iterable[str]) -> None:
    """The same rules for files that are uploaded one by one, by their paths. Raises BundleRefused for the first that must not be."""
    seen: dict[str, tuple[str, bool]] = {}
    for path in paths:
        _check_name(path)
        _check_clash(path.split("/"), is_folder=False, seen=seen)


def checked(archive: zipfile.ZipFile, *, limits: Limits) -> list[zipfile.ZipInfo]:
    """The files of the zip, whatever they are, clutter left out and every entry checked. Raises BundleRefused."""
    infos = archive.infolist()
    if len(infos) > limits.entries:
        raise BundleRefused(f"The zip has {len(infos)} entries, at most {limits.entries} are allowed: {limits.advice}.")
    seen: dict[str, tuple[str, bool]] = {}
    files = []
    for info in infos:
        _check_name(with_slashes(info))
        parts = info.filename.rstrip("/").split("/")
        if CLUTTER & set(parts):
            continue
        _check_kind(info)
        _check_clash(parts, is_folder=info.is_dir(), seen=seen)
        if not info.is_dir():
            files.append(info)
    declared = sum(info.file_size for info in files)
    if declared > limits.unpacked_bytes:
        raise BundleRefused(_too_large(limits))
    _check_overlap(files)
    packed = sum(info.compress_size for info in files)
    if declared > BOMB_FLOOR_BYTES and declared > BOMB_RATIO * max(1, packed):  # many files that each stay below the floor
        raise BundleRefused(
            f"The zip unpacks to {declared >> 20} MiB, over {BOMB_RATIO} times its size: leave out what is empty, or make it in code."
        )
    return files


def with_slashes(info: zipfile.ZipInfo) -> str:
    """The name of an entry, which it has from then on: Windows' own Compress-Archive and old .NET write backslashes between folders."""
    name = info.orig_filename
    if info.create_system in WINDOWS and "/" not in name:
        name = name.replace("\\", "/")
        if name != info.orig_filename:
            info.filename = name
    return name


def unpack(archive: zipfile.ZipFile, files: Iterable[zipfile.ZipInfo], *, into: Path, limits: Limits) -> None:
    """Write the files below the empty folder `into`, files 0644 and folders 0755 whatever the zip says. Counts what really comes out."""
    left = limits.unpacked_bytes
    folders = {into}
    for info in files:
        target = into.joinpath(*info.filename.split("/"))
        _make_folders(target.parent, folders)
        left -= _write(archive, info, target, left=left, limits=limits)
    for folder in folders:
        folder.chmod(0o755)


def _write(archive: zipfile.ZipFile, info: zipfile.ZipInfo, target: Path, *, left: int, limits: Limits) -> int:
    written = 0
    handle = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    with archive.open(info) as source, os.fdopen(handle, "wb") as file:
        while chunk := source.read(CHUNK_BYTES):
            written += len(chunk)
            if written > left:
                raise BundleRefused(_too_large(limits))
            if written > BOMB_FLOOR_BYTES and written > BOMB_RATIO * max(1, info.compress_size):
                raise BundleRefused(f"{info.filename} unpacks to over {BOMB_RATIO} times its size: leave it out, or make it in code.")
            file.write(chunk)
        os.fchmod(file.fileno(), 0o644)
    return written


def _make_folders(folder: Path, known: set[Path]) -> None:
    if folder not in known:
        _make_folders(folder.parent, known)
        folder.mkdir(exist_ok=True)
        known.add(folder)


def _check_directory_size(file: BinaryIO, *, name: str) -> None:
    """Refuse what is not a zip, and a table of contents so large that reading it would hurt (zip appnote 4.3.14 to 4.3.16)."""
    size = file.seek(0, os.SEEK_END)
    start = file.seek(max(0, size - 65557))
    tail = file.read()
    at = tail.rfind(b"PK\x05\x06")
    if at < 0 or len(tail) < at + 22:
        raise BundleRefused(f"{name} is not a zip file, or not all of one: pack the folder as .zip anew and upload that.")
    (directory_bytes,) = struct.unpack_from("<L", tail, at + 12)
    if directory_bytes == 0xFFFFFFFF and start + at >= 56 + 20:  # zip64: the true size is in the record before its locator
        file.seek(start + at - 20 - 56)
        record = file.read(56)
        if record[:4] == b"PK\x06\x06":
            (directory_bytes,) = struct.unpack_from("<Q", record, 40)
    if directory_bytes > MAX_DIRECTORY_BYTES:
        raise BundleRefused(f"{name} has a table of contents of {directory_bytes} bytes: leave data sets and environments out.")


def _check_name(raw: str) -> None:
    shown = "".join(c if c.isprintable() else "?" for c in raw[:200])
    if any(unicodedata.category(c) in ("Cc", "Cs") for c in raw):
        raise BundleRefused(f"{shown} has a control character in its name: rename the file and pack again.")
    if "\\" in raw:
        raise BundleRefused(f"{shown} has a backslash in its name: pack with / between folders, as current zip tools do.")
    if raw.startswith("/") or re.match(r"[A-Za-z]:", raw):
        raise BundleRefused(f"{shown} is an absolute path: pack the folder itself, with paths relative to it.")
    parts = raw.rstrip("/").split("/")
    if ".." in parts:
        raise BundleRefused(f"{shown} leads out of the folder (..): pack the folder itself, with paths relative to it.")
    if "." in parts or "" in parts:
        raise BundleRefused(f"{shown} has an empty part in its path: pack the folder again.")
    if len(raw.encode()) > MAX_PATH_BYTES or any(len(part.encode()) > MAX_NAME_BYTES for part in parts):
        raise BundleRefused(f"{shown}... has too long a name: at most {MAX_NAME_BYTES} bytes a part and {MAX_PATH_BYTES} in all.")


def _check_kind(info: zipfile.ZipInfo) -> None:
    kind = stat.S_IFMT(info.external_attr >> 16)
    if kind == stat.S_IFLNK:
        raise BundleRefused(f"{info.filename} is a symbolic link: put the file itself into the zip.")
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
        raise BundleRefused(f"{info.filename} is a device or another special file: leave it out.")
    if info.is_dir() != (kind == stat.S_IFDIR) and kind != 0:
        raise BundleRefused(f"{info.filename} says it is both a file and a folder: pack the folder again.")
    if info.flag_bits & 0x41:  # encrypted, or strongly encrypted
        raise BundleRefused(f"{info.filename} is encrypted: pack the folder without a password.")
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise BundleRefused(f"{info.filename} is packed in an unusual way (method {info.compress_type}): pack with plain deflate.")


def _check_clash(parts: list[str], *, is_folder: bool, seen: dict[str, tuple[str, bool]]) -> None:
    """Each path and each folder on the way once, also where capitals or composed letters do not count; no path both file and folder."""
    for depth in range(1, len(parts) + 1):
        path = "/".join(parts[:depth])
        folder = is_folder or depth < len(parts)
        key = unicodedata.normalize("NFC", path).casefold()
        known, known_folder = seen.setdefault(key, (path, folder))
        if known != path:
            raise BundleRefused(f"{path} and {known} differ only in capitals or accents: rename one of them.")
        if known_folder != folder:
            raise BundleRefused(f"{path} is both a file and a folder in the zip: rename one of them.")
    if not is_folder:
        path = "/".join(parts)
        key = unicodedata.normalize("NFC", path).casefold() + "\0taken"
        if key in seen:
            raise BundleRefused(f"{path} is in the zip twice: pack the folder again.")
        seen[key] = (path, False)


def _check_overlap(files: list[zipfile.ZipInfo]) -> None:
    """No two entries share packed bytes, which would count them once in the zip and often on the disk. Takes the least that an entry needs:
    its local header and its data."""
    placed = sorted(files, key=lambda info: info.header_offset)
    for one, following in itertools.pairwise(placed):
        if one.header_offset + LOCAL_HEADER_BYTES + one.compress_size > following.header_offset:
            raise BundleRefused(f"{one.filename} and {following.filename} overlap in the zip: pack the folder again.")


def shape(names: Sequence[str]) -> Shape:
    """Of the files of model code. Raises BundleRefused where a run cannot be made of them."""
    if not names:
        raise BundleRefused("The zip holds no files: pack the folder with your model code and upload that.")
    root = _common_root(names)
    start = len(root) + 1 if root else 0
    scripts = tuple(sorted((n[start:] for n in names if notebooks.is_script(n)), key=lambda n: (n.count("/"), n)))
    return Shape(len(names), root, scripts)


def _common_root(names: Iterable[str]) -> str:
    tops = {name.split("/", 1)[0] if "/" in name else "" for name in names}
    return tops.pop() if len(tops) == 1 else ""


def _too_large(limits: Limits) -> str:
    return f"The zip unpacks to more than {limits.unpacked_bytes >> 20} MiB: {limits.advice}."
