"""The forms of training definitions and their versions: what a version is, and where its code comes from."""

from __future__ import annotations

from typing import Any

from django import forms

from experiments.models import DefinitionVersion, TrainingDefinition
from experiments.models.definitions import MAX_SLOTS_LIMIT, usual_slots
from experiments.sent_once import RequestForm

FILE_AGAIN = "Choose the file with the code again: browsers do not keep a chosen file when a form comes back."
TYPES = (
    "Elastic is for FabricModel and loops of edt.elastic. torchrun runs scripts that are written for torch.distributed and keep "
    "checkpoints of their own. A single process is one process that sees the GPUs of all its slots."
)


class AttributesForm(RequestForm):
    """What a version is beside its code; and the number of the zip with that code where it has arrived before, in pieces."""

    kept = forms.IntegerField(required=False, min_value=1, max_value=2**62, widget=forms.HiddenInput)
    framework = forms.ChoiceField(choices=DefinitionVersion.Framework.choices)
    command = forms.CharField(
        label="Execution command",
        max_length=2000,
        required=False,
        help_text="Script and its arguments, for example main.py --epochs 10. Not required if defined at experiment level.",
        widget=forms.TextInput(attrs={"class": "mono", "autocomplete": "off", "autocapitalize": "none", "spellcheck": "false"}),
    )
    device = forms.ChoiceField(label="Device per slot", choices=DefinitionVersion.Device.choices)
    distributed = forms.ChoiceField(label="Distributed training type", choices=DefinitionVersion.Distributed.choices, help_text=TYPES)
    max_slots = forms.IntegerField(
        label="Maximum number of slots",
        required=False,
        min_value=1,
        max_value=MAX_SLOTS_LIMIT,
        help_text="Elastic runs grow up to this many slots when they are free, and shrink when others need them. torchrun and a single "
        "process start with all of them, on one machine, and their number is fixed while they run. Left empty: 4, for a single process 1.",
    )
    packages = forms.ChoiceField(
        choices=DefinitionVersion.Packages.choices,
        required=False,
        help_text="What requirements.txt or pyproject.toml beside the script names is built, unless you choose that it is not read.",
    )

    def clean_packages(self) -> str:
        """Who says nothing means the usual."""
        return self.cleaned_data["packages"] or DefinitionVersion.Packages.OWN


def _code(*, required: bool, help_text: str) -> forms.FileField:
    return forms.FileField(
        label="Training source code",
        required=required,
        help_text=help_text,
        widget=forms.FileInput(attrs={"accept": ".zip,.tar,.tar.gz,.tgz,.py"}),
        error_messages={
            "required": "Choose a .zip, .tar, .tar.gz or .py file with the model code.",
            "empty": "This file is empty: choose the file with the model code.",
        },
    )


class DefinitionForm(AttributesForm):
    name = forms.CharField(max_length=120, widget=forms.TextInput(attrs={"autocomplete": "off"}))
    description = forms.CharField(max_length=4000, required=False, widget=forms.Textarea(attrs={"rows": 2}))
    upload = _code(required=True, help_text="A .zip, .tar or .tar.gz, flat or with one top folder; or a single .py file.")
    field_order = ["name", "description", "upload", "framework", "command", "device", "distributed", "max_slots", "packages", "request_id"]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.data.get(self.add_prefix("kept")):
            self.fields["upload"].required = False


class VersionForm(AttributesForm):
    upload = _code(required=False, help_text="Leave it empty to keep the code of the newest version and change only what stands below.")
    field_order = ["upload", "framework", "command", "device", "distributed", "max_slots", "packages", "request_id"]


def version_initial(definition: TrainingDefinition) -> dict[str, object]:
    """The attributes of the newest version, as a start for the next."""
    newest = definition.newest()
    same = {name: getattr(newest, name) for name in ("framework", "command", "device", "distributed", "packages")}
    # Left empty where it is as usual, so that another type has what is usual for it.
    return same | {"max_slots": newest.max_slots if newest.max_slots != usual_slots(newest.distributed) else None}
