"""What is asked of the page of usage, and the prices of slots."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

from django import forms
from django.http import HttpRequest

from experiments.cluster import spans
from experiments.cluster.spans import Span, WrongSpan
from experiments.forms.wording import Form
from experiments.services.prices import CURRENCY_LIMIT, MOST

DAYS = ((1, "24 hours"), (7, "7 days"), (30, "30 days"), (90, "90 days"))
USUAL_DAYS = 7
ZONE = "zone"  # a cookie that times.js sets: the reader's time zone


class SpanForm(Form):
    """Own dates, both included."""

    first = forms.DateField(label="From", widget=forms.DateInput(attrs={"type": "date", "class": "input"}, format="%Y-%m-%d"))
    last = forms.DateField(label="To", widget=forms.DateInput(attrs={"type": "date", "class": "input"}, format="%Y-%m-%d"))

    def __init__(self, *args: Any, now: dt.datetime, zone: Any, **given: Any) -> None:
        super().__init__(*args, **given)
        self.now, self.zone = now, zone
        self.span: Span | None = None

    def clean(self) -> dict[str, Any]:
        said: dict[str, Any] = super().clean() or self.cleaned_data
        if "first" in said and "last" in said:
            try:
                self.span = spans.of_dates(said["first"], said["last"], now=self.now, zone=self.zone)
            except WrongSpan as wrong:
                self.add_error("first", str(wrong))
        return said


def zone_of(request: HttpRequest) -> Any:
    return spans.zone_of(request.GET.get(ZONE) or request.COOKIES.get(ZONE, ""))


class PricesForm(Form):
    """An empty price: nothing is charged."""

    cpu = forms.DecimalField(label="CPU slot, an hour", required=False, min_value=Decimal(0), max_value=MOST, decimal_places=4)
    gpu = forms.DecimalField(label="GPU slot, an hour", required=False, min_value=Decimal(0), max_value=MOST, decimal_places=4)
    currency = forms.CharField(required=False, max_length=CURRENCY_LIMIT, widget=forms.TextInput(attrs={"autocomplete": "off"}))
    reason = forms.CharField(
        required=False, max_length=400, help_text="Everybody can read it.", widget=forms.TextInput(attrs={"autocomplete": "off"})
    )
