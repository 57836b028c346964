"""Searches a log in a process of its own, which reads it from its standard input: `python -I -S logsearch.py WANTED < console.log`.

WANTED is JSON: `pattern`, `regex`, `level`, `most`. The answer is one JSON object. A pattern is written by a person, and Python's matcher
can take for ever over some; so this is no part of the web server: it gets so much processor time and memory and no more, and what it had
found when its time was up is the answer. Knows no Django, no file but the one it is given. Run as a script, and imported for its constants.
"""

from __future__ import annotations

import json
import re
import resource
import signal
import sys
from collections import deque
from collections.abc import Iterator
from typing import BinaryIO

CPU_S = 2
MEMORY_BYTES = 512 << 20
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
            found.append([number, offset, above or level_of(line, ""), line[:SHOWN_CHARACTERS].replace("\0", "\N{REPLACEMENT CHARACTER}")])
    except TooLong:
        complete = False
    return {"lines": list(found), "total": total, "read": read, "complete": complete}


def limit() -> None:
    """From here on: so much processor time and memory, and nothing is written to disk."""
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S + 1))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))

    def late(_signal: int, _frame: object) -> None:
        raise TooLong

    signal.signal(signal.SIGXCPU, late)  # the matcher looks for signals while it works


def main() -> None:
    wanted = json.loads(sys.argv[1])
    limit()
    try:
        answer = search(sys.stdin.buffer, **wanted)
    except re.error as error:
        answer = {"problem": f"This is no regular expression: {error}."}
    except (RecursionError, MemoryError, OverflowError):
        answer = {"problem": "This expression is too much for the search: use a simpler one."}
    except TooLong:
        answer = {"problem": "This expression takes too long to understand: use a simpler one."}
    sys.stdout.write(json.dumps(answer))


if __name__ == "__main__":
    main()
