"""Windows of time, cut at the days and hours of a time zone."""

from __future__ import annotations

import datetime as dt
from zoneinfo import ZoneInfo

import pytest

from experiments.cluster import spans

BERLIN = ZoneInfo("Europe/Berlin")
NOW = dt.datetime(2026, 11, 25, 12, 30, tzinfo=dt.UTC)


def hours(span: spans.Span) -> list[float]:
    return [(end.astimezone(dt.UTC) - begin.astimezone(dt.UTC)).total_seconds() / 3600 for begin, end in span.bins()]


@pytest.mark.parametrize(("day", "long"), [(dt.date(2026, 3, 29), 23.0), (dt.date(2026, 10, 25), 25.0), (dt.date(2026, 10, 26), 24.0)])
def test_a_day_on_which_the_clocks_change_has_all_its_hours(day: dt.date, long: float) -> None:
    days = spans.of_dates(day - dt.timedelta(days=3), day + dt.timedelta(days=3), now=NOW, zone=BERLIN)
    assert days.unit == "day"
    assert hours(days) == [24.0, 24.0, 24.0, long, 24.0, 24.0, 24.0] if long != 24 else hours(days)[3] == 24.0
    one = spans.of_dates(day, day, now=NOW, zone=BERLIN)
    assert (one.unit, hours(one)) == ("hour", [1.0] * int(long))
    offsets = [begin.utcoffset() for begin, _ in one.bins()]
    assert (offsets[0] != offsets[-1]) == (long != 24)


def test_the_last_days_begin_now_minus_so_many_and_are_cut_at_midnight_there() -> None:
    week = spans.last_days(7, now=NOW, zone=BERLIN)
    assert (week.begin, week.end, week.unit) == (NOW - dt.timedelta(days=7), NOW, "day")
    assert {(begin.hour, begin.minute) for begin, _ in week.bins()[1:]} == {(0, 0)}
    assert len(week.bins()) == 8, "the first and the last day are parts of days"
    assert sum(hours(week)) == 7 * 24


def test_a_day_that_is_today_ends_now_and_short_and_long_spans_have_other_bins() -> None:
    today = spans.of_dates(NOW.date(), NOW.date(), now=NOW, zone=BERLIN)
    assert (today.unit, today.end) == ("hour", NOW)
    assert spans.last_days(3, now=NOW, zone=BERLIN).unit == "hour"
    long = spans.last_days(180, now=NOW, zone=BERLIN)
    assert long.unit == "week"
    assert {begin.weekday() for begin, _ in long.bins()[1:]} == {0}


@pytest.mark.parametrize(
    ("first", "last", "said"),
    [
        ("2026-11-20", "2026-11-19", "after the last"),
        ("2026-11-26", "2026-11-27", "not begun"),
        ("2025-01-01", "2026-11-01", "at most 366"),
        ("0001-01-01", "0001-01-02", "before the year 2000"),
    ],
)
def test_dates_that_cannot_be_counted_are_refused_in_words(first: str, last: str, said: str) -> None:
    with pytest.raises(spans.WrongSpan, match=said):
        spans.of_dates(dt.date.fromisoformat(first), dt.date.fromisoformat(last), now=NOW, zone=BERLIN)


@pytest.mark.parametrize("name", ["", "Mars/Olympus", "../../etc/passwd", "/etc/passwd", "x" * 500, "Europe", "a\0b"])
def test_what_is_no_time_zone_is_utc(name: str) -> None:
    assert spans.zone_of(name).key == "UTC"
    for there in ("Europe/Berlin", "Asia/Calcutta", "US/Pacific"):  # also names of old, which browsers still give
        assert spans.zone_of(there).key == there


def test_what_was_held_is_cut_at_the_edges() -> None:
    at = [NOW + dt.timedelta(hours=n) for n in range(4)]
    half = dt.timedelta(minutes=30)
    assert list(spans.pieces(tuple(at), at[0] + half, at[2] + half)) == [(0, 1800.0), (1, 3600.0), (2, 1800.0)]
    assert list(spans.pieces(tuple(at), at[0] - 9 * half, at[3] + half)) == [(0, 3600.0), (1, 3600.0), (2, 3600.0)]
    assert list(spans.pieces(tuple(at), at[3], at[3] + half)) == []
    assert list(spans.pieces(tuple(at), at[0] - half, at[0])) == []
    assert list(spans.pieces(tuple(at), at[1], at[1])) == []
