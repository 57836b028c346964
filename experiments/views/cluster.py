"""The cluster: everybody's jobs, who held which slot over time, what happened and why; nodes.

Everybody who is logged in may look.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cache

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import reverse
from django.views.decorators.http import require_safe

from experiments import access, selectors
from experiments.cluster import isolation, version_standing
from experiments.cluster.snapshot import is_silent
from experiments.files.store import copies
from experiments.models import RunState, Slot, TrainingRun, User
from experiments.models.runs import LIVE
from experiments.ops import clock
from experiments.selectors import Bar, JobFilter, JobRow, Lane, latest_utilization, nodes, run_pages
from experiments.selectors.reserved import Reserved, reserved
from experiments.views.responses import later, number, page, person

PAGE_ROWS = 40
WINDOWS = {"1m": 60, "10m": 600, "1h": 3600, "all": 0}
USUAL_WINDOW = "10m"
MOST_BARS = 4000
MOST_TABLE_BARS = 240
MOST_TABLE_LANES = 64
MOST_STRIPS = 40
LONGEST_S = 30 * 86400
REFUSED_LASTS_S = 60
AMISS = {"silent": "offline", "stuck": "stuck", "leaving": "leaving"}  # state of a lane -> words


@require_safe
def detail(request: HttpRequest) -> HttpResponse:
    user = person(request)
    now = clock.now()
    lanes = later(lambda: selectors.lanes(begin=now, end=now))
    kept = later(lambda: reserved(lanes, now=now))
    strips = later(lambda: _strips(lanes))
    feed = later(lambda: selectors.feed(limit=40))
    table = later(lambda: _table(request, now))
    context = {
        "section": "cluster",
        **jobs_asked_for(request, now=now),
        "table": table,
        "table_readable": later(lambda: run_pages.readable_ids(user, [bar.run for _, bars in table.lanes for bar in bars])),
        "windows": (("1m", "1 min"), ("10m", "10 min"), ("1h", "1 h"), ("all", "All")),
        "totals": later(lambda: _totals(lanes, kept)),
        "reserved": later(lambda: _reserved_words(user, kept) if not table.until else {}),
        "pause_ms": cache(nodes.median_pause_ms),
        "strips": strips,
        "more_strips": later(lambda: max(0, len({bar.run for lane in lanes for bar in lane.bars if bar.end is None}) - MOST_STRIPS)),
        "feed": feed,
        "feed_readable": later(lambda: run_pages.readable_ids(user, [item.run for item in feed])),
        "lanes_readable": later(lambda: run_pages.readable(user, [run for run, _, _ in strips])),
        "nodes": later(lambda: nodes.rows(lanes, now=now)),
        "rules": later(lambda: access.rules(user)),
        "closed": later(isolation.closed_machines),
        "store_away": later(lambda: copies.is_on() and copies.state().away_since is not None),
    }
    parts = {name: f"cluster/_{name}.html" for name in ("jobs", "feed", "now", "nodes", "tiles", "strips")}
    return page(request, "cluster/detail.html", context, parts=parts)


def jobs_asked_for(request: HttpRequest, *, now: dt.datetime) -> dict[str, object]:
    """What the table of jobs shows of those that the query string asks for: ?name=, ?state=, ?offset=."""
    user = person(request)
    wanted = JobFilter(
        name=request.GET.get("name", "").strip()[:120],
        state=request.GET.get("state", "")[:16],
        limit=PAGE_ROWS,
        offset=number(request, "offset", 0, least=0, most=10_000_000),
    )
    found = later(lambda: selectors.jobs(wanted, now=now, named=run_pages.named_runs(user)))
    return {
        "wanted": wanted,
        "found": found,
        "readable": later(lambda: run_pages.readable(user, [row.run for row in found[0]])),
        "named": later(lambda: run_pages.named_ids(user, [row.run.pk for row in found[0]])),
        "controllable": later(lambda: _controllable(request, found[0])),
        "next_offset": wanted.offset + PAGE_ROWS,
        "homes": later(lambda: run_pages.may_run_in(user)),
    }


@dataclass(frozen=True)
class LanesTable:
    """The lanes of a window in words: each with its newest bars, at most `most`; `cut`: some had more. `more`: lanes that are left out."""

    window: str
    until: int | None
    begin: dt.datetime
    end: dt.datetime
    lanes: list[tuple[Lane, list[Bar]]]
    most: int
    cut: bool
    more: int


def _table(request: HttpRequest, now: dt.datetime) -> LanesTable:
    """?window= as the lanes have it, its right edge at ?until= (Unix seconds); else now."""
    window = request.GET.get("window", "")
    window = window if window in WINDOWS else USUAL_WINDOW
    until = number(request, "until", 0, least=0, most=int(now.timestamp()))
    back = now.timestamp() - until if until else 0.0
    begin, end = span(window, min(back, LONGEST_S), now, run_pages.first_grant() or now - dt.timedelta(seconds=600))
    found = selectors.lanes(begin=begin, end=end)
    shown = found[:MOST_TABLE_LANES]
    most = max(1, MOST_TABLE_BARS // max(1, len(shown)))
    newest = [(lane, lane.bars[: -most - 1 : -1]) for lane in shown]
    return LanesTable(
        window, until or None, begin, end, newest, most, any(len(lane.bars) > most for lane in shown), len(found) - len(shown)
    )


def _controllable(request: HttpRequest, rows: Iterable[JobRow]) -> set[int]:
    """The live runs of the table that the person may stop."""
    user = person(request)
    runs = [row.run for row in rows if row.run.is_live()]
    if user.administers:
        return {run.pk for run in runs}
    return run_pages.writable_ids(user, [run.pk for run in runs])


def _reserved_words(user: User, kept: Mapping[int, Reserved]) -> dict[int, str]:
    named = run_pages.named_ids(user, [each.run for each in kept.values()])
    return {slot: each.words(named=each.run in named) for slot, each in kept.items()}


def _totals(lanes: list[Lane], kept: Mapping[int, Reserved]) -> dict[str, int]:
    live = TrainingRun.objects.filter(state__in=LIVE)
    return {
        "slots": len(lanes),
        "nodes": len({lane.slot.node_id for lane in lanes}),
        "held": sum(lane.is_held() for lane in lanes),
        "free": sum(lane.state == "free" and lane.slot.pk not in kept for lane in lanes),
        "reserved": sum(lane.state == "free" and lane.slot.pk in kept for lane in lanes),
        "away": sum(lane.state in ("draining", "out", "silent") and not lane.is_held() for lane in lanes),
        "stuck": sum(lane.state == "stuck" for lane in lanes),
        "lost": sum(lane.state == "silent" and lane.is_held() for lane in lanes),
        "running": live.filter(state=RunState.RUNNING).count(),
        "waiting": live.filter(state=RunState.QUEUED).count(),
        "suspended": live.filter(state=RunState.SUSPENDED).count(),
    }


def _strips(lanes: list[Lane]) -> list[tuple[TrainingRun, list[Slot], list[str]]]:
    """Who holds what now, by run, and what is amiss with it: for small screens and as the lanes' words. The runs that hold most."""
    held: dict[int, list[Lane]] = {}
    for lane in lanes:
        for bar in lane.bars:
            if bar.end is None:
                held.setdefault(bar.run, []).append(lane)
    shown = sorted(sorted(held, key=lambda pk: (-len(held[pk]), pk))[:MOST_STRIPS])
    runs = TrainingRun.objects.in_bulk(shown)
    return [(runs[pk], [lane.slot for lane in held[pk]], _amiss(held[pk])) for pk in shown if pk in runs]


def _amiss(held: list[Lane]) -> list[str]:
    """What has to be said of a run's slots beside their names: how many are stuck, say."""
    counts = Counter(lane.state for lane in held)
    return [f"{counts[state]} {words}" for state, words in AMISS.items() if counts[state]]


@require_safe
def lanes(request: HttpRequest) -> JsonResponse:
    """The lanes of a window as JSON: ?window=1m|10m|1h|all, its right edge ?back= seconds ago. Nothing older than 30 days."""
    user = person(request)
    now = clock.now()
    first = run_pages.first_grant() or now - dt.timedelta(seconds=600)
    begin, end = _window(request, now, first)
    found = selectors.lanes(begin=begin, end=end)
    kept = reserved(found, now=now) if end == now else {}
    bars = [bar for lane in found for bar in lane.bars]
    ids = {bar.run for bar in bars} | {each.run for each in kept.values()}
    named = run_pages.named_ids(user, ids)
    answer = {
        "now": now.timestamp(),
        "begin": begin.timestamp(),
        "end": end.timestamp(),
        "first": first.timestamp(),
        "cut": len(bars) > MOST_BARS,
        "lanes": [_lane(lane, named, kept.get(lane.slot.pk)) for lane in found],
        "readable": sorted(run_pages.readable_ids(user, ids)),
        "curves": [run.pk for run in run_pages.drawable(user, begin=begin)],
    }
    response = JsonResponse(answer)
    response["Cache-Control"] = "no-store"
    return response


def _window(request: HttpRequest, now: dt.datetime, first: dt.datetime) -> tuple[dt.datetime, dt.datetime]:
    window = request.GET.get("window", "")
    return span(window if window in WINDOWS else USUAL_WINDOW, number(request, "back", 0, least=0, most=LONGEST_S), now, first)


def span(window: str, back_s: float, now: dt.datetime, first: dt.datetime) -> tuple[dt.datetime, dt.datetime]:
    """A window whose right edge is `back_s` ago; "all" is as long as the cluster's past. Nothing is longer than 30 days."""
    seconds = WINDOWS[window] or (now - first).total_seconds()
    end = now - dt.timedelta(seconds=back_s)
    return end - dt.timedelta(seconds=min(seconds, LONGEST_S)), end


def _lane(lane: Lane, named: Collection[int], kept: Reserved | None) -> dict[str, object]:
    """`named`: runs whose names and reasons the person may read. `kept`: for whom the slot is."""
    return {
        "slot": lane.slot.pk,
        "label": lane.slot.label(),
        "node": lane.slot.node.name,
        "state": lane.state,
        "reserved": {"run": kept.run, "person": kept.person, "words": kept.words(named=kept.run in named)} if kept is not None else None,
        "silent_since": lane.silent_since.timestamp() if lane.silent_since else None,
        "bars": [
            {
                "run": bar.run,
                "name": bar.name if bar.run in named else "a run in another project",
                "person": bar.person,
                "begin": bar.begin.timestamp(),
                "end": bar.end.timestamp() if bar.end else None,
                "leaving": bar.leaving,
                "reason": bar.reason if bar.run in named else "",
            }
            for bar in lane.bars[-MOST_BARS:]
        ],
    }


@require_safe
def node(request: HttpRequest, name: str) -> HttpResponse:
    user = person(request)
    found = access.node(user, name)
    now = clock.now()
    lanes = later(lambda: [lane for lane in selectors.lanes(begin=now, end=now) if lane.slot.node_id == found.pk])
    held = later(lambda: run_pages.open_grants(found))
    context = {
        "section": "cluster",
        "node": found,
        "door": later(lambda: isolation.doors().of(found)),
        "version": version_standing.of(found),
        "silent": is_silent(found, now),
        "refused": found.refused_at is not None and (now - found.refused_at).total_seconds() < REFUSED_LASTS_S,
        "runs_there": later(lambda: run_pages.runs_of(found)),
        "lanes": lanes,
        "held": held,
        "present": later(lambda: latest_utilization.of_grants(held, now=now)),
        "readable": later(lambda: run_pages.readable(user, [grant.run for grant in held.values()])),
        "crumbs": [("Cluster", reverse("cluster"))],
    }
    return page(request, "cluster/node.html", context, parts={"body": "cluster/_node.html", "drain": "cluster/_drain.html"})
