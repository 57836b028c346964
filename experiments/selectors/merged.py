"""The ends of all logs of a run as one stream, each line with the name of its log, in the order of the times that the lines say.

A line that says no time stays behind the one above it in its log: it goes on with that (a traceback), or was written soon after. Nothing
else is known of when a line was written, so a log none of whose lines says a time comes first, as a whole. What is written while somebody
looks is in the order in which it comes; that is the page's part (static/js/logs.js).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from experiments.files import runfiles
from experiments.logs import terminal
from experiments.models import TrainingRun

MOST_LOGS = 33  # a driver and 32 workers
MOST_BYTES = 512 * 1024
SAID = re.compile(r"\W{0,2}(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(?:[.,](\d{1,9}))?")


@dataclass(frozen=True)
class Merged:
    """`text`: the last lines. `ends`: for each log the byte from which on what it gets is missing here. `cut`: there were earlier lines."""

    text: str
    ends: dict[str, int]
    cut: bool


def merged_tail(run: TrainingRun, names: Sequence[str], *, lines: int) -> Merged:
    """The last `lines` of these logs together, at most MOST_LOGS of them."""
    shown = names[:MOST_LOGS]
    stream: list[tuple[str, int, int, str]] = []
    ends, cut, width = {}, False, max(map(len, shown), default=0)
    for place, name in enumerate(shown):
        found, ends[name], earlier = _end_of(run, name, limit_bytes=MOST_BYTES // len(shown))
        cut = cut or earlier
        stream += [(time, place, number, line) for number, (time, line) in enumerate(zip(times(found), found, strict=True))]
    stream.sort(key=lambda each: each[:3])
    kept = stream[-lines:]
    text = "".join(f"{shown[place]:<{width}} | {line}\n" for _, place, _, line in kept)
    return Merged(text, ends, cut or len(kept) < len(stream))


def _end_of(run: TrainingRun, name: str, *, limit_bytes: int) -> tuple[list[str], int, bool]:
    """(last lines, where the last one ends, whether there are earlier ones). While the run lives, an unfinished line waits for its end."""
    path = f"log/{name}/console.log"
    _, size = runfiles.read(run, path, begin=0, limit_bytes=0)
    begin = max(0, size - limit_bytes)
    data, _ = runfiles.read(run, path, begin=begin, limit_bytes=limit_bytes)
    whole = data[: data.rfind(b"\n") + 1] if run.is_live() else data
    lines = whole.removesuffix(b"\n").decode(errors="replace").replace("\0", "\N{REPLACEMENT CHARACTER}").split("\n") if whole else []
    lines = [terminal.line(line) for line in lines[1 if begin else 0 :]]
    return lines, begin + len(whole), begin > 0  # the first one may be cut in two


def times(lines: Sequence[str]) -> list[str]:
    """The time of each line as text that sorts, "" for all of a log that says none."""
    said = [_timestamp(line) for line in lines]
    last = next((time for time in said if time), "")  # what stands before the first time came before it
    found = []
    for time in said:
        last = max(last, time)  # a clock that was set back must not put a log's own lines out of their order
        found.append(last)
    return found


def _timestamp(line: str) -> str:
    match = SAID.match(line)
    return f"{match[1]} {match[2]}.{match[3] or '':0<9}" if match else ""
