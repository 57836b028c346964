"""Slot time used, by person, project or run, on a page and as CSV.

Of projects and of runs one sees one's own projects'; administrators of the cluster see all. By person everybody sees everything.
"""

from __future__ import annotations

import datetime as dt

from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_safe

from experiments import access, accounting
from experiments.accounting import Usage
from experiments.models import User
from experiments.views.shown import page, person, spreadsheet

DAYS = ((1, "24 hours"), (7, "7 days"), (30, "30 days"))
KINDS = (("person", "Person"), ("project", "Project"), ("run", "Run"))
MOST_ROWS = 500


@require_safe
def usage(request: HttpRequest) -> HttpResponse:
    days = next((n for n, _ in DAYS if str(n) == request.GET.get("days")), 7)
    kind = next((name for name, _ in KINDS if name == request.GET.get("by")), "person")
    now = timezone.now()
    found = rows(person(request), kind, begin=now - dt.timedelta(days=days), end=now)
    if request.GET.get("format") == "csv":
        return _csv(found, f"slot-time-by-{kind}-{days}d.csv")
    context = {
        "section": "cluster",
        "crumbs": [("Cluster", reverse("cluster"))],
        "rows": found[:MOST_ROWS],
        "more": max(0, len(found) - MOST_ROWS),
        "most": max((row.slot_s for row in found), default=0),
        "total": sum(row.slot_s for row in found),
        "partly": any(row.known_slot_s < row.slot_s for row in found),
        "days": days,
        "kind": kind,
        "all_days": DAYS,
        "all_kinds": KINDS,
    }
    return page(request, "cluster/usage.html", context)


def rows(user: User, kind: str, *, begin: dt.datetime, end: dt.datetime) -> list[Usage]:
    if kind == "person":
        return accounting.by_person(begin=begin, end=end)
    mine = None if user.administers else set(access.projects_for(user).values_list("pk", flat=True))
    if kind == "run":
        return accounting.by_run(begin=begin, end=end, projects=mine)
    return [row for row in accounting.by_project(begin=begin, end=end) if mine is None or int(row.key) in mine]


def _csv(rows: list[Usage], name: str) -> HttpResponse:
    table: list[list[object]] = [
        ["id", "name", "cpu_slot_seconds", "gpu_slot_seconds", "busy_slot_seconds", "busy_known_of_slot_seconds", "runs"]
    ]
    for row in rows:
        busy = f"{row.busy_slot_s:.3f}" if row.known else "unknown"
        held = (f"{each:.3f}" for each in (row.cpu_slot_s, row.gpu_slot_s))
        table.append([row.key, row.name, *held, busy, f"{row.known_slot_s:.3f}", row.runs])
    return spreadsheet(name, table)
