"""What is happening, drawn in a terminal: a lane for each slot over time, a line for each run, and the latest changes with their reasons.

On a terminal the picture is drawn over itself; elsewhere (a pipe, a log) a plain line is printed whenever something has changed. It reads
what the pages read, and nothing else.
"""

from __future__ import annotations

import datetime as dt
import itertools
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TextIO

from experiments.models import MetricSeries, TrainingRun
from experiments.selectors import timeline
from experiments.selectors.timeline import Bar, FeedItem, Lane

COLOURS = (34, 35)
PLAIN_EVERY_S = 5.0
FEED_LINES = 6
LABEL_WIDTH = 7
WINDOW = dt.timedelta(minutes=4)


@dataclass(frozen=True)
class Seen:
    """One look: the lanes of the window, the runs in order of submission with their losses, the feed (newest first)."""

    at: dt.datetime
    began_at: dt.datetime
    lanes: Sequence[Lane]
    runs: Sequence[TrainingRun]
    slots: Sequence[int]
    losses: Sequence[float | None]
    feed: Sequence[FeedItem]


def look(runs: Sequence[TrainingRun], *, began_at: dt.datetime, now: dt.datetime) -> Seen:
    losses = dict(MetricSeries.objects.filter(run__in=runs, group="train", name="loss").values_list("run_id", "last_value"))
    held = [run.grants.filter(released_at=None).count() for run in runs]
    lanes = timeline.lanes(begin=began_at, end=now)
    feed = [item for item in timeline.feed(limit=4 * FEED_LINES) if item.at >= began_at]
    return Seen(now, began_at, lanes, runs, held, [losses.get(run.pk) for run in runs], feed)


def run_line(run: TrainingRun, *, slots: int, loss: float | None) -> str:
    """Who, state, slots, step, loss, rate: one line, the same on a terminal and in a log."""
    total = run.total_steps()
    parts = [
        f"{run.submitted_by.username:<6}",
        f"{run.state:<9}",
        f"{slots} slot{' ' if slots == 1 else 's'}",
        f"step {run.step:>5}" + (f"/{total}" if total else ""),
        f"loss {loss:.4f}" if loss is not None else "loss      -",
        f"{run.step_rate:5.1f} steps/s" if run.step_rate and run.is_live() else "",
    ]
    return "  ".join(part for part in parts if part)


def lane_text(bars: Sequence[Bar], *, marks: dict[int, str], begin: dt.datetime, end: dt.datetime, width: int) -> str:
    """`width` characters from `begin` to `end`: the mark of the run that holds the slot in the middle of each, a dot where nobody does."""
    step = (end - begin) / width
    text = []
    for column in range(width):
        at = begin + step * (column + 0.5)
        holder = next((bar for bar in bars if bar.begin <= at and (bar.end is None or at < bar.end)), None)
        text.append("·" if holder is None else marks.get(holder.run, "?"))
    return "".join(text)


@dataclass
class Picture:
    """Where it is drawn, and what is remembered of what has been drawn or told."""

    out: TextIO
    _drawn: int = 0
    _last: dict[int, tuple[object, ...]] = field(default_factory=dict)
    _printed_at: dt.datetime | None = None
    _told: set[tuple[dt.datetime, str]] = field(default_factory=set)

    def show(self, seen: Seen) -> None:
        if self.out.isatty() and os.environ.get("TERM", "dumb") != "dumb":
            self._redraw(seen)
        else:
            self._tell(seen)
        self.out.flush()

    def _redraw(self, seen: Seen) -> None:
        size = shutil.get_terminal_size()
        width = max(40, min(110, size.columns - 1))
        lines = self._lines(seen, width)[: max(4, size.lines - 2)]  # what has scrolled away cannot be drawn over
        up = f"\x1b[{self._drawn}A\r\x1b[J" if self._drawn else ""
        self.out.write(up + "\n".join(lines) + "\n")
        self._drawn = len(lines)

    def _lines(self, seen: Seen, width: int) -> list[str]:
        marks = {run.pk: run.submitted_by.username[0].upper() for run in seen.runs}
        colours = {mark: COLOURS[place % len(COLOURS)] for place, mark in enumerate(marks.values())}
        begin, room = max(seen.began_at, seen.at - WINDOW), width - LABEL_WIDTH
        lines = []
        for lane in seen.lanes:
            held = lane_text(lane.bars, marks=marks, begin=begin, end=seen.at, width=room)
            lines.append(f"{lane.slot.label():<{LABEL_WIDTH}}{blocks(held, colours)}")
        ago = f"{(seen.at - begin).total_seconds():.0f} s ago"
        lines += [f"{'':<{LABEL_WIDTH}}{ago}{'now':>{room - len(ago)}}", ""]
        for run, slots, loss in zip(seen.runs, seen.slots, seen.losses, strict=True):
            lines.append(f"{blocks(marks[run.pk], colours)} {cut(run_line(run, slots=slots, loss=loss), width - 2)}")
            lines.append(cut(f"         {run.plan_reason or run.state_reason}", width))
        return [*lines, "", *(cut(f"{clock(item.at)} {brief(item, seen.runs)}", width) for item in seen.feed[:FEED_LINES])]

    def _tell(self, seen: Seen) -> None:
        """Plain lines: each happening once, and each run when its state or slots have changed or some seconds have passed."""
        for item in reversed(seen.feed):
            if (item.at, item.text) not in self._told:
                self._told.add((item.at, item.text))
                self.out.write(f"{clock(item.at)} {brief(item, seen.runs)}\n")
        due = self._printed_at is None or (seen.at - self._printed_at).total_seconds() >= PLAIN_EVERY_S
        for run, slots, loss in zip(seen.runs, seen.slots, seen.losses, strict=True):
            key = (run.state, slots)
            if self._last.get(run.pk) != key or (due and run.is_live()):
                self._last[run.pk] = key
                self.out.write(f"{clock(seen.at)} {run_line(run, slots=slots, loss=loss)}  {run.plan_reason}".rstrip() + "\n")
        if due:
            self._printed_at = seen.at


def blocks(text: str, colours: Mapping[str, int]) -> str:
    """Marks as coloured blocks, or as they are where colours are not wanted."""
    if "NO_COLOR" in os.environ:
        return text
    return "".join(
        f"\x1b[{colours[mark]}m{'█' * len(list(group))}\x1b[0m" if mark in colours else "".join(group)
        for mark, group in itertools.groupby(text)
    )


def brief(item: FeedItem, runs: Sequence[TrainingRun]) -> str:
    """Without the runs' names: each person has one here."""
    text = item.text
    for run in runs:
        text = text.replace(f"'s run {run.name}", "'s run")
    return text


def cut(line: str, width: int) -> str:
    return line if len(line) <= width else line[: width - 1] + "…"


def clock(at: dt.datetime) -> str:
    """The local time of day."""
    return at.astimezone().strftime("%H:%M:%S")
