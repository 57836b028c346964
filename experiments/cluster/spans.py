"""Windows of time for accounts, cut at the hours, days or weeks of a time zone. Pure.

A day is from midnight to midnight there, so it has 23 or 25 hours where the clocks change; an hour is always an hour.
"""

from __future__ import annotations

import bisect
import datetime as dt
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from zoneinfo import ZoneInfo

UTC = ZoneInfo("UTC")
MOST_DAYS = 366
EARLIEST = 2000  # the years of clocks and calendars end; no studio was there before this one
HOURS_UP_TO = dt.timedelta(days=3, hours=1)  # also three days of which one has 25 hours
DAYS_UP_TO = dt.timedelta(days=92, hours=1)
HOUR = dt.timedelta(hours=1)


class WrongSpan(Exception):
    """Dates between which nothing can be counted; the message is for people."""


@dataclass(frozen=True)
class Span:
    """`edges`: where the bins begin, and the end of the last one; aware, in UTC. `unit` of a bin: hour, day or week, the first and the last
    of them cut where the window begins and ends."""

    edges: tuple[dt.datetime, ...]
    unit: str
    zone: ZoneInfo

    @property
    def begin(self) -> dt.datetime:
        return self.edges[0]

    @property
    def end(self) -> dt.datetime:
        return self.edges[-1]

    def bins(self) -> list[tuple[dt.datetime, dt.datetime]]:
        """Begin and end of each, in the zone."""
        local = [edge.astimezone(self.zone) for edge in self.edges]
        return list(itertools.pairwise(local))


def zone_of(name: str) -> ZoneInfo:
    """UTC for what is no name of a time zone."""
    try:
        return ZoneInfo(name) if name and len(name) < 64 else UTC
    except (KeyError, OSError, ValueError):  # there is no such zone, or this is no name
        return UTC


def last_days(days: int, *, now: dt.datetime, zone: ZoneInfo) -> Span:
    """So many times 24 hours up to now."""
    return cut(now - dt.timedelta(days=days), now, zone=zone)


def of_dates(first: dt.date, last: dt.date, *, now: dt.datetime, zone: ZoneInfo) -> Span:
    """Whole days of the zone, both included; a last one that is today ends now. Raises WrongSpan."""
    today = now.astimezone(zone).date()
    if first.year < EARLIEST:
        raise WrongSpan(f"Nothing was counted before the year {EARLIEST}: choose a later day.")
    if first > last:
        raise WrongSpan("The first day is after the last: exchange them.")
    if first > today:
        raise WrongSpan("The first day has not begun yet: choose one that has.")
    if (last - first).days >= MOST_DAYS:
        raise WrongSpan(f"These are {(last - first).days + 1} days: at most {MOST_DAYS} are counted at once.")
    return cut(_midnight(first, zone), min(now, _midnight(last + dt.timedelta(days=1), zone)), zone=zone)


def cut(begin: dt.datetime, end: dt.datetime, *, zone: ZoneInfo) -> Span:
    """By hours up to three days, by days up to three months, by weeks beyond."""
    long = end - begin
    unit = "hour" if long <= HOURS_UP_TO else "day" if long <= DAYS_UP_TO else "week"
    within = [edge for edge in _begins(begin, end, unit, zone) if begin < edge < end]
    return Span((begin.astimezone(dt.UTC), *within, end.astimezone(dt.UTC)), unit, zone)


def pieces(edges: tuple[dt.datetime, ...], since: dt.datetime, until: dt.datetime) -> Iterator[tuple[int, float]]:
    """(number of the bin, seconds) of what lies within the edges."""
    at = max(0, bisect.bisect_right(edges, since) - 1)
    while at < len(edges) - 1 and edges[at] < until:
        seconds = (min(until, edges[at + 1]) - max(since, edges[at])).total_seconds()
        if seconds > 0:
            yield at, seconds
        at += 1


def _begins(begin: dt.datetime, end: dt.datetime, unit: str, zone: ZoneInfo) -> Iterator[dt.datetime]:
    day = begin.astimezone(zone).date()
    if unit == "hour":
        at = _midnight(day, zone)
        while at < end:
            yield at
            at += HOUR
        return
    step = 7 if unit == "week" else 1
    day -= dt.timedelta(days=day.weekday() if unit == "week" else 0)
    while (at := _midnight(day, zone)) < end:
        yield at
        day += dt.timedelta(days=step)


def _midnight(day: dt.date, zone: ZoneInfo) -> dt.datetime:
    return dt.datetime.combine(day, dt.time.min, tzinfo=zone).astimezone(dt.UTC)
