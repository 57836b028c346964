"""Forms refuse in the studio's words, all that is wrong at once."""

from __future__ import annotations

from decimal import Decimal

import pytest
from django import forms

from experiments.forms.wording import Form
from webapp.urls import urlpatterns


def _all_below(kind: type[forms.BaseForm]) -> set[type[forms.BaseForm]]:
    return {kind, *(each for below in kind.__subclasses__() for each in _all_below(below))}


def test_every_form_of_the_studio_is_made_of_the_one_with_its_words() -> None:
    assert urlpatterns, "all views, and so all forms, are there"
    ours = {each for each in _all_below(forms.Form) if each.__module__.startswith("experiments.")}
    login = {"experiments.views.accounts.LogInForm", "experiments.views.accounts.OwnPasswordForm"}  # they are Django's
    assert len(ours) > 30
    assert {f"{each.__module__}.{each.__qualname__}" for each in ours - _all_below(Form)} <= login


class Odd(Form):
    slots = forms.IntegerField(min_value=1, max_value=4096)
    least = forms.IntegerField(min_value=0)
    hours = forms.FloatField(min_value=0.01, max_value=100_000)
    price = forms.DecimalField(max_value=Decimal("10.5"))
    any = forms.FloatField()
    name = forms.CharField(max_length=3)
    own = forms.IntegerField(min_value=1, error_messages={"min_value": "One at least, please."})


@pytest.mark.parametrize(
    ("field", "sent", "said"),
    [
        ("slots", "0", "Give a whole number from 1 to 4096."),
        ("slots", "4097", "Give a whole number from 1 to 4096."),
        ("slots", "many", "Give a whole number from 1 to 4096."),
        ("slots", "", "This field is required."),
        ("least", "-1", "Give a whole number of at least 0."),
        ("hours", "0", "Give a number from 0.01 to 100000."),
        ("hours", "nan", "Give a number from 0.01 to 100000."),
        ("price", "11", "Give a number of at most 10.5."),
        ("any", "x", "Give a number."),
        ("name", "long", "This has 4 characters: use at most 3."),
        ("own", "0", "One at least, please."),
    ],
)
def test_what_is_possible_is_said_of_numbers_and_lengths(field: str, sent: str, said: str) -> None:
    assert Odd({field: sent}).errors[field] == [said]
