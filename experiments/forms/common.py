"""What browsers send, parsed at the edge. Forms check shape (required, length, number); that the facts are right is checked by services,
whose DomainError `attempt` puts beside the fields.

Each form that makes something carries a hidden `idempotency_key`: sent twice as it is, it makes one; sent again with something else in it,
as after the browser's Back, it makes another."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from django import forms

from experiments.errors import DomainError
from experiments.files.checkpoint_policy import Policy, policy_of
from experiments.forms.data import DataChoice
from experiments.forms.edits import EditForm
from experiments.forms.searches import SearchForm
from experiments.forms.sent_once import RequestForm
from experiments.forms.wording import Form
from experiments.models import DataAsset, DefinitionVersion, NotificationKind, Role, User
from experiments.models.definitions import MAX_SLOTS_LIMIT
from experiments.services.watches import MOST_WATCHES, Crossing

T = TypeVar("T")
EMPTY_LINES = 2


def attempt(form: forms.BaseForm, do: Callable[[], T]) -> T | None:
    """What `do` returns; None after putting its DomainError beside the fields it names (or above the form)."""
    try:
        return do()
    except DomainError as error:
        for name, messages in error.by_field("__all__").items():
            for message in messages:
                form.add_error(name if name in form.fields else None, message)
        return None


class ProjectForm(RequestForm):
    name = forms.CharField(max_length=120, widget=forms.TextInput(attrs={"autocomplete": "off"}))
    description = forms.CharField(max_length=4000, required=False, widget=forms.Textarea(attrs={"rows": 3}))


class ProjectSettingsForm(EditForm):
    name = forms.CharField(max_length=120)
    description = forms.CharField(max_length=4000, required=False, widget=forms.Textarea(attrs={"rows": 3}))


class MemberForm(Form):
    username = forms.CharField(
        max_length=150, widget=forms.TextInput(attrs={"autocomplete": "off", "autocapitalize": "none", "spellcheck": "false"})
    )
    role = forms.ChoiceField(choices=Role.choices, initial=Role.EDITOR)


class RoleForm(Form):
    role = forms.ChoiceField(choices=Role.choices)


class ImportForm(RequestForm):
    upload = forms.FileField(
        label="Archive",
        widget=forms.FileInput(attrs={"accept": ".zip,application/zip"}),
        help_text="The .zip that Export made, of this studio or of another one.",
        error_messages={"required": "Choose the archive of a project."},
    )


class DefinitionSettingsForm(EditForm):
    name = forms.CharField(max_length=120, widget=forms.TextInput(attrs={"autofocus": True}))
    description = forms.CharField(max_length=4000, required=False, widget=forms.Textarea(attrs={"rows": 2}))


class VersionChoice(forms.ModelMultipleChoiceField):  # type: ignore[type-arg]  # generic only for the checker
    def label_from_instance(self, obj: Any) -> str:
        return str(obj)


class CopyForm(RequestForm):
    project = forms.IntegerField(min_value=1, max_value=2**62)


def variables_of(text: str) -> dict[str, str]:
    """NAME=VALUE, a line each."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if wrong := next((line for line in lines if "=" not in line), None):
        raise forms.ValidationError(f"{wrong[:80]} has no value: write NAME=VALUE, a line each.")
    return {name.strip(): value for name, _, value in (line.partition("=") for line in lines)}


class CheckpointsForm(Form):
    """Which checkpoints are kept; with an empty number all of them are."""

    keep_last = forms.IntegerField(
        label="Keep the last checkpoints", min_value=1, max_value=1000, required=False, help_text="So many; all of them if empty."
    )
    keep_best = forms.IntegerField(label="and the best", min_value=0, max_value=1000, required=False, help_text="So many, by a metric.")
    keep_metric = forms.CharField(
        label="by the metric",
        max_length=206,
        required=False,
        widget=forms.TextInput(attrs={"list": "metric-names", "placeholder": "test loss", "autocomplete": "off"}),
    )
    keep_side = forms.ChoiceField(label="best is", choices=[("min", "the lowest"), ("max", "the highest")], required=False)

    def policy(self) -> Policy:
        """Of a form that is valid. What makes no sense together is the service's business."""
        said = self.cleaned_data
        return Policy(said["keep_last"] or 0, said["keep_best"] or 0, said["keep_metric"], said["keep_side"] == "max")

    @classmethod
    def of(cls, stored: dict[str, Any]) -> CheckpointsForm:
        policy = policy_of(stored)
        side = "max" if policy.greatest else "min"
        said = {"keep_last": policy.last or None, "keep_best": policy.best or None, "keep_metric": policy.metric, "keep_side": side}
        return cls(initial=said)


class ExperimentForm(CheckpointsForm, SearchForm, RequestForm):
    """`versions` may only be those of the project, the newest of each definition (and what an experiment that is run anew names)."""

    field_order = ["name", "description", "data_asset", "source_folder", "environment"]  # as on the page: before what CheckpointsForm has

    name = forms.CharField(max_length=120, widget=forms.TextInput(attrs={"autocomplete": "off"}))
    description = forms.CharField(max_length=4000, required=False, widget=forms.Textarea(attrs={"rows": 2}))
    data_asset = DataChoice(
        label="Data",
        queryset=DataAsset.objects.none(),
        required=False,
        empty_label="Shared data",
        help_text="A data asset of this project, or the data that everybody shares. Scripts find it in the environment as DATA_DIR.",
    )
    source_folder = forms.CharField(
        label="Source files folder",
        max_length=500,
        required=False,
        help_text="The folder in that data which becomes DATA_DIR; all of it if empty.",
        widget=forms.TextInput(
            attrs={
                "class": "mono",
                "placeholder": "Relative folder path",
                "list": "folders",
                "autocomplete": "off",
                "autocapitalize": "none",
                "spellcheck": "false",
            }
        ),
    )
    versions = VersionChoice(
        label="Training definitions", queryset=DefinitionVersion.objects.none(), required=False, widget=forms.CheckboxSelectMultiple
    )
    use_global = forms.BooleanField(label="Use global execution command (override training definition values)", required=False)
    global_command = forms.CharField(
        label="Global execution command",
        max_length=2000,
        required=False,
        widget=forms.TextInput(attrs={"class": "mono", "autocomplete": "off", "autocapitalize": "none", "spellcheck": "false"}),
    )

    environment = forms.CharField(
        label="Environment variables",
        max_length=40_000,
        required=False,
        help_text="NAME=VALUE, a line each, for all its runs.",
        widget=forms.Textarea(attrs={"rows": 2, "class": "mono", "autocomplete": "off", "autocapitalize": "none", "spellcheck": "false"}),
    )

    def clean_environment(self) -> dict[str, str]:
        """Which names may be given is the service's business."""
        return variables_of(self.cleaned_data["environment"])

    def clean(self) -> dict[str, Any]:
        values: dict[str, Any] = super().clean() or self.cleaned_data
        if values.get("use_global") and not values.get("global_command"):
            self.add_error("global_command", "Write the command that all training definitions shall run, or clear the box above.")
        if not values.get("use_global"):
            values["global_command"] = ""
        return values


class PriorityForm(Form):
    priority = forms.IntegerField(min_value=1, max_value=10_000)


class SlotsForm(Form):
    min_slots = forms.IntegerField(label="Minimum", min_value=1, max_value=MAX_SLOTS_LIMIT)
    max_slots = forms.IntegerField(label="Maximum", min_value=1, max_value=MAX_SLOTS_LIMIT)


class ReasonForm(Form):
    reason = forms.CharField(max_length=500, required=False)


class ContinueForm(RequestForm):
    command = forms.CharField(max_length=2000)


class RerunForm(RequestForm):
    """`version` may be any of the run's definition. A command with lists makes several runs."""

    version = forms.ModelChoiceField(label="Version", queryset=DefinitionVersion.objects.none(), empty_label=None)
    command = forms.CharField(
        label="Execution command",
        max_length=2000,
        widget=forms.TextInput(attrs={"class": "mono", "autocomplete": "off", "autocapitalize": "none", "spellcheck": "false"}),
        help_text="A list in it, as in --lr {0.1,0.3}, makes a run of each value; quotes keep braces as they are.",
    )
    min_slots = forms.IntegerField(label="Minimum slots", min_value=1, max_value=MAX_SLOTS_LIMIT)
    max_slots = forms.IntegerField(label="Maximum slots", min_value=1, max_value=MAX_SLOTS_LIMIT)
    priority = forms.IntegerField(label="Priority (1 to 10000, higher first)", min_value=1, max_value=10_000)
    environment = forms.CharField(
        label="Environment variables",
        max_length=40_000,
        required=False,
        help_text="NAME=VALUE, a line each.",
        widget=forms.Textarea(attrs={"rows": 2, "class": "mono", "autocomplete": "off", "autocapitalize": "none", "spellcheck": "false"}),
    )

    def clean_environment(self) -> dict[str, str]:
        """Which names may be given is the service's business."""
        return variables_of(self.cleaned_data["environment"])


class CommentForm(RequestForm):
    text = forms.CharField(max_length=4000, widget=forms.Textarea(attrs={"rows": 3}))


class NoteForm(EditForm):
    tags = forms.CharField(
        max_length=600,
        required=False,
        help_text="Separated by commas. A click on a tag shows the runs that have it.",
        widget=forms.TextInput(attrs={"autocomplete": "off"}),
    )
    note = forms.CharField(max_length=4000, required=False, widget=forms.Textarea(attrs={"rows": 6}))


class WebhookForm(Form):
    url = forms.CharField(
        label="Address",
        max_length=500,
        help_text="Is sent a signed POST for each event. It must be on the open internet, unless an administrator allows it.",
        widget=forms.TextInput(attrs={"class": "mono", "placeholder": "https://example.org/hook", "inputmode": "url"}),
    )
    kinds = forms.MultipleChoiceField(
        label="Events", choices=NotificationKind.choices, initial=NotificationKind.values, widget=forms.CheckboxSelectMultiple
    )

    def __init__(self, *args: Any, kinds: Sequence[NotificationKind] = (), **more: Any) -> None:
        """`kinds`: those that there are to choose from, where that is not all."""
        super().__init__(*args, **more)
        field = self.fields["kinds"]
        if kinds and isinstance(field, forms.MultipleChoiceField):
            field.choices = [(kind.value, kind.label) for kind in kinds]


class ProjectWebhookForm(WebhookForm):
    """The same, in the words of somebody who is told of everybody's runs."""

    OF_ANYBODY = (
        (NotificationKind.COMPLETED, "A run has completed"),
        (NotificationKind.FAILED, "A run has failed"),
        (NotificationKind.SUSPENDED, "A run has lost all its slots"),
        (NotificationKind.STOPPED, "A run was stopped"),
        (NotificationKind.SEARCH, "A search for hyperparameters has ended"),
        (NotificationKind.NOT_FINITE, "A metric has become NaN or infinite"),
        (NotificationKind.THRESHOLD, "A metric has crossed a threshold that a member set"),
        (NotificationKind.CHANGED, "A run was changed (priority, slots, pause)"),
        (NotificationKind.MEMBER, "Somebody was added to the project, or a role has changed"),
    )
    kinds = forms.MultipleChoiceField(
        label="Events", choices=OF_ANYBODY, initial=NotificationKind.values, widget=forms.CheckboxSelectMultiple
    )


class WatchForm(Form):
    """One line: which metric, which way, which value."""

    metric = forms.CharField(
        label="Metric",
        max_length=206,
        widget=forms.TextInput(
            attrs={"class": "input", "list": "metric-names", "placeholder": "train loss", "aria-label": "Metric", "autocomplete": "off"}
        ),
    )
    side = forms.ChoiceField(
        label="Direction",
        choices=[("below", "falls below"), ("above", "rises above")],
        initial="below",
        widget=forms.Select(attrs={"class": "input select-inline", "aria-label": "Direction"}),
    )
    threshold = forms.FloatField(
        label="Value",
        widget=forms.NumberInput(attrs={"class": "input small-input", "aria-label": "Value", "placeholder": "0.1", "step": "any"}),
    )

    def crossing(self) -> Crossing:
        sent = self.cleaned_data
        return Crossing(sent["metric"], sent["side"] == "above", sent["threshold"])


def watch_forms(data: Mapping[str, Any] | None, *, start: Sequence[Crossing] = ()) -> list[WatchForm]:
    """The lines of a larger form, some of them empty for more: those that were sent, or those to start with.
    One that is left empty counts for none."""
    if data is not None:
        count = sum(f"threshold-{place}-metric" in data for place in range(MOST_WATCHES))
        sent = [WatchForm(data, prefix=f"threshold-{place}") for place in range(count)]
    else:
        sides = {True: "above", False: "below"}
        filled = [{"metric": one.metric, "side": sides[one.above], "threshold": repr(one.threshold).removesuffix(".0")} for one in start]
        lines = [*filled, *({} for _ in range(EMPTY_LINES))][:MOST_WATCHES]
        sent = [WatchForm(initial=line or None, prefix=f"threshold-{place}") for place, line in enumerate(lines)]
    for form in sent:
        form.empty_permitted, form.use_required_attribute = True, False
    return sent


class ThemeForm(Form):
    theme = forms.ChoiceField(choices=User.Theme.choices)
