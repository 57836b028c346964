"""The forms of people's accounts."""

from __future__ import annotations

from django import forms

from experiments.forms.wording import Form

NAME = {"autocomplete": "off", "autocapitalize": "none", "spellcheck": "false"}


class NewPersonForm(Form):
    username = forms.CharField(
        label="Name",
        max_length=150,
        help_text="As it is typed at the log-in: letters, digits and @ . + - _",
        widget=forms.TextInput(attrs=NAME),
    )
    administers = forms.BooleanField(label="Administers the cluster", required=False)


class CloseForm(Form):
    reason = forms.CharField(
        label="Reason", max_length=400, required=False, help_text="Everybody can read it.", widget=forms.TextInput(attrs=NAME)
    )
    stop_runs = forms.BooleanField(label="Stop the runs that have not ended", required=False)


class HandOverForm(Form):
    username = forms.CharField(label="To", max_length=150, help_text="Becomes an admin of them.", widget=forms.TextInput(attrs=NAME))
