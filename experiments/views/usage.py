"""Slot time used, by person, project or run, over time: on a page, as CSV, with what it costs.

Of projects and of runs one sees one's own projects'; administrators of the cluster see all. By person everybody sees everything.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from decimal import Decimal
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_POST, require_safe

from experiments import access, services
from experiments.cluster import accounting
from experiments.cluster.accounting import Usage
from experiments.cluster.spans import Span, last_days
from experiments.forms.usage import DAYS, USUAL_DAYS, ZONE, PricesForm, SpanForm, zone_of
from experiments.models import ClusterRules, Slot, SlotPrice, User
from experiments.ops import clock
from experiments.selectors.usage_chart import chart
from experiments.services.prices import current
from experiments.views.paging import Pages
from experiments.views.responses import act, page, person, refused, spreadsheet

KINDS = (("person", "Person"), ("project", "Project"), ("run", "Run"))


@require_safe
def usage(request: HttpRequest) -> HttpResponse:
    user, now, zone = person(request), timezone.now(), zone_of(request)
    kind = next((name for name, _ in KINDS if name == request.GET.get("by")), "person")
    days = next((n for n, _ in DAYS if str(n) == request.GET.get("days")), USUAL_DAYS)
    asked = any(request.GET.get(name) for name in ("first", "last"))
    form = SpanForm(request.GET if asked else None, now=now, zone=zone)
    own = form.span if asked and form.is_valid() else None
    span = own or last_days(days, now=now, zone=zone)
    found = [] if asked and not own else rows(user, kind, span)
    if request.GET.get("format") == "csv" and not form.errors:
        over_time = request.GET.get("over") == "time"
        name = f"slot-time-by-{kind}-{span.begin.astimezone(zone):%Y-%m-%d}-to-{span.end.astimezone(zone):%Y-%m-%d}.csv"
        return spreadsheet(name, _over_time(found, span) if over_time else _totals(found))
    window = {"first": form["first"].value(), "last": form["last"].value()} if asked else {"days": days}
    kept = window | ({ZONE: zone.key} if request.GET.get(ZONE) else {})
    context = {
        "section": "cluster",
        "crumbs": [("Cluster", reverse("cluster"))],
        "pages": Pages(request, found),
        "chart": chart(found, span, by_run=kind == "run"),
        "span": span,
        "zone": zone.key,
        "own_zone": request.GET.get(ZONE),
        "form": form,
        "most": max((row.slot_s for row in found), default=0),
        "totals": Totals(found),
        "partly": any(row.known_slot_s < row.slot_s for row in found),
        "days": None if asked else days,
        "kind": kind,
        "kind_name": dict(KINDS)[kind],
        "all_days": DAYS,
        "all_kinds": KINDS,
        "window": urlencode(kept),
        **_prices(user, now),
    }
    return page(request, "cluster/usage.html", context)


class Totals:
    """Of all rows, on whichever page they are."""

    def __init__(self, rows: Sequence[Usage]) -> None:
        self.runs = sum(row.runs for row in rows)
        self.cpu_slot_s = sum(row.cpu_slot_s for row in rows)
        self.gpu_slot_s = sum(row.gpu_slot_s for row in rows)
        self.slot_s = sum(row.slot_s for row in rows)
        self.busy_slot_s = sum(row.busy_slot_s for row in rows)
        self.known_slot_s = sum(row.known_slot_s for row in rows)
        self.priced_slot_s = sum(row.priced_slot_s for row in rows)
        self.cost = sum((row.cost for row in rows), Decimal(0))


def _prices(user: User, now: dt.datetime) -> dict[str, object]:
    in_force = {device: current(device, now=now) for device in Slot.Device.values}
    history = list(SlotPrice.objects.select_related("set_by").order_by("-since", "-pk")[:20])
    currency = ClusterRules.current().currency
    initial = {name: None if price is None else f"{price.normalize():f}" for name, price in in_force.items()}
    form = PricesForm(initial=initial | {"currency": currency}) if user.administers else None
    return {"currency": currency, "prices": history, "prices_form": form}


@require_POST
def set_prices(request: HttpRequest) -> HttpResponse:
    """From now on, by administrators of the cluster."""
    user = person(request)
    access.rules(user, need="admin")
    form, top = PricesForm(request.POST), reverse("usage")  # where what is refused is said
    if not form.is_valid():
        return refused(request, " ".join(f"{form.fields[name].label or name}: {errors[0]}" for name, errors in form.errors.items()), to=top)
    said = form.cleaned_data
    prices = {device: said[device] for device in Slot.Device.values}

    def do() -> object:
        return services.set_prices(by=user, per_hour=prices, currency=said["currency"], reason=said["reason"], now=clock.now())

    return act(request, do, said="The prices hold from now on.", to=top)


def rows(user: User, kind: str, span: Span) -> list[Usage]:
    window = {"begin": span.begin, "end": span.end}
    if kind == "person":
        return accounting.by_person(**window, edges=span.edges)
    mine = None if user.administers else set(access.projects_for(user).values_list("pk", flat=True))
    by = accounting.by_run if kind == "run" else accounting.by_project
    return by(**window, edges=span.edges, projects=mine)


def _totals(rows: list[Usage]) -> list[list[object]]:
    columns = "id name cpu_slot_seconds gpu_slot_seconds busy_slot_seconds busy_known_of_slot_seconds runs slot_hours cost"
    table: list[list[object]] = [[*columns.split(), "priced_slot_seconds"]]
    for row in rows:
        busy = f"{row.busy_slot_s:.3f}" if row.known else "unknown"
        held = (f"{each:.3f}" for each in (row.cpu_slot_s, row.gpu_slot_s))
        cost = f"{row.cost:.4f}" if row.priced else ""
        known = f"{row.known_slot_s:.3f}"
        table.append([row.key, row.name, *held, busy, known, row.runs, f"{row.slot_s / 3600:.4f}", cost, f"{row.priced_slot_s:.3f}"])
    return table


def _over_time(rows: list[Usage], span: Span) -> list[list[object]]:
    """A line for each owner in each bin in which it held something."""
    table: list[list[object]] = [["begin", "end", "id", "name", "slot_seconds"]]
    for place, (begin, end) in enumerate(span.bins()):
        times = [begin.isoformat(timespec="seconds"), end.isoformat(timespec="seconds")]
        table += [[*times, row.key, row.name, f"{row.bins[place]:.3f}"] for row in rows if row.bins[place] > 0]
    return table
