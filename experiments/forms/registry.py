"""What browsers send of registered models, parsed at the edge."""

from __future__ import annotations

from typing import Any

from django import forms
from django.core.exceptions import ValidationError

from experiments.files import diskuse
from experiments.files.registrable import Candidate
from experiments.forms.edits import EditForm
from experiments.forms.sent_once import RequestForm
from experiments.forms.wording import Form
from experiments.models.registry import ALIAS_LIMIT, NAME_LIMIT, NOTE_LIMIT

KINDS = {
    "final": "final model",
    "stopped": "model as it was when the run was stopped",
    "folder": "folder of a model",
    "model": "model",
    "checkpoint": "checkpoint",
    "other": "file",
}
NAME_HELP = "A new name makes a new model; of a name that there is already it becomes the next version."


class TagsField(forms.CharField):
    """Lines as NAME=VALUE, or NAME alone."""

    widget = forms.Textarea(attrs={"rows": 2, "spellcheck": "false"})

    def prepare_value(self, value: Any) -> Any:
        return "\n".join(f"{name}={said}" if said else name for name, said in value.items()) if isinstance(value, dict) else value

    def clean(self, value: Any) -> dict[str, str]:
        lines = [line.strip() for line in str(super().clean(value)).splitlines() if line.strip()]
        pairs = [line.partition("=") for line in lines]
        found = {name.strip(): said.strip() for name, _, said in pairs}
        if len(found) < len(pairs):
            raise ValidationError("A tag is there twice: give each name once.")
        return found


def note_field() -> forms.CharField:
    return forms.CharField(max_length=NOTE_LIMIT, required=False, help_text="Markdown.", widget=forms.Textarea(attrs={"rows": 6}))


def tags_field() -> TagsField:
    return TagsField(required=False, help_text="A line each: name=value, or a name alone.")


class RegisterForm(RequestForm):
    path = forms.ChoiceField(label="What of the run", help_text="It is copied: it stays when the run is deleted.")
    name = forms.CharField(label="Model", max_length=NAME_LIMIT, help_text=NAME_HELP, widget=forms.TextInput(attrs={"autocomplete": "off"}))
    aliases = forms.CharField(
        required=False,
        max_length=ALIAS_LIMIT * 4,
        help_text="Names that point to this version from now on, such as champion; several with commas between them.",
        widget=forms.TextInput(attrs={"autocomplete": "off", "autocapitalize": "none", "spellcheck": "false"}),
    )
    note = note_field()
    tags = tags_field()

    def __init__(self, data: Any, *, candidates: list[Candidate], initial: dict[str, Any]) -> None:
        super().__init__(data, initial=initial)
        named = [(each.path, f"{each.path} ({KINDS[each.kind]}, {diskuse.spelled(each.size_bytes)})") for each in candidates]
        field = self.fields["path"]
        assert isinstance(field, forms.ChoiceField)
        field.choices = named
        self.fields["name"].widget.attrs["list"] = "model-names"

    def clean_aliases(self) -> list[str]:
        return [each.strip() for each in self.cleaned_data["aliases"].split(",") if each.strip()]


class ModelForm(EditForm):
    name = forms.CharField(max_length=NAME_LIMIT)
    note = note_field()
    tags = tags_field()


class ModelVersionForm(EditForm):
    note = note_field()
    tags = tags_field()


class AliasForm(Form):
    alias = forms.CharField(
        max_length=ALIAS_LIMIT, widget=forms.TextInput(attrs={"autocomplete": "off", "autocapitalize": "none", "spellcheck": "false"})
    )
