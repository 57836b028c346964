"""Slot time used, over time, with what it costs; and the prices of slots."""

from __future__ import annotations

import dataclasses
import datetime as dt
from decimal import Decimal
from typing import Annotated, Literal

from django.http import HttpRequest
from ninja import Field, Query, Router, Schema

from experiments import access, services
from experiments.api.auth import person
from experiments.api.paging import Page
from experiments.api.problems import Refused
from experiments.api.schemas import Body
from experiments.cluster import spans
from experiments.cluster.accounting import Usage
from experiments.models import ClusterRules
from experiments.ops import clock
from experiments.services.prices import current
from experiments.views import usage as used

router = Router(tags=["cluster"])


class SlotTime(Schema):
    """Slots held times seconds; how much of `known_slot_s` was work (`busy_slot_s`); what the `priced_slot_s` of it that had a price cost.
    `bins`: slot-seconds between the report's edges."""

    key: str
    name: str
    cpu_slot_s: float
    gpu_slot_s: float
    busy_slot_s: float
    known_slot_s: float
    runs: int
    bins: list[float]
    cost: Decimal
    priced_slot_s: float


class UsageReport(Page[SlotTime]):
    """Bins begin at the hours, days or weeks (`unit`) of the time zone; `edges` has one more than there are bins. Totals are those of all
    items."""

    unit: str
    zone: str
    edges: list[dt.datetime]
    currency: str
    slot_s: float
    cost: Decimal


class UsageWanted(Schema):
    """The last `days`; or from `first` to `last`, days of the time zone `zone`, both included."""

    by: Literal["person", "project", "run"] = "person"
    days: int = Field(7, ge=1, le=366)
    first: dt.date | None = None
    last: dt.date | None = None
    zone: str = Field("UTC", max_length=64)


class Prices(Schema):
    """What an hour of a slot costs; null: nothing is charged."""

    cpu: Decimal | None
    gpu: Decimal | None
    currency: str


class PricesChange(Body):
    """From now on. What is left out stays as it is."""

    cpu: Decimal | None = None
    gpu: Decimal | None = None
    currency: str | None = Field(None, max_length=8)
    reason: str = ""


@router.get("/cluster/usage", response=UsageReport)
def usage(request: HttpRequest, wanted: Annotated[UsageWanted, Query()]) -> UsageReport:
    """Slot time, the greatest first, over time. Of projects and runs one sees one's own projects'."""
    now, zone = clock.now(), spans.zone_of(wanted.zone)
    if zone.key != wanted.zone:
        raise Refused(422, f"{wanted.zone} is no time zone: name one as in Europe/Berlin.")
    if (wanted.first is None) != (wanted.last is None):
        raise Refused(422, "Give the first day and the last, or neither.")
    try:
        own = spans.of_dates(wanted.first, wanted.last, now=now, zone=zone) if wanted.first and wanted.last else None
    except spans.WrongSpan as wrong:
        raise Refused(422, str(wrong)) from None
    span = own or spans.last_days(wanted.days, now=now, zone=zone)
    rows = used.rows(person(request), wanted.by, span)
    totals = used.Totals(rows)
    return UsageReport(
        items=[_used(row) for row in rows],
        unit=span.unit,
        zone=zone.key,
        edges=[edge.astimezone(zone) for edge in span.edges],
        currency=ClusterRules.current().currency,
        slot_s=totals.slot_s,
        cost=totals.cost,
    )


def _used(row: Usage) -> SlotTime:
    return SlotTime(**dataclasses.asdict(row) | {"bins": list(row.bins)})


@router.get("/cluster/prices", response=Prices)
def prices(request: HttpRequest) -> Prices:
    """Those in force."""
    access.rules(person(request))
    now = clock.now()
    return Prices(cpu=current("cpu", now=now), gpu=current("gpu", now=now), currency=ClusterRules.current().currency)


@router.patch("/cluster/prices", response=Prices)
def set_prices(request: HttpRequest, body: PricesChange) -> Prices:
    """By administrators of the cluster. They hold from now on: what was held before costs what it did."""
    user = person(request)
    rules = access.rules(user, need="admin")
    per_hour: dict[str, Decimal | None] = {device: getattr(body, device) for device in ("cpu", "gpu") if device in body.model_fields_set}
    currency = rules.currency if body.currency is None else body.currency
    services.set_prices(by=user, per_hour=per_hour, currency=currency, reason=body.reason)
    return prices(request)
