"""Columns that every run has: fields of its row and of what it belongs to."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Sequence
from dataclasses import dataclass

from django.db.models import DateTimeField, DurationField, ExpressionWrapper, F, Q
from django.db.models import Value as Constant
from django.db.models.expressions import Combinable
from django.db.models.functions import Coalesce
from django.db.models.lookups import Exact, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual

from experiments.models import RunState, TrainingRun
from experiments.models.runs import ENDED, LIVE
from experiments.runtable.columns import LOOKUPS, Column, moment, number, ordered, span
from experiments.runtable.language import Refused, Value

STATES: dict[str, tuple[str, ...]] = {"live": tuple(LIVE), "ended": tuple(ENDED)}
TURNED = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
FAR = 2.0**62  # a whole number of a database is nearer than that
COMPARED = {"=": Exact, "<": LessThan, "<=": LessThanOrEqual, ">": GreaterThan, ">=": GreaterThanOrEqual}


@dataclass(frozen=True)
class Fact(Column):
    """`path`: of a field of the run, which is a text."""

    key: str
    label: str
    path: str

    def condition(self, operator: str, value: Value, *, now: dt.datetime) -> Q:
        if operator.startswith("!"):
            return self.is_set() & ~self.condition({"!=": "=", "!~": "~"}[operator], value, now=now)
        if operator not in ("=", "~"):
            raise Refused(value.begin, value.end, f"{self.label} is a text: it is compared by =, !=, ~ (contains), !~ and in.")
        return Q(**{self.path + LOOKUPS[operator]: value.text})

    def among(self, values: Sequence[Value]) -> Q:
        return Q(**{f"{self.path}__in": [value.text for value in values]})

    def is_set(self) -> Q:
        return Q(**{f"{self.path}__isnull": False}) & ~Q(**{self.path: ""})

    def keys(self, now: dt.datetime) -> list[Combinable]:  # noqa: ARG002  (others need it)
        return [F(self.path)]

    def value(self, run: TrainingRun, now: dt.datetime) -> object:  # noqa: ARG002
        """What stands in the run's row."""
        found: object = run
        for name in self.path.split("__"):
            found = getattr(found, name, None)
        return None if found == "" else found


@dataclass(frozen=True)
class State(Fact):
    """Also by its groups: live and ended."""

    def condition(self, operator: str, value: Value, *, now: dt.datetime) -> Q:
        return self.among([value]) if operator == "=" else super().condition(operator, value, now=now)

    def among(self, values: Sequence[Value]) -> Q:
        return Q(state__in=[state for value in values for state in self._named(value)])

    def value(self, run: TrainingRun, now: dt.datetime) -> object:  # noqa: ARG002
        return RunState(run.state)

    def _named(self, value: Value) -> tuple[str, ...]:
        said = value.text.lower()
        if said not in STATES and said not in RunState.values:
            raise Refused(value.begin, value.end, f"There is no such state: there are {', '.join((*STATES, *RunState.values))}.")
        return STATES.get(said, (said,))


class Ordered(Fact):
    """What has an order: it is not compared as a text."""

    def condition(self, operator: str, value: Value, *, now: dt.datetime) -> Q:
        if operator == "!=":
            return self.is_set() & ~self.condition("=", value, now=now)
        return self.compared(ordered(self, operator, value), value, now)

    def compared(self, operator: str, value: Value, now: dt.datetime) -> Q:
        """By one of columns.ORDERED."""
        raise NotImplementedError

    def is_set(self) -> Q:
        return Q(**{f"{self.path}__isnull": False})


@dataclass(frozen=True)
class Whole(Ordered):
    """A whole number."""

    @property
    def numeric(self) -> bool:
        return True

    def compared(self, operator: str, value: Value, now: dt.datetime) -> Q:  # noqa: ARG002
        if operator == "=":
            return self.among([value])
        wanted = max(-FAR, min(FAR, number(self, value)))
        return Q(**{self.path + LOOKUPS[operator]: math.floor(wanted) if operator in ("<=", ">") else math.ceil(wanted)})

    def among(self, values: Sequence[Value]) -> Q:
        wanted = [number(self, value) for value in values]
        return Q(**{f"{self.path}__in": [int(each) for each in wanted if abs(each) <= FAR and each == int(each)]})


@dataclass(frozen=True)
class Time(Ordered):
    """A moment."""

    @property
    def descending_first(self) -> bool:
        return True

    def compared(self, operator: str, value: Value, now: dt.datetime) -> Q:  # noqa: ARG002
        return Q(**{self.path + LOOKUPS[operator]: moment(self, value)})

    def among(self, values: Sequence[Value]) -> Q:
        return Q(**{f"{self.path}__in": [moment(self, value) for value in values]})


@dataclass(frozen=True)
class Span(Ordered):
    """The time from `path` to the end of the run, where `ends`, or to now."""

    ends: bool

    @property
    def numeric(self) -> bool:
        return True

    def compared(self, operator: str, value: Value, now: dt.datetime) -> Q:
        wanted = span(self, value)
        if self.ends:
            lasted = COMPARED[operator](self.keys(now)[0], Constant(wanted, output_field=DurationField()))
            return self.is_set() & Q(lasted)
        try:
            return Q(**{self.path + LOOKUPS[TURNED[operator]]: now - wanted})
        except OverflowError:  # before there were calendars
            return Q() if operator in ("<", "<=") else Q(pk__in=[])

    def among(self, values: Sequence[Value]) -> Q:
        raise Refused(values[0].begin, values[-1].end, f"{self.label} goes on: compare it by < and >, as in {self.key} > 2h.")

    def keys(self, now: dt.datetime) -> list[Combinable]:
        today = Constant(now, output_field=DateTimeField())
        end = Coalesce(F("ended_at"), today) if self.ends else today
        return [ExpressionWrapper(end - F(self.path), output_field=DurationField())]

    def value(self, run: TrainingRun, now: dt.datetime) -> object:
        since = getattr(run, self.path)
        return None if since is None else ((run.ended_at if self.ends else None) or now) - since


FACTS: dict[str, Column] = {
    each.key: each
    for each in (
        Whole("id", "Run", "pk"),
        Fact("name", "Name", "name"),
        State("state", "State", "state"),
        Fact("experiment", "Experiment", "experiment__name"),
        Fact("definition", "Training definition", "version__definition__name"),
        Fact("user", "Submitter", "submitted_by__username"),
        Fact("machine", "Machine", "head_node__name"),
        Span("duration", "Duration", "started_at", ends=True),
        Span("age", "Age", "submitted_at", ends=False),
        Time("submitted", "Submitted", "submitted_at"),
        Time("started", "Started", "started_at"),
        Time("ended", "Ended", "ended_at"),
        Whole("step", "Step", "step"),
        Whole("epoch", "Epoch", "epoch"),
        Whole("slots", "Maximum slots", "max_slots"),
        Whole("priority", "Priority", "priority"),
        Fact("command", "Command", "command"),
        Fact("note", "Note", "note"),
        Fact("error", "Error", "error_message"),
    )
}
GROUPING = ("state", "experiment", "definition", "user", "machine")
