"""Searches a log for what a person wrote, as a boxed child does it (`experiments.boxed`).

A pattern may be a regular expression, and Python's matcher can take for ever over some. So the child has so much processor time and memory
and no more, and what it had found when its time was up is the answer. Knows no Django, and of files only the one that it is given.
"""

from __future__ import annotations

import re
import signal
from collections import deque
from collections.abc import Iterator, Sequence
from typing import BinaryIO

from experiments.logs import terminal

LONGEST_LINE = 16 * 1024  # bytes looked at together: longer lines are searched piece by piece
SHOWN_CHARACTERS = 2000  # of a line
LEVELS = ("debug", "info", "warning", "error")
NAMED = re.compile(r"\b(?:(CRITICAL|FATAL|ERROR)|(WARN(?:ING)?)|(INFO)|(DEBUG))\b")
RAISED = re.compile(r"[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit)\b(?::|$)")
TRACEBACK = "Traceback (most recent call last)"
HEAD = 200  # characters in which a line's level stands


class TooLong(Exception):
    """The processor time is used up."""


def pieces(file: BinaryIO) -> Iterator[tuple[int, int, bytes]]:
    """(line number from 1 on, byte offset, bytes) of each line, or of each piece of one that is too long."""
    number, offset, fresh = 0, 0, True
    while raw := file.readline(LONGEST_LINE):
        number += fresh
        yield number, offset, raw
        offset += len(raw)
        fresh = raw.endswith(b"\n")


def level_of(line: str, above: str) -> str:
    """What the line says of itself; an indented line belongs to the one above it, "" is a line without a level."""
    if line.startswith((" ", "\t")):
        return above
    if named := NAMED.search(line, 0, HEAD):
        return LEVELS[4 - (named.lastindex or 4)]
    return "error" if line.startswith(TRACEBACK) or RAISED.match(line) else ""


def search(file: BinaryIO, *, pattern: str, regex: bool, level: str, most: int) -> dict[str, object]:
    """The last `most` lines that match, as [line number, byte offset, level, text]; how many matched, and how much was read.

    `level` asks for lines of that level or above; a plain pattern is looked for whatever its case. Raises re.error for a bad pattern.
    """
    matches, needle = re.compile(pattern).search if regex else None, pattern.lower().encode()
    wanted = set(LEVELS[LEVELS.index(level) :]) if level else set()
    found: deque[list[object]] = deque(maxlen=most)
    total, read, above, complete = 0, 0, "", True
    try:
        for number, offset, raw in pieces(file):
            read = offset
            if not (matches or wanted or needle in raw.lower()):
                continue  # the usual search: nothing is decoded but what is shown
            line = raw.decode(errors="replace").rstrip("\r\n")
            above = level_of(line, above) if wanted else ""
            if (wanted and above not in wanted) or not (matches(line) if matches else needle in raw.lower()):
                continue
            total += 1
            shown = terminal.line(line)[:SHOWN_CHARACTERS].replace("\0", "\N{REPLACEMENT CHARACTER}")
            found.append([number, offset, above or level_of(line, ""), shown])
    except TooLong:
        complete = False
    return {"lines": list(found), "total": total, "read": read, "complete": complete}


def job(files: Sequence[int], pattern: str, regex: bool, level: str, most: int) -> dict[str, object]:
    """In the child: `search` in the log that it is given, or the `problem` of it."""

    def late(_signal: int, _frame: object) -> None:
        raise TooLong

    signal.signal(signal.SIGXCPU, late)  # the matcher looks for signals while it works
    try:
        with open(files[0], "rb") as file:
            return search(file, pattern=pattern, regex=regex, level=level, most=most)
    except re.error as error:
        return {"problem": f"This is no regular expression: {error}."}
    except (RecursionError, MemoryError, OverflowError):
        return {"problem": "This expression is too much for the search: use a simpler one."}
    except TooLong:
        return {"problem": "This expression takes too long to understand: use a simpler one."}
