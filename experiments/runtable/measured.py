"""Columns that some runs have: arguments, tags and metrics. Each is looked up by the run, in a row of its own."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass

from django.db.models import Exists, OuterRef, Q, Subquery
from django.db.models.expressions import Combinable

from experiments.models import MetricSeries, RunValue
from experiments.runtable.columns import LOOKUPS, Column, number, ordered
from experiments.runtable.directions import Better, better
from experiments.runtable.language import Name, Refused, Value

FIELDS = {"last": ("last_value", "last_step"), "min": ("least", "least_step"), "max": ("greatest", "greatest_step")}
KINDS = ("argument", "tag", "train", "test")


@dataclass(frozen=True)
class Argument(Column):
    """`name`: plain, as in RunValue. Numbers come before texts."""

    name: str

    @property
    def key(self) -> str:  # type: ignore[override]
        return f"arg.{self.name}"

    @property
    def label(self) -> str:  # type: ignore[override]
        return self.name

    @property
    def numeric(self) -> bool:
        return True

    @property
    def descending_first(self) -> bool:
        return False

    def condition(self, operator: str, value: Value, *, now: dt.datetime) -> Q:  # noqa: ARG002  (others need it)
        if operator == "!=":
            return self._where(~self._equal([value]))
        if operator == "!~":
            return self._where(~Q(text__icontains=value.text))
        if operator == "~":
            return self._where(Q(text__icontains=value.text))
        if operator == "=":
            return self.among([value])
        return self._where(Q(**{f"number{LOOKUPS[ordered(self, operator, value)]}": number(self, value)}))

    def among(self, values: Sequence[Value]) -> Q:
        return self._where(self._equal(values))

    def is_set(self) -> Q:
        return self._where(Q())

    def keys(self, now: dt.datetime) -> list[Combinable]:  # noqa: ARG002
        return [self.stored("number"), self.stored("text")]

    def stored(self, field: str, *, run: str = "pk") -> Subquery:
        """This field of its row. `run`: where the query that this stands in has the run's number."""
        return Subquery(RunValue.objects.filter(run=OuterRef(run), kind="argument", name=self.name).values(field)[:1])

    def _where(self, condition: Q) -> Q:
        return Q(Exists(RunValue.objects.filter(condition, run=OuterRef("pk"), kind="argument", name=self.name)))

    @staticmethod
    def _equal(values: Sequence[Value]) -> Q:
        """A number is the same however it is written; a text is the same letter by letter."""
        numbers = [value.number for value in values if value.kind == "number"]
        texts = [value.text for value in values if value.kind != "number"]
        same = Q(number__in=numbers, number__isnull=False) if numbers else Q()
        return same | Q(text__in=texts) if texts else same


@dataclass(frozen=True)
class Tags(Column):
    """A run has any number of them: it is equal to each, and to none of the others."""

    key: str = "tag"
    label: str = "Tags"

    def condition(self, operator: str, value: Value, *, now: dt.datetime) -> Q:
        if operator in ("!=", "!~"):
            return ~self.condition("=" if operator == "!=" else "~", value, now=now)
        if operator not in ("=", "~"):
            raise Refused(value.begin, value.end, "Tags are compared by = (has it), !=, ~ (one of them contains), !~ and in.")
        return self._where(Q(**{f"name{LOOKUPS[operator]}": value.text}))

    def among(self, values: Sequence[Value]) -> Q:
        return self._where(Q(name__in=[value.text for value in values]))

    def is_set(self) -> Q:
        return self._where(Q())

    def keys(self, now: dt.datetime) -> list[Combinable]:  # noqa: ARG002
        return [Subquery(RunValue.objects.filter(run=OuterRef("pk"), kind="tag").order_by("name").values("name")[:1])]

    @staticmethod
    def _where(condition: Q) -> Q:
        return Q(Exists(RunValue.objects.filter(condition, run=OuterRef("pk"), kind="tag")))


@dataclass(frozen=True)
class Metric(Column):
    """`use`: which of its values: "last", "best", "min" or "max". `which`: "last", "min" or "max", which "best" is one of."""

    group: str
    name: str
    use: str
    which: str

    @property
    def key(self) -> str:  # type: ignore[override]
        plain = f"{self.group}.{self.name}"
        return plain if self.use == "last" else f"{self.use}({plain})"

    @property
    def label(self) -> str:  # type: ignore[override]
        return f"{'' if self.use == 'last' else f'{self.use} '}{self.group} {self.name}"

    @property
    def mean_label(self) -> str:
        """The head of its mean in a group."""
        return f"Mean {self.label}"

    @property
    def numeric(self) -> bool:
        return True

    @property
    def better(self) -> Better | None:
        return better(self.name)

    @property
    def descending_first(self) -> bool:
        """The best first, where it is known which that is."""
        return self.better != "less"

    @property
    def field(self) -> str:
        return FIELDS[self.which][0]

    @property
    def step_field(self) -> str:
        return FIELDS[self.which][1]

    def condition(self, operator: str, value: Value, *, now: dt.datetime) -> Q:  # noqa: ARG002
        if operator == "!=":
            return self._where(Q(**{f"{self.field}__isnull": False}) & ~Q(**{self.field: number(self, value)}))
        return self._where(Q(**{self.field + LOOKUPS[ordered(self, operator, value)]: number(self, value)}))

    def among(self, values: Sequence[Value]) -> Q:
        return self._where(Q(**{f"{self.field}__in": [number(self, value) for value in values]}))

    def is_set(self) -> Q:
        return self._where(Q(**{f"{self.field}__isnull": False}))

    def is_nan(self, name: Name) -> Q:  # noqa: ARG002
        return self._where(Q(**{f"{self.field}__isnull": True}))

    def keys(self, now: dt.datetime) -> list[Combinable]:  # noqa: ARG002
        return [Subquery(MetricSeries.objects.filter(run=OuterRef("pk"), group=self.group, name=self.name).values(self.field)[:1])]

    def _where(self, condition: Q) -> Q:
        return Q(Exists(MetricSeries.objects.filter(condition, run=OuterRef("pk"), group=self.group, name=self.name)))


def metric(group: str, name: str, use: str) -> Metric | None:
    """None where the best is asked for and nobody knows which that is."""
    which = {"less": "min", "more": "max", None: ""}[better(name)] if use == "best" else use
    return Metric(group, name, use, which) if which else None
