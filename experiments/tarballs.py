"""A hostile tar (plain, gzip or bzip2) as a zip of the same files, which is then checked as any uploaded zip is. Knows no database.

Every read is bounded: tarfile takes the sizes in a header at their word, and would read a name of gigabytes into memory.
"""

from __future__ import annotations

import bz2
import contextlib
import gzip
import io
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from typing import IO, BinaryIO, cast

from experiments.zipcheck import BundleRefused, Limits

CHUNK_BYTES = 1 << 18
MOST_HEADER_BYTES = 1 << 20  # of a name, or of what else stands before a file; more than that is no name
HEADERS_BYTES = 64 << 20  # of all of them, beside the files
_DATE = (1980, 1, 1, 0, 0, 0)  # the same files give the same zip, whenever they were packed
_MAGIC = {b"\x1f\x8b": "gzip", b"BZ": "bzip2"}
_UNPACKERS: dict[str, Callable[[BinaryIO], gzip.GzipFile | bz2.BZ2File]] = {
    "gzip": lambda file: gzip.GzipFile(fileobj=file),
    "bzip2": bz2.BZ2File,
}


def is_tar(file: BinaryIO) -> bool:
    """By its first bytes: compressed, or with a tar's mark. Old tars without the mark are told by their names."""
    file.seek(0)
    head = file.read(512)
    file.seek(0)
    return head[:2] in _MAGIC or head[257:262] == b"ustar"


def repack(file: BinaryIO, *, name: str, into: IO[bytes], limits: Limits) -> None:
    """Write its files to `into` as a zip. Raises BundleRefused for links, devices, damage, and for more than the limits."""
    file.seek(0)
    kind = _MAGIC.get(file.read(2), "")
    file.seek(0)
    try:
        with contextlib.ExitStack() as cleanup:
            source = cast(IO[bytes], file)
            if kind:
                source = cast(IO[bytes], cleanup.enter_context(_UNPACKERS[kind](file)))
            bounded = _Bounded(source, most=limits.unpacked_bytes + HEADERS_BYTES, too_large=_too_large(limits))
            archive = cleanup.enter_context(tarfile.TarFile(fileobj=cast(IO[bytes], bounded), mode="r"))
            target = cleanup.enter_context(zipfile.ZipFile(into, "w", zipfile.ZIP_DEFLATED, compresslevel=1))
            _copy(archive, target, limits)
    except (tarfile.TarError, zlib.error, EOFError, ValueError, struct.error) as error:
        raise _damaged(name, error) from None
    except OSError as error:
        if error.errno is not None:  # the disk's, and not of what was sent
            raise
        raise _damaged(name, error) from None


class _Bounded:
    """As much of a file as tarfile needs, which may ask for little at once and not go on for ever."""

    def __init__(self, file: IO[bytes], *, most: int, too_large: str) -> None:
        self.file, self.most, self.too_large = file, most, too_large

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= MOST_HEADER_BYTES:
            raise BundleRefused("The tar has a file with a name, or notes about it, of more than a megabyte: pack the folder again.")
        found = self.file.read(size)
        self._check(self.file.tell())
        return found

    def seek(self, place: int, whence: int = io.SEEK_SET) -> int:
        self._check(place)
        return self.file.seek(place, whence)

    def tell(self) -> int:
        return self.file.tell()

    def _check(self, place: int) -> None:
        if place > self.most:
            raise BundleRefused(self.too_large)


def _copy(archive: tarfile.TarFile, target: zipfile.ZipFile, limits: Limits) -> None:
    entries, left = 0, limits.unpacked_bytes
    for member in archive:
        entries += 1
        if entries > limits.entries:
            raise BundleRefused(f"The tar has more than {limits.entries} entries: {limits.advice}.")
        path = member.name
        while path.startswith("./"):
            path = path[2:]
        if member.isdir() or path in ("", "."):
            continue
        if member.issym() or member.islnk():
            raise BundleRefused(f"{path[:200]} is a link: put the file itself into the tar (tar --dereference).")
        if member.issparse() or not member.isreg():
            raise BundleRefused(f"{path[:200]} is a device or another special file: leave it out.")
        left -= member.size
        if left < 0:
            raise BundleRefused(_too_large(limits))
        _write(archive, member, path, target)


def _write(archive: tarfile.TarFile, member: tarfile.TarInfo, path: str, target: zipfile.ZipFile) -> None:
    info = zipfile.ZipInfo(path, date_time=_DATE)
    info.compress_type, info.external_attr = zipfile.ZIP_DEFLATED, (stat.S_IFREG | 0o644) << 16
    source = archive.extractfile(member)
    if source is None:
        raise tarfile.ReadError(f"{path} has no content")
    with source, target.open(info, "w", force_zip64=True) as entry:
        while chunk := source.read(CHUNK_BYTES):
            entry.write(chunk)


def _damaged(name: str, error: Exception) -> BundleRefused:
    return BundleRefused(f"{name} is damaged or no ordinary tar ({str(error)[:200]}): pack the folder again.")


def _too_large(limits: Limits) -> str:
    return f"The tar unpacks to more than {limits.unpacked_bytes >> 20} MiB: {limits.advice}."
