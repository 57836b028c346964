"""Usage over time as stacked bars: geometry for the page, from the accounts. Pure."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass

from experiments.cluster.accounting import Usage
from experiments.cluster.spans import Span

MOST_SERIES = 8  # the greatest; all others are one more
WIDTH, HEIGHT = 1000, 200
OTHERS = "Others"
MOST_TICKS, LAST_TICK = 5, 0.85
HOUR_S = 3600.0


@dataclass(frozen=True)
class Series:
    """`values`: slot-hours of each bin. `path`: its bars, upon those of the series before."""

    key: str
    name: str
    colour: str
    values: tuple[float, ...]
    path: str


@dataclass(frozen=True)
class Bin:
    """`label`: its day or hour in the zone; `said`: what was held in it, in words; `values` of the series; x and width of its bar."""

    begin: dt.datetime
    label: str
    said: str
    values: tuple[float, ...]
    total: float
    x: float
    width: float

    @property
    def percent(self) -> float:
        """Of the width, where its bar begins."""
        return 100 * self.x / WIDTH


@dataclass(frozen=True)
class Chart:
    """`top`: the slot-hours of the highest line."""

    series: tuple[Series, ...]
    bins: tuple[Bin, ...]
    top: float
    unit: str

    def ticks(self) -> list[Bin]:
        """Those that are named below the axis, some five: far enough from its end for their words, and from each other."""
        found: list[Bin] = []
        for each in self.bins:
            if each.x <= WIDTH * LAST_TICK and (not found or each.x - found[-1].x >= WIDTH / MOST_TICKS):
                found.append(each)
        return found


def chart(rows: Sequence[Usage], span: Span, *, by_run: bool = False) -> Chart | None:
    """Of `rows`, the greatest first; None where nobody held anything."""
    shown, others = list(rows[:MOST_SERIES]), rows[MOST_SERIES:]
    if not rows:
        return None
    named = [(row.key, row.name, _colour(place, row, by_run), row.bins) for place, row in enumerate(shown)]
    if others:
        named.append(("", OTHERS, "usage-others", tuple(map(sum, zip(*(row.bins for row in others), strict=True)))))
    hours = [tuple(seconds / HOUR_S for seconds in bins) for *_, bins in named]
    totals = [sum(each) for each in zip(*hours, strict=True)]
    top = nice(max(totals))
    places = _places(span)
    below = [0.0] * len(totals)
    series = []
    for (key, name, colour, _), values in zip(named, hours, strict=True):
        series.append(Series(key, name, colour, values, _path(places, below, values, top)))
        below = [sum(each) for each in zip(below, values, strict=True)]
    names = [each.name for each in series]
    bins = [
        _bin(begin, end, span.unit, names, [values[number] for values in hours], places[number])
        for number, (begin, end) in enumerate(span.bins())
    ]
    return Chart(tuple(series), tuple(bins), top, span.unit)


def nice(value: float) -> float:
    """The next of 1, 2, 5 times a power of ten."""
    step = 1e-3
    while True:
        for factor in (1, 2, 5):
            if value <= step * factor * (1 + 1e-9):
                return step * factor
        step *= 10


def _colour(place: int, row: Usage, by_run: bool) -> str:
    """A run keeps its one colour; people and projects have those of their places."""
    return f"run-{int(row.key) % 14}" if by_run else f"run-{place}"


def _places(span: Span) -> list[tuple[float, float]]:
    """(x, width) of each bar: as long as its time, with a gap."""
    whole = (span.end - span.begin).total_seconds()
    found = []
    for begin, end in span.bins():
        x = (begin - span.begin).total_seconds() / whole * WIDTH
        width = (end.astimezone(dt.UTC) - begin.astimezone(dt.UTC)).total_seconds() / whole * WIDTH
        found.append((x, max(width * 0.85, 0.5)))
    return found


def _path(places: Sequence[tuple[float, float]], below: Sequence[float], values: Sequence[float], top: float) -> str:
    bars = []
    for (x, width), base, value in zip(places, below, values, strict=True):
        if value > 0:
            bottom, height = HEIGHT * (1 - base / top), HEIGHT * value / top
            bars.append(f"M{x:.1f} {bottom:.2f}h{width:.1f}v{-height:.2f}h{-width:.1f}z")
    return "".join(bars)


def _bin(begin: dt.datetime, end: dt.datetime, unit: str, names: list[str], values: list[float], place: tuple[float, float]) -> Bin:
    label = f"{begin:%H:%M}" if unit == "hour" else f"{begin.day} {begin:%b}"
    span = f"{begin:%a} {begin.day} {begin:%b}, {begin:%H:%M} to {end:%H:%M}" if unit == "hour" else f"{begin:%a} {begin.day} {begin:%b %Y}"
    total = sum(values)
    each = [f"{name}: {value:.2f}" for name, value in zip(names, values, strict=True) if value >= 0.005]
    said = "\n".join([f"{span}{', the week' if unit == 'week' else ''}", f"{total:.2f} slot-hours", *each])
    return Bin(begin, label, said, tuple(values), total, *place)
