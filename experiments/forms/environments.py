"""The forms of environments that administrators offer by name."""

from __future__ import annotations

from django import forms

from experiments.forms.edits import EditForm
from experiments.forms.sent_once import RequestForm
from experiments.services.named_environments import NAME_LIMIT, TEXT_LIMIT

PLAIN = {"class": "mono", "autocomplete": "off", "autocapitalize": "none", "spellcheck": "false"}


class NamedEnvironmentForm(RequestForm):
    name = forms.CharField(max_length=NAME_LIMIT, widget=forms.TextInput(attrs={"autocomplete": "off"}))
    description = forms.CharField(max_length=4000, required=False, help_text="What it is for.", widget=forms.Textarea(attrs={"rows": 2}))
    text = forms.CharField(
        label="Requirements",
        max_length=TEXT_LIMIT,
        strip=False,  # errors name lines by their numbers
        help_text="As in requirements.txt: a package a line, such as transformers>=4.40. torch and numpy stay as they are on the machines.",
        widget=forms.Textarea(attrs={**PLAIN, "rows": 12}),
        error_messages={"required": "Name at least one package, such as transformers>=4.40."},
    )


class NamedEnvironmentSettingsForm(EditForm, NamedEnvironmentForm):
    """Of one that there is."""
