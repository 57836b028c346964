"""Reads a hostile tar, plain or gzipped, or a single Python file, and makes the zip of it that is then checked and kept like an uploaded
one (`zipcheck`). Knows no database.

Here is refused what a tar can hold and a zip cannot: links, devices, files with holes, headers that want all memory; and what comes out is
counted. Names, clashes and the rest are the zip's business. The same tar gives the same zip, byte for byte.
"""

from __future__ import annotations

import gzip
import io
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from experiments.files import zipcheck
from experiments.files.zipcheck import BOMB_FLOOR_BYTES, BOMB_RATIO, CHUNK_BYTES, CLUTTER, BundleRefused, Limits
from training_runtime import notebooks

BLOCK_BYTES = 512
MAX_HEADER_BYTES = 1 << 20  # of one entry: a long name, extended attributes
MAX_SCRIPT_BYTES = 16 << 20
TIME = (1980, 1, 1, 0, 0, 0)
_GZIP = b"\x1f\x8b"
_DAMAGES = (tarfile.TarError, zlib.error, gzip.BadGzipFile, EOFError, UnicodeError, ValueError, OverflowError, RecursionError, struct.error)


def kind_of(path: Path, *, name: str) -> str:
    """What a file called `name` is, by its content first: "zip" (also where it is nothing that is taken), "tar" or "script"."""
    with open(path, "rb") as file:
        head = file.read(BLOCK_BYTES)
    lower = name.lower()
    if head.startswith(b"PK") or lower.endswith(".zip"):
        return "zip"
    if head.startswith(_GZIP) or head[257:262] == b"ustar" or lower.endswith((".tar", ".tar.gz", ".tgz")):
        return "tar"
    return "script" if lower.endswith((".py", notebooks.SUFFIX)) else "zip"


def script_as_zip(path: Path, *, name: str, into: BinaryIO) -> None:
    """A single Python file or notebook, under its own name. Raises BundleRefused."""
    zipcheck.checked_paths([name])
    if path.stat().st_size > MAX_SCRIPT_BYTES:
        raise BundleRefused(f"{name} is larger than {MAX_SCRIPT_BYTES >> 20} MiB: leave data out and upload it as a data asset.")
    content = path.read_bytes()
    if b"\0" in content:
        raise BundleRefused(f"{name} is no script: it holds bytes that are not text.")
    with zipfile.ZipFile(into, "w", zipfile.ZIP_DEFLATED) as target:
        target.writestr(_info(name), content)


def tar_as_zip(packed: BinaryIO, *, name: str, into: BinaryIO, scratch: BinaryIO, limits: Limits) -> None:
    """The files of the tar, into an empty file; `scratch`: another, for the tar without its compression. Raises BundleRefused for the first
    entry that must not be, and for damage."""
    with (
        _damage_told(name),
        _plain(packed, scratch, limits=limits) as plain,
        zipfile.ZipFile(into, "w", zipfile.ZIP_DEFLATED) as target,
        tarfile.open(fileobj=_Capped(plain), mode="r:") as archive,
    ):
        _copy_files(archive, target, limits=limits)
        plain.seek(archive.offset)
        if plain.read(BLOCK_BYTES).strip(b"\0"):  # tarfile takes a header that it cannot read for the end
            raise tarfile.ReadError("a header of it cannot be read")


def _copy_files(archive: tarfile.TarFile, target: zipfile.ZipFile, *, limits: Limits) -> None:
    left = limits.unpacked_bytes
    for count, member in enumerate(archive, start=1):
        if count > limits.entries:
            raise BundleRefused(f"The tar has over {limits.entries} entries, more are not allowed: {limits.advice}.")
        path = _path(member)
        if not path or CLUTTER & set(path.split("/")):
            continue
        zipcheck.checked_paths([path])
        _check_kind(member, path)
        if member.isdir():
            continue
        left -= member.size
        if member.size < 0 or left < 0:
            raise BundleRefused(_too_large(limits))
        source = archive.extractfile(member)
        assert source is not None
        with source, target.open(_info(path), "w", force_zip64=True) as entry:
            while chunk := source.read(CHUNK_BYTES):
                entry.write(chunk)


def _path(member: tarfile.TarInfo) -> str:
    """As a zip would have it: packed with `tar -C folder .` every name begins with ./"""
    name = member.name.rstrip("/")
    while name.startswith("./"):
        name = name[2:]
    return "" if name == "." else name


def _check_kind(member: tarfile.TarInfo, path: str) -> None:
    if member.issym() or member.islnk():
        kind = "symbolic" if member.issym() else "hard"
        raise BundleRefused(f"{path} is a {kind} link: put the file itself into the tar (tar --dereference --hard-dereference).")
    if member.issparse():
        raise BundleRefused(f"{path} is packed with holes: pack without --sparse.")
    if not (member.isreg() or member.isdir()):
        raise BundleRefused(f"{path} is a device or another special file: leave it out.")


def _info(path: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(path, TIME)
    info.compress_type, info.create_system, info.external_attr = zipfile.ZIP_DEFLATED, 3, 0o100644 << 16
    return info


@contextmanager
def _plain(packed: BinaryIO, scratch: BinaryIO, *, limits: Limits) -> Iterator[BinaryIO]:
    """The tar without its compression: headers are looked for in it by place, which a compressed one makes expensive."""
    is_packed = packed.read(2) == _GZIP
    size_bytes = packed.seek(0, io.SEEK_END)
    packed.seek(0)
    if not is_packed:
        yield packed
        return
    with gzip.open(packed) as unpacked:
        _unpack(unpacked, scratch, packed_bytes=size_bytes, limits=limits)
    yield scratch


def _unpack(unpacked: gzip.GzipFile, plain: BinaryIO, *, packed_bytes: int, limits: Limits) -> None:
    written, most = 0, limits.unpacked_bytes + (limits.entries + 2) * 4 * BLOCK_BYTES  # an entry's headers and padding
    while chunk := unpacked.read(CHUNK_BYTES):
        written += len(chunk)
        if written > most:
            raise BundleRefused(_too_large(limits))
        if written > BOMB_FLOOR_BYTES and written > BOMB_RATIO * packed_bytes:
            raise BundleRefused(f"The tar unpacks to over {BOMB_RATIO} times its size: leave out what is empty, or make it in code.")
        plain.write(chunk)
    plain.seek(0)


class _Capped(io.BufferedIOBase):
    """A file of which nobody reads much at once: tarfile takes headers into memory whole, however large they say they are."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def read(self, size: int | None = -1, /) -> bytes:
        if size is None or size < 0 or size > MAX_HEADER_BYTES:
            raise tarfile.ReadError("a header of it is too large")
        return self._file.read(size)

    def seek(self, offset: int, whence: int = 0, /) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True


@contextmanager
def _damage_told(name: str) -> Iterator[None]:
    try:
        yield
    except _DAMAGES as error:
        said = str(error)[:200] or type(error).__name__
        raise BundleRefused(f"{name} is damaged or not an ordinary tar, plain or gzipped ({said}): pack the folder again.") from None


def _too_large(limits: Limits) -> str:
    return f"The tar unpacks to more than {limits.unpacked_bytes >> 20} MiB: {limits.advice}."
