"""What a column of a table of runs is. It knows its key, as it stands in addresses and in filters, and turns what is asked of it into
conditions and orders of a query on TrainingRun.

A comparison is true or false, never unknown: false where the run has no value. So "not" is the plain opposite.
"""

from __future__ import annotations

import datetime as dt
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from django.db.models import F, Q
from django.db.models.expressions import Combinable, OrderBy

from experiments.runtable.language import Name, Refused, Value

LOOKUPS = {"=": "", "<": "__lt", "<=": "__lte", ">": "__gt", ">=": "__gte", "~": "__icontains"}
ORDERED = ("=", "<", "<=", ">", ">=")
Keys = dict[str, Any]  # annotations that an order goes by, by their names


class Column(ABC):
    """`key`: as in addresses; `label`: its head; `numeric`: its values stand on the right, and the first click sorts the greatest first,
    unless `descending_first` knows better."""

    key: str
    label: str

    @property
    def numeric(self) -> bool:
        return False

    @property
    def descending_first(self) -> bool:
        return self.numeric

    @abstractmethod
    def condition(self, operator: str, value: Value, *, now: dt.datetime) -> Q:
        """Raises Refused."""

    @abstractmethod
    def among(self, values: Sequence[Value]) -> Q:
        """Is equal to one of them. Raises Refused."""

    @abstractmethod
    def is_set(self) -> Q:
        """The runs that have a value here."""

    @abstractmethod
    def keys(self, now: dt.datetime) -> list[Combinable]:
        """What runs are sorted by, the first first. None comes last."""

    def is_nan(self, name: Name) -> Q:
        raise Refused(name.begin, name.end, f"Only a metric can be nan; {self.label} can be set, or not set.")

    def order(self, *, descending: bool, now: dt.datetime) -> tuple[Keys, list[OrderBy]]:
        """What to annotate, and what to order by. Runs without a value come last, whichever way."""
        keys = {f"sorted_by_{number}": key for number, key in enumerate(self.keys(now))}
        return keys, [F(name).desc(nulls_last=True) if descending else F(name).asc(nulls_last=True) for name in keys]


def ordered(column: Column, operator: str, value: Value) -> str:
    """Refuses what is for texts."""
    if operator not in ORDERED:
        raise Refused(
            value.begin, value.end, f"{column.label} has an order: it is compared by =, !=, <, <=, >, >= and in, not by {operator}."
        )
    return operator


def number(column: Column, value: Value) -> float:
    if value.kind != "number":
        raise Refused(value.begin, value.end, f"{column.label} is a number: compare it with one, as in {column.key} > 0.5.")
    return value.number


def span(column: Column, value: Value) -> dt.timedelta:
    if value.kind not in ("number", "span"):
        raise Refused(
            value.begin, value.end, f"{column.label} is a length of time, as in {column.key} > 2h (s, m, h, d or w; else seconds)."
        )
    try:
        return dt.timedelta(seconds=min(value.number, 1e11))  # 3,000 years
    except (OverflowError, ValueError):
        raise Refused(value.begin, value.end, "That is too long a time.") from None


def moment(column: Column, value: Value) -> dt.datetime:
    """In UTC where it does not say."""
    try:
        if value.kind not in ("date", "text"):
            raise ValueError
        found = dt.datetime.fromisoformat(value.text)
        return (found if found.tzinfo else found.replace(tzinfo=dt.UTC)).astimezone(dt.UTC)
    except (ValueError, OverflowError):
        said = f"{column.label} is a time, as in {column.key} > 2026-11-24 or > 2026-11-24T18:30 (UTC); see also age, as in age < 7d."
        raise Refused(value.begin, value.end, said) from None
