"""What is happening, drawn in a terminal: a lane for each slot over time, a line for each run, and the latest changes with their reasons.

On a terminal the picture is drawn over itself; elsewhere (a pipe, a log) a plain line is printed whenever something has changed. It reads
what the pages read, and nothing else.
"""

from __future__ import annotations

import datetime as dt
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TextIO

from experiments.models import MetricSeries, TrainingRun
from experiments.selectors import timeline
from experiments.selectors.timeline import Bar, FeedItem, Lane

COLOURS = (34, 35)
PLAIN_EVERY_S = 5.0
FEED_LINES = 6
LABEL_WIDTH = 7


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
    """`heading` stands above it for good: the address, the logins."""

    out: TextIO
    heading: Sequence[str]
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
        width = max(40, min(110, shutil.get_terminal_size().columns - 1))
        lines = [self._fit(line, width) for line in self._lines(seen, width)]
        up = f"\x1b[{self._drawn}A\r\x1b[J" if self._drawn else ""
        self.out.write(up + "\n".join(lines) + "\n")
        self._drawn = len(lines)

    def _lines(self, seen: Seen, width: int) -> list[str]:
        marks = {run.pk: run.submitted_by.username[0].upper() for run in seen.runs}
        begin = max(seen.began_at, seen.at - dt.timedelta(minutes=4))
        room = width - LABEL_WIDTH
        lanes = [
            f"{lane.slot.label():<{LABEL_WIDTH}}"
            + self._coloured(lane_text(lane.bars, marks=marks, begin=begin, end=seen.at, width=room), seen.runs)
            for lane in seen.lanes
        ]
        span = f"{(seen.at - begin).total_seconds():.0f} s"
        runs = [
            line
            for run, slots, loss in zip(seen.runs, seen.slots, seen.losses, strict=True)
            for line in (run_line(run, slots=slots, loss=loss), f"       {run.plan_reason or run.state_reason}")
        ]
        feed = [f"{timezone_free(item.at)} {item.text}" for item in seen.feed[:FEED_LINES]]
        return [*lanes, f"{'':<{LABEL_WIDTH}}{'now':>{room}}".replace(" " * len(span), span, 1), "", *runs, "", *feed]

    def _coloured(self, text: str, runs: Sequence[TrainingRun]) -> str:
        if "NO_COLOR" in os.environ:
            return text
        for place, run in enumerate(runs):
            mark = run.submitted_by.username[0].upper()
            text = text.replace(mark, f"\x1b[{COLOURS[place % len(COLOURS)]}m█\x1b[0m")
        return text

    def _fit(self, line: str, width: int) -> str:
        return line if "\x1b" in line or len(line) <= width else line[: width - 1] + "…"

    def _tell(self, seen: Seen) -> None:
        """Plain lines: each happening once, and each run when its state or slots have changed or some seconds have passed."""
        for item in reversed(seen.feed):
            if (item.at, item.text) not in self._told:
                self._told.add((item.at, item.text))
                self.out.write(f"{timezone_free(item.at)} {item.text}\n")
        due = self._printed_at is None or (seen.at - self._printed_at).total_seconds() >= PLAIN_EVERY_S
        for run, slots, loss in zip(seen.runs, seen.slots, seen.losses, strict=True):
            key = (run.state, slots)
            if self._last.get(run.pk) != key or (due and run.is_live()):
                self._last[run.pk] = key
                self.out.write(f"{timezone_free(seen.at)} {run_line(run, slots=slots, loss=loss)}  {run.plan_reason}\n")
        if due:
            self._printed_at = seen.at


def timezone_free(at: dt.datetime) -> str:
    """The local time of day."""
    return at.astimezone().strftime("%H:%M:%S")
