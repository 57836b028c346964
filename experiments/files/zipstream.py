"""A zip that is made while it is sent: no copy of it is on the disk, nor in memory."""

from __future__ import annotations

import datetime as dt
import hashlib
import zipfile
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import IO, BinaryIO, cast

CHUNK_BYTES = 256 * 1024
EARLIEST, LATEST = (dt.datetime(year, 1, 1, tzinfo=dt.UTC).timestamp() for year in (1980, 2107))  # that a zip has words for


@dataclass(frozen=True)
class Added:
    """What went into the zip."""

    size_bytes: int
    sha256: str


class ZipStream:
    """Each method yields the bytes that are ready. `compressed`: not where most of what goes in is already, or where it should come out as
    large as it went in."""

    def __init__(self, *, compressed: bool) -> None:
        self._method = zipfile.ZIP_DEFLATED if compressed else zipfile.ZIP_STORED
        self._sink = _Sink()
        self._zip = zipfile.ZipFile(cast(IO[bytes], self._sink), "w", self._method, compresslevel=1)

    def add(self, name: str, pieces: Iterator[bytes], *, modified: float) -> Generator[bytes, None, Added]:
        """`modified`: Unix seconds, whatever a file system takes."""
        at = dt.datetime.fromtimestamp(min(max(modified, EARLIEST), LATEST), dt.UTC)
        info = zipfile.ZipInfo(name, date_time=at.timetuple()[:6])
        info.compress_type, info.external_attr = self._method, 0o100644 << 16
        size, digest = 0, hashlib.sha256()
        with self._zip.open(info, "w", force_zip64=True) as entry:
            for piece in pieces:
                size += len(piece)
                digest.update(piece)
                entry.write(piece)
                if self._sink.waiting:
                    yield self._sink.drain()
        return Added(size, digest.hexdigest())

    def end(self) -> Iterator[bytes]:
        self._zip.close()
        yield self._sink.drain()


def pieces(opened: BinaryIO, size: int) -> Iterator[bytes]:
    """At most the size that was announced: a file that grows meanwhile must not break the response."""
    left = size
    with opened:
        while left and (chunk := opened.read(min(CHUNK_BYTES, left))):
            left -= len(chunk)
            yield chunk


class _Sink:
    """Where zipfile writes: bytes wait here until they are sent. Not seekable, so zipfile uses data descriptors."""

    def __init__(self) -> None:
        self.waiting: list[bytes] = []
        self.position = 0

    def write(self, data: bytes | bytearray | memoryview, /) -> int:
        self.waiting.append(bytes(data))
        self.position += len(data)
        return len(data)

    def tell(self) -> int:
        return self.position

    def flush(self) -> None:
        return None

    def drain(self) -> bytes:
        out = b"".join(self.waiting)
        self.waiting.clear()
        return out
