"""What a slot costs by the hour: set by administrators of the cluster, from a moment on. Prices of the past are never changed."""

from __future__ import annotations

import datetime as dt
import unicodedata
from collections.abc import Mapping
from decimal import Decimal

from django.db import transaction

from experiments.cluster import snapshot
from experiments.models import ClusterRules, Slot, SlotPrice, User
from experiments.ops import clock
from experiments.services import checks
from experiments.services.cluster import note

MOST = Decimal(1_000_000)
STEP = Decimal("0.0001")
CURRENCY_LIMIT = 8


def set_prices(
    *, by: User, per_hour: Mapping[str, Decimal | None], currency: str, reason: str = "", now: dt.datetime | None = None
) -> ClusterRules:
    """`per_hour` of a slot, by its kind (cpu, gpu), from now on; None: nothing is charged. A kind that is left out stays as it is. The
    currency is a word beside the figures: to change it converts nothing. Fields: cpu, gpu, currency."""
    for device, price in per_hour.items():
        if device not in Slot.Device.values:
            checks.refuse("cpu", f"There is no kind of slot {device}: cpu and gpu have prices.")
        if price is not None and (not price.is_finite() or not 0 <= price <= MOST or price != price.quantize(STEP)):
            checks.refuse(device, "Give a price from 0 to 1000000 with at most four digits behind the point.")
    clean = "".join(currency.split())
    if len(clean) > CURRENCY_LIMIT or any(unicodedata.category(each).startswith("C") for each in clean):
        checks.refuse("currency", f"Give a currency of at most {CURRENCY_LIMIT} characters, as in EUR.")
    now = now or clock.now()
    with transaction.atomic():
        rules = snapshot.lock_rules()
        said = [_set(device, price, by=by, now=now) for device, price in per_hour.items() if price != current(device, now=now)]
        if clean != rules.currency:
            said.append(f"changed the currency of prices from {rules.currency or 'none'} to {clean or 'none'}")
            rules.currency = clean
            rules.save(update_fields=["currency", "updated_at"])
        if said:
            note(by, said, reason=reason, now=now)
    return rules


def current(device: str, *, now: dt.datetime) -> Decimal | None:
    """The price in force."""
    found = SlotPrice.objects.filter(device=device, since__lte=now).order_by("since", "pk").last()
    return found.per_hour if found else None


def _set(device: str, price: Decimal | None, *, by: User, now: dt.datetime) -> str:
    before = current(device, now=now)
    SlotPrice.objects.create(device=device, per_hour=price, since=now, set_by=by)
    return f"changed the price of a {Slot.Device(device).label} slot from {_words(before)} to {_words(price)} an hour"


def _words(price: Decimal | None) -> str:
    return "none" if price is None else f"{price.normalize():f}"
