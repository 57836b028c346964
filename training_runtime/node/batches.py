"""Several files in one body of HTTP: a line of JSON of each, then its bytes. What the studio writes and a joined machine reads; pure."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass

MOST_FILES = 1000  # of one request
_LONGEST_HEAD = 64 << 10


class CutOff(Exception):
    """The body ends, or goes wrong, before its last file is whole."""


@dataclass(frozen=True)
class Head:
    """What follows: the file `path` of `size` bytes, none of one that is not there. `mark`: of its content, empty where it is not there."""

    path: str
    size: int
    mark: str

    def encoded(self) -> bytes:
        return json.dumps(asdict(self)).encode() + b"\n"


class Reader:
    """Reads heads and bodies in turn from the pieces of a body. Raises CutOff."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._held = b""

    def head(self) -> Head:
        while b"\n" not in self._held:
            if len(self._held) > _LONGEST_HEAD:
                raise CutOff("a file in the answer has no name")
            self._held += self._more()
        line, _, self._held = self._held.partition(b"\n")
        try:
            raw = json.loads(line)
            return Head(str(raw["path"]), int(raw["size"]), str(raw["mark"]))
        except (ValueError, KeyError, TypeError):
            raise CutOff("a file in the answer has no name") from None

    def body(self, size: int) -> Iterator[bytes]:
        """`size` bytes, as they come."""
        while size:
            piece = self._held or self._more()
            self._held = piece[size:]
            yield piece[:size]
            size -= len(piece[:size])

    def _more(self) -> bytes:
        try:
            return next(self._pieces)
        except StopIteration:
            raise CutOff("the answer ends before its last file") from None
