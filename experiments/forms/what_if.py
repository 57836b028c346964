"""What somebody wishes were otherwise, as a form that is sent with the address: see views/what_if."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from typing import cast

from django import forms

from experiments.forms.wording import Form
from experiments.models.definitions import MAX_SLOTS_LIMIT
from training_runtime.protocol import Device
from training_runtime.scheduling.facts import Policy
from training_runtime.scheduling.what_if import NewRun, Wish

MOST_MACHINES = 16
MOST_HOURS = 24.0 * 30
LATER = ((0, "now"), (1, "in 1 hour"), (2, "in 2 hours"), (4, "in 4 hours"), (8, "in 8 hours"), (12, "in 12 hours"), (24, "tomorrow"))
POLICIES = (("", "as it is"), ("fair_share", "Fair share"), ("priority", "Priority"))


def _number(least: float, most: float, step: str, **more: str) -> forms.NumberInput:
    return forms.NumberInput(attrs={"class": "input", "min": least, "max": most, "step": step, **more})


class WhatIfForm(Form):
    """A machine more or drained, a policy, somebody's weight, a run that might be submitted. Empty fields: as it is."""

    more = forms.IntegerField(
        label="More machines", min_value=0, max_value=MOST_MACHINES, required=False, widget=_number(0, MOST_MACHINES, "1", placeholder="0")
    )
    like = forms.ChoiceField(label="each like", required=False)
    without = forms.MultipleChoiceField(label="Drained", required=False, widget=forms.CheckboxSelectMultiple)
    policy = forms.ChoiceField(label="Policy", choices=POLICIES, required=False)
    person = forms.ChoiceField(label="Weight of", required=False)
    weight = forms.FloatField(
        label="would be", min_value=0.01, max_value=1000, required=False, widget=_number(0.01, 1000, "any", placeholder="1")
    )
    job_hours = forms.FloatField(
        label="A new run of so many hours",
        min_value=0.01,
        max_value=MOST_HOURS,
        required=False,
        help_text="On all its slots; on fewer it takes longer.",
        widget=_number(0.01, MOST_HOURS, "any", placeholder="none"),
    )
    job_slots = forms.IntegerField(
        label="with up to so many slots",
        min_value=1,
        max_value=MAX_SLOTS_LIMIT,
        required=False,
        widget=_number(1, MAX_SLOTS_LIMIT, "1", placeholder="4"),
    )
    job_person = forms.ChoiceField(label="of", required=False)
    job_device = forms.ChoiceField(label="on", choices=[("", "any slots"), ("gpu", "GPUs"), ("cpu", "CPU slots")], required=False)
    job_priority = forms.IntegerField(
        label="with priority", min_value=1, max_value=10_000, required=False, widget=_number(1, 10_000, "1", placeholder="5000")
    )
    job_in = forms.TypedChoiceField(label="submitted", choices=LATER, coerce=int, required=False)

    def __init__(
        self, data: Mapping[str, object] | None, *, machines: Sequence[str], people: Mapping[str, float], me: str, now: dt.datetime
    ) -> None:
        super().__init__(data or None)
        self.people, self.me, self.now, self.machines = people, me, now, machines
        named = [(name, name) for name in people]
        self._choices("like", [(name, name) for name in machines])
        self._choices("without", [(name, name) for name in machines])
        self._choices("person", [("", "nobody"), *named])
        self._choices("job_person", [("", "me"), *named])

    def _choices(self, name: str, choices: list[tuple[str, str]]) -> None:
        field = self.fields[name]
        assert isinstance(field, forms.ChoiceField)
        field.choices = choices

    def wish(self) -> Wish:
        """What was sent, once it is valid."""
        sent = self.cleaned_data
        weights = {sent["person"]: float(sent["weight"])} if sent["person"] and sent["weight"] else {}
        run = self._run()
        if run is not None:
            weights.setdefault(run.person, self.people.get(run.person, 1.0))
        return Wish(
            more=sent["more"] or 0,
            like=sent["like"] or (self.machines[0] if self.machines else ""),
            without=frozenset(sent["without"]),
            policy=cast(Policy, sent["policy"]) if sent["policy"] else None,
            person_weights=weights,
            run=run,
        )

    def _run(self) -> NewRun | None:
        sent = self.cleaned_data
        if not sent["job_hours"]:
            return None
        return NewRun(
            person=sent["job_person"] or self.me,
            at=self.now.timestamp() + 3600 * (sent["job_in"] or 0),
            lasts_s=3600 * float(sent["job_hours"]),
            max_slots=sent["job_slots"] or 4,
            device=cast(Device, sent["job_device"]) if sent["job_device"] else None,
            priority=sent["job_priority"] or 5000,
        )


class ReplayForm(Form):
    """Which days, and under what rules they are replayed."""

    DAYS = ((7, "the last 7 days"), (1, "the last day"), (30, "the last 30 days"))

    days = forms.TypedChoiceField(label="Days", choices=DAYS, coerce=int, required=False)
    policy = forms.ChoiceField(label="Policy", choices=POLICIES, required=False)
    person = forms.ChoiceField(label="Weight of", required=False)
    weight = forms.FloatField(
        label="would have been", min_value=0.01, max_value=1000, required=False, widget=_number(0.01, 1000, "any", placeholder="1")
    )

    def __init__(self, data: Mapping[str, object] | None, *, people: Iterable[str]) -> None:
        super().__init__(data or None)
        field = self.fields["person"]
        assert isinstance(field, forms.ChoiceField)
        field.choices = [("", "nobody"), *((name, name) for name in people)]

    def weights(self) -> dict[str, float]:
        """By username, of those whose weight changes."""
        sent = self.cleaned_data
        return {sent["person"]: float(sent["weight"])} if sent["person"] and sent["weight"] else {}

    def chosen_policy(self) -> Policy | None:
        """None: as it is."""
        return cast(Policy, self.cleaned_data["policy"]) if self.cleaned_data["policy"] else None
