"""What the domain refuses: its sentences, by field or of the whole, and how Django's own refusals become it."""

from __future__ import annotations

import pickle

import pytest
from django import forms
from django.core.exceptions import ValidationError
from django.core.validators import EmailValidator

from experiments.accounts.passwords import give_password
from experiments.django_validation import as_domain_error
from experiments.errors import DomainError
from experiments.forms.common import attempt
from experiments.models import User
from experiments.services import checks


class Names(forms.Form):
    name = forms.CharField(required=False)


def test_a_refusal_of_the_whole_has_sentences_and_no_fields() -> None:
    error = DomainError("The run has not ended.")
    assert (error.messages, error.fields, str(error)) == (["The run has not ended."], {}, "The run has not ended.")
    assert error.by_field("upload") == {"upload": ["The run has not ended."]}


def test_a_refusal_of_fields_says_each_in_its_order() -> None:
    error = DomainError({"name": ["Give a name."], "note": "Too long."})
    assert error.fields == {"name": ["Give a name."], "note": ["Too long."]}
    assert (error.messages, str(error)) == (["Give a name.", "Too long."], "Give a name. Too long.")
    assert error.by_field("upload") == error.fields


@pytest.mark.parametrize("says", ["One.", ["One.", "Two."], {"name": ["One."]}])
def test_it_passes_between_processes_as_it_is(says: str | list[str] | dict[str, list[str]]) -> None:
    error = DomainError(says)
    arrived = pickle.loads(pickle.dumps(error))
    assert (type(arrived), arrived.messages, arrived.fields) == (DomainError, error.messages, error.fields)


def test_errors_that_are_put_by_are_raised_as_one_and_none_is_lost() -> None:
    errors: list[DomainError] = []
    assert checks.each(errors, lambda: checks.name("")) is None
    assert checks.each(errors, lambda: checks.whole(0, field="slots", least=1, most=4)) is None
    with pytest.raises(DomainError) as raised:
        checks.collected(errors)
    assert list(raised.value.fields) == ["name", "slots"]
    with pytest.raises(DomainError, match="The run has ended"):
        checks.collected([*errors, DomainError("The run has ended.")])


def test_a_form_shows_it_beside_the_fields_that_it_has_and_above_it_what_is_of_no_field() -> None:
    def refuse(says: str | dict[str, str]) -> None:
        raise DomainError(says)

    form = Names({})
    assert form.is_valid()
    for says in ({"name": "Give a name."}, {"thresholds": "Remove one first."}, "The run has ended."):
        assert attempt(form, lambda says=says: refuse(says)) is None  # type: ignore[misc]
    assert form.errors["name"] == ["Give a name."]
    assert form.non_field_errors() == ["Remove one first.", "The run has ended."]


def test_what_djangos_validators_refuse_is_of_the_field_that_was_asked() -> None:
    with pytest.raises(DomainError) as refused, as_domain_error(field="email"):
        EmailValidator("This is not an e-mail address.")("nobody")
    assert refused.value.fields == {"email": ["This is not an e-mail address."]}
    with pytest.raises(DomainError) as refused, as_domain_error():
        EmailValidator("This is not an e-mail address.")("nobody")
    assert (refused.value.fields, refused.value.messages) == ({}, ["This is not an e-mail address."])


@pytest.mark.django_db
def test_an_account_that_cannot_be_is_refused_in_djangos_words() -> None:
    with pytest.raises(ValidationError) as own:
        User(username="two words", password="-").full_clean()
    with pytest.raises(DomainError) as refused:
        give_password("two words")
    assert refused.value.fields == own.value.message_dict
    assert list(refused.value.fields) == ["username"]
    assert not User.objects.filter(username="two words").exists()
