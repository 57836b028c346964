"""The forms of training definitions and their versions: what a version is, and where its code comes from."""

from __future__ import annotations

from typing import Any

from django import forms

from experiments.definitions import gitcode
from experiments.forms.sent_once import RequestForm
from experiments.models import DefinitionVersion, NamedEnvironment, TrainingDefinition
from experiments.models.definitions import BY_CODE, MAX_SLOTS_LIMIT, NAMED, usual_slots

FILE_AGAIN = "Choose the file with the code again: browsers do not keep a chosen file when a form comes back."
NO_CODE = "Choose a .zip, .tar, .tar.gz, .py or .ipynb file with the model code, or give the address of a git repository."
TYPES = (
    "Unless you choose, it is found in the script. Elastic is for FabricModel and loops of edt.elastic. torchrun runs scripts that are "
    "written for torch.distributed and keep checkpoints of their own. A single process is one process that sees the GPUs of all its slots."
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
    distributed = forms.ChoiceField(
        label="Distributed training type", choices=[(BY_CODE, "As the code says"), *DefinitionVersion.Distributed.choices], help_text=TYPES
    )
    max_slots = forms.IntegerField(
        label="Maximum number of slots",
        required=False,
        min_value=1,
        max_value=MAX_SLOTS_LIMIT,
        help_text="Elastic runs grow up to this many slots when they are free, and shrink when others need them. torchrun and a single "
        "process start with all of them, on one machine, and their number is fixed while they run. Left empty: 4, for a single process 1.",
    )
    packages = forms.ChoiceField(
        required=False,
        help_text="What requirements.txt or pyproject.toml beside the script names, or a notebook installs, is built, unless you choose "
        "something else: then it is not read.",
    )
    network = forms.ChoiceField(
        required=False,
        choices=DefinitionVersion.Network.choices,
        help_text="What its runs reach. The internet is for scripts that download models or data, or report to a service; private networks "
        "and this studio's machines stay closed. Packages are installed before the run either way.",
    )

    def __init__(self, *args: Any, **given: Any) -> None:
        super().__init__(*args, **given)
        packages = self.fields["packages"]
        assert isinstance(packages, forms.ChoiceField)
        packages.choices = packages_choices(str(self.initial.get("packages", "")))

    def clean_kept(self) -> int | None:
        """Without script a box says that the file that has arrived is not wanted."""
        return None if self.data.get(self.add_prefix("forget")) else self.cleaned_data["kept"]

    def clean_packages(self) -> str:
        """Who says nothing means the usual."""
        return self.cleaned_data["packages"] or DefinitionVersion.Packages.OWN

    def clean_network(self) -> str:
        """Likewise."""
        return self.cleaned_data["network"] or DefinitionVersion.Network.NONE


def packages_choices(now: str) -> list[tuple[str, Any]]:
    """What a version can have; `now`: what the version before has, which is shown though it is retired."""
    usual = [(each.value, each.label) for each in (DefinitionVersion.Packages.OWN, DefinitionVersion.Packages.STUDIO)]
    found = [each for each in NamedEnvironment.objects.all() if not each.retired_at or f"{NAMED}{each.pk}" == now]
    offered = [(f"{NAMED}{each.pk}", f"{each.name}{' (retired)' * bool(each.retired_at)}") for each in found]
    return [*usual, ("Offered by administrators", offered)] if offered else [*usual]


PLAIN = {"class": "mono", "autocomplete": "off", "autocapitalize": "none", "spellcheck": "false"}


class SecretInput(forms.Textarea):
    """What was typed is not sent back, as a password is not."""

    def format_value(self, value: Any) -> str:  # noqa: ARG002
        return ""


class SourceForm(AttributesForm):
    """Where the code comes from: a file, or a repository of git."""

    git_address = forms.CharField(
        label="Address of a git repository",
        max_length=gitcode.LONGEST_ADDRESS,
        required=False,
        help_text="https://... or git@host:...; the newest commit is fetched now, and kept.",
        widget=forms.TextInput(attrs={**PLAIN, "placeholder": "https://github.com/someone/project.git"}),
    )
    git_ref = forms.CharField(
        label="Branch, tag or commit",
        max_length=gitcode.LONGEST_REF,
        required=False,
        help_text="Left empty: the branch that the repository shows first.",
        widget=forms.TextInput(attrs=PLAIN),
    )
    git_folder = forms.CharField(
        label="Folder in the repository",
        max_length=gitcode.LONGEST_FOLDER,
        required=False,
        help_text="Left empty: all of it.",
        widget=forms.TextInput(attrs=PLAIN),
    )
    git_credential = forms.CharField(
        label="Deploy key or token",
        max_length=gitcode.LONGEST_KEY,
        required=False,
        help_text="For a private repository: a private ssh key, or a token (user:token where it needs a name). It is stored encrypted, for "
        "this address alone, and never shown again.",
        widget=SecretInput(attrs={**PLAIN, "rows": 2, "data-secret": True}),
    )

    def clean(self) -> dict[str, Any]:
        said: dict[str, Any] = super().clean() or self.cleaned_data
        if said.get("git_address") and (said.get("upload") or said.get("kept")):
            self.add_error("git_address", "Choose a file or give an address, not both.")
        if not said.get("git_address") and (said.get("git_ref") or said.get("git_folder") or said.get("git_credential")):
            self.add_error("git_address", gitcode.ADDRESS)
        return said

    def git(self) -> dict[str, str]:
        """What the services of git take; empty where the code is a file."""
        names = ("git_address", "git_ref", "git_folder", "git_credential")
        return {name: self.cleaned_data[name] for name in names} if self.cleaned_data["git_address"] else {}

    def service_arguments(self) -> dict[str, Any]:
        """All else, as the services take it, without the file."""
        left_out = ("upload", "kept", "git_address", "git_ref", "git_folder", "git_credential")
        return {name: value for name, value in self.cleaned_data.items() if name not in left_out}


def _code(*, help_text: str) -> forms.FileField:
    return forms.FileField(
        label="Training source code",
        required=False,
        help_text=help_text,
        widget=forms.FileInput(attrs={"accept": ".zip,.tar,.tar.gz,.tgz,.py,.ipynb"}),
        error_messages={
            "empty": "This file is empty: choose the file with the model code.",
        },
    )


class DefinitionForm(SourceForm):
    name = forms.CharField(max_length=120, widget=forms.TextInput(attrs={"autocomplete": "off"}))
    description = forms.CharField(max_length=4000, required=False, widget=forms.Textarea(attrs={"rows": 2}))
    upload = _code(help_text="A .zip, .tar or .tar.gz, flat or with one top folder; or a single .py or .ipynb file.")
    field_order = ["name", "description", "upload", "framework", "command", "device", "distributed", "max_slots", "packages", "network"]
    field_order += ["idempotency_key"]

    def clean(self) -> dict[str, Any]:
        said = super().clean()
        there = said.get("upload") or said.get("kept") or said.get("git_address")
        if not there and not {"upload", "git_address"} & self.errors.keys():
            self.add_error("upload", NO_CODE)
        return said


class VersionForm(SourceForm):
    upload = _code(help_text="Leave it empty to keep the code of the newest version and change only what stands below.")
    field_order = ["upload", "framework", "command", "device", "distributed", "max_slots", "packages", "network", "idempotency_key"]


def version_initial(definition: TrainingDefinition) -> dict[str, object]:
    """The attributes of the newest version, as a start for the next."""
    newest = definition.newest()
    same = {name: getattr(newest, name) for name in ("framework", "command", "device", "distributed", "network")}
    same["packages"] = newest.packages_choice
    # Left empty where it is as usual, so that another type has what is usual for it.
    return same | {"max_slots": newest.max_slots if newest.max_slots != usual_slots(newest.distributed) else None}
