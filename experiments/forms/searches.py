"""What the form of an experiment asks for where its runs are to search for the best values of arguments."""

from __future__ import annotations

from typing import Any

from django import forms

from experiments.forms.wording import Form
from experiments.searches import studio_spec
from experiments.searches.parameter_values import as_text
from experiments.searches.wishes import MOST_RUNS


class SearchForm(Form):
    """With no parameters it asks for no search, whatever else it says."""

    parameters = forms.CharField(
        label="Arguments to search",
        max_length=20_000,
        required=False,
        help_text=f"NAME = VALUES, a line each: {studio_spec.HOW}.",
        widget=forms.Textarea(
            attrs={
                "rows": 3,
                "class": "mono",
                "placeholder": "lr = 0.0001..0.1 log\nbatch-size = 16, 32, 64",
                "autocomplete": "off",
                "autocapitalize": "none",
                "spellcheck": "false",
            }
        ),
    )
    metric = forms.CharField(
        label="Metric that says which is best",
        max_length=206,
        required=False,
        widget=forms.TextInput(attrs={"list": "metric-names", "placeholder": "test loss", "autocomplete": "off"}),
    )
    goal = forms.ChoiceField(label="Best is", choices=[("minimize", "the lowest"), ("maximize", "the highest")], required=False)
    method = forms.ChoiceField(
        label="Values are chosen",
        choices=[("tpe", "by what came of others (TPE)"), ("random", "at random")],
        required=False,
        help_text="TPE begins with a few at random.",
    )
    trials = forms.IntegerField(label="Runs in all", min_value=1, max_value=MOST_RUNS, required=False, initial=studio_spec.USUAL_TRIALS)
    at_once = forms.IntegerField(label="At a time", min_value=1, max_value=MOST_RUNS, required=False, initial=studio_spec.USUAL_AT_ONCE)

    early_stop = forms.BooleanField(
        label="End runs early that fall behind",
        required=False,
        help_text="Those whose metric is worse than half of the others had at the same epoch, once four have completed.",
    )

    def clean_parameters(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for line in self.cleaned_data["parameters"].splitlines():
            name, equals, values = (part.strip() for part in line.partition("="))
            if not line.strip():
                continue
            if not equals:
                raise forms.ValidationError(f"{line.strip()[:80]} has no values: write NAME = VALUES, a line each.")
            if name in found:
                raise forms.ValidationError(f"{name[:80]} is there twice: write all of its values into one line.")
            found[name] = values
        return found

    def spec(self) -> dict[str, Any] | None:
        """Of a form that was checked; None where no search is asked for. What makes no sense is the service's business."""
        said = self.cleaned_data
        if not said.get("parameters"):
            return None
        return {
            "parameters": said["parameters"],
            "metric": said.get("metric") or "",
            "goal": said.get("goal") or "minimize",
            "method": said.get("method") or "tpe",
            "trials": said.get("trials") or studio_spec.USUAL_TRIALS,
            "at_once": said.get("at_once") or studio_spec.USUAL_AT_ONCE,
            "early_stop": bool(said.get("early_stop")),
        }


def initial_of(spec: dict[str, Any]) -> dict[str, Any]:
    """How the form says such a search again."""
    if "method" not in spec:
        return {}
    lines = [f"{each.name} = {as_text(each)}" for each in studio_spec.parse(spec).parameters]
    return {**spec, "parameters": "\n".join(lines)}
