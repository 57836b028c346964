"""What browsers send of data: files and what they are called, and the choice of a version of a data set. As in `forms`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django import forms
from django.forms.models import ModelChoiceIterator

from experiments.forms.edits import EditForm
from experiments.forms.wording import Form
from experiments.models import DataAsset
from experiments.models.data import NOTE_LIMIT


class FilesInput(forms.FileInput):
    allow_multiple_selected = True


class FilesField(forms.FileField):
    """One or more files."""

    widget = FilesInput

    def clean(self, data: Any, initial: Any = None) -> list[Any]:
        chosen = [each for each in (data if isinstance(data, (list, tuple)) else [data]) if each is not None]
        if not chosen:
            return [super().clean(None, initial)] if self.required else []
        return chosen  # an empty file is a file


class DataFilesForm(Form):
    """Files that become a data asset: they come with the form, or have come before (`kept`)."""

    kept = forms.IntegerField(required=False, min_value=1, max_value=2**62, widget=forms.HiddenInput)
    upload = FilesField(
        label="Files",
        required=False,
        help_text="One .zip, which is unpacked and checked, or any files, which are kept as they are.",
    )

    def clean_kept(self) -> int | None:
        """Without script a box says that the files that have arrived are not wanted."""
        return None if self.data.get("forget") else self.cleaned_data["kept"]

    def clean(self) -> dict[str, Any]:
        said: dict[str, Any] = super().clean() or self.cleaned_data
        if not said.get("upload") and not said.get("kept") and "upload" not in self.errors:
            self.add_error("upload", "Choose a .zip file, or the files themselves.")
        return said


class DataForm(DataFilesForm):
    field_order = ["name", "description"]

    name = forms.CharField(max_length=120, widget=forms.TextInput(attrs={"autocomplete": "off"}))
    description = forms.CharField(max_length=4000, required=False, widget=forms.Textarea(attrs={"rows": 2}))


class DataVersionForm(DataFilesForm):
    field_order = ["note"]

    note = forms.CharField(
        label="What is new",
        max_length=NOTE_LIMIT,
        required=False,
        help_text="One line, shown in the list of versions.",
        widget=forms.TextInput(attrs={"autocomplete": "off"}),
    )


class DataSettingsForm(EditForm):
    name = forms.CharField(max_length=120, widget=forms.TextInput(attrs={"autofocus": True}))
    description = forms.CharField(max_length=4000, required=False, widget=forms.Textarea(attrs={"rows": 2}))


class DataChoices(ModelChoiceIterator):  # type: ignore[type-arg]  # generic only for the checker
    """Data sets, those with the newest versions first; of each its versions, newest first, under its name where there are several."""

    def __iter__(self) -> Iterator[Any]:
        yield ("", self.field.empty_label)
        series: dict[int, list[DataAsset]] = {}
        for asset in self.queryset:
            series.setdefault(asset.series_id, []).append(asset)
        for versions in series.values():
            found = [self.choice(each) for each in sorted(versions, key=lambda each: -each.version)]
            if len(found) == 1:
                yield found[0]
            else:
                yield (versions[0].name, [(found[0][0], f"{found[0][1]}, newest"), *found[1:]])


class DataChoice(forms.ModelChoiceField):  # type: ignore[type-arg]  # generic only for the checker
    iterator = DataChoices
