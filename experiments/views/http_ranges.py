"""Parts of a file that a browser asks for, so that a download goes on where it stopped (RFC 9110, section 14). Knows headers, no files."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from django.http import HttpRequest

_ONE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")


@dataclass(frozen=True)
class Part:
    """`size` bytes from `begin` on."""

    begin: int
    size: int


class NotThere(Exception):
    """The file has nothing where the part would be."""


def mark(*, size: int, mtime_ns: int, ctime_ns: int) -> str:
    """The ETag of a file. With the time of its last change of any kind, which no program sets: a script may give another content of the
    same size the time of its last writing."""
    return f'"{mtime_ns:x}-{ctime_ns:x}-{size:x}"'


def mark_of(facts: os.stat_result) -> str:
    return mark(size=facts.st_size, mtime_ns=facts.st_mtime_ns, ctime_ns=facts.st_ctime_ns)


def requested_part(request: HttpRequest, *, size: int, mark: str) -> Part | None:
    """The part that the request asks for of a file of this size; None: all of it.

    `mark` is the file's ETag as it is now: who has the beginning of another one gets all of this. What is not understood (several parts,
    other units) is as if it was not asked for. Raises NotThere.
    """
    found = _ONE.fullmatch(request.headers.get("Range", ""))
    if found is None or found[0] == "bytes=-" or request.headers.get("If-Range", mark) != mark:
        return None
    first, last = found[1], found[2]
    if not first:  # the last so many bytes
        begin, end = max(0, size - int(last)), size
    else:
        begin, end = int(first), min(size, int(last) + 1) if last else size
        if last and int(last) < begin:
            return None
    if begin >= end:
        raise NotThere
    return Part(begin, end - begin)
