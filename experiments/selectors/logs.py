"""Searching a run's log: in a boxed child (`experiments.logs.searching`), never with a person's pattern in the web server."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from experiments.boxed import pool, strict
from experiments.files import runfiles
from experiments.logs import searching
from experiments.models import TrainingRun
from training_runtime.errors import ProtocolError

MOST_LINES = 500
LONGEST_PATTERN = 500
LEAST_LINES = 20  # of each, where several logs are searched
LIMITS = pool.Limits(cpu_s=2, memory_bytes=512 << 20)
WALL_S = 10.0
TOGETHER_S = 5.0
MOST_BYTES = 8 << 20  # of an answer: all its lines, in letters that JSON spells with six each
BUSY = "Others are searching just now: try again in a moment."
TOO_LONG = "The search took too long: use a simpler expression, or download the log."


@dataclass(frozen=True)
class FoundLine:
    """A line that matches: its number from 1 on, the byte at which it begins, its level ("" where it says none)."""

    number: int
    offset: int
    level: str
    text: str


@dataclass(frozen=True)
class LogMatches:
    """The last lines that match, oldest first, of `total`. `complete`: all of the log was read, and not only the first `read_bytes`.
    `size_bytes`: of the log when the search began. `problem`: why there is no answer."""

    lines: tuple[FoundLine, ...] = ()
    total: int = 0
    read_bytes: int = 0
    size_bytes: int = 0
    complete: bool = True
    problem: str = ""


@dataclass(frozen=True)
class MatchesByLog:
    """What was found in each of those of the `logs` that were searched. `problem`: why there is no answer."""

    found: dict[str, LogMatches]
    logs: int
    problem: str = ""

    def total(self) -> int:
        return sum(each.total for each in self.found.values())

    def cut(self) -> bool:
        """Whether a log has more lines that match than are shown, or was not searched to its end."""
        return any(each.total > len(each.lines) or not each.complete for each in self.found.values())


def search(run: TrainingRun, name: str, *, pattern: str = "", regex: bool = False, level: str = "", most: int = MOST_LINES) -> LogMatches:
    """Lines of the log with the pattern, of the level ("debug" to "error") or above."""
    if len(pattern) > LONGEST_PATTERN:
        return LogMatches(problem=f"At most {LONGEST_PATTERN} characters can be searched for.")
    try:
        log = runfiles.open_regular(run, f"log/{name}/console.log")
    except FileNotFoundError:
        return LogMatches()
    wanted = {"pattern": pattern, "regex": regex, "level": level if level in searching.LEVELS else "", "most": most}
    with open(log, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        try:
            files = (file.fileno(),)
            said = pool.ask("search", wanted, limits=LIMITS, wall_s=WALL_S, lane=pool.SEARCHES, files=files, most_bytes=MOST_BYTES)
            return _believed(said, size_bytes=size, most=most)
        except pool.Busy:
            return LogMatches(problem=BUSY)
        except (pool.Unreadable, ProtocolError, OSError):
            return LogMatches(problem=TOO_LONG)


def search_together(run: TrainingRun, names: Sequence[str], *, pattern: str = "", regex: bool = False, level: str = "") -> MatchesByLog:
    """The same search in several logs, one after the other, as many as there is time for."""
    most, began = max(LEAST_LINES, MOST_LINES // max(1, len(names))), time.monotonic()
    found: dict[str, LogMatches] = {}
    for name in names:
        if time.monotonic() - began > TOGETHER_S:
            break
        found[name] = search(run, name, pattern=pattern, regex=regex, level=level, most=most)
        if found[name].problem:
            return MatchesByLog(found={}, logs=len(names), problem=found[name].problem)
    return MatchesByLog(found, logs=len(names))


def last_error(run: TrainingRun, name: str) -> FoundLine | None:
    """The line at which the last error of the log begins: the head of its traceback where it has one."""
    found = search(run, name, level="error").lines
    for place in range(len(found) - 1, -1, -1):
        if place == 0 or found[place - 1].number != found[place].number - 1 or found[place].text.startswith(searching.TRACEBACK):
            return found[place]
    return None


def _believed(said: object, *, size_bytes: int, most: int) -> LogMatches:
    """Raises ProtocolError."""
    found: Mapping[str, object] = said if isinstance(said, dict) else {}
    if "problem" in found:
        return LogMatches(problem=strict.text(found["problem"], most=2000))
    rows = [strict.items(row, 4, exactly=4) for row in strict.items(found.get("lines"), most)]
    lines = tuple(
        FoundLine(
            strict.whole(number),
            strict.whole(offset),
            strict.one_of(level, ("", *searching.LEVELS)),
            strict.text(text, most=searching.SHOWN_CHARACTERS),
        )
        for number, offset, level, text in rows
    )
    total, read, complete = strict.whole(found.get("total")), strict.whole(found.get("read")), strict.flag(found.get("complete"))
    return LogMatches(lines, total=total, read_bytes=read, size_bytes=size_bytes, complete=complete)
