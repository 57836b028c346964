"""Environment variables of a project, and of a training definition: a page each. Of a secret it shows the name, who set it and when."""

from __future__ import annotations

from django import forms
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_POST

from experiments import access, services
from experiments.access import Need
from experiments.forms.common import attempt
from experiments.forms.wording import Form
from experiments.models import Project, TrainingDefinition
from experiments.services.variables import VALUE_LIMIT
from experiments.views.projects import tab
from experiments.views.responses import act, definition_crumbs, done, later, page, person

Owner = Project | TrainingDefinition
_PLAIN = {"autocomplete": "off", "autocapitalize": "none", "spellcheck": "false", "class": "mono"}


class VariableForm(Form):
    """The value of a secret is in no form that is sent to a browser, also not in one that comes back with an error."""

    name = forms.CharField(max_length=200, widget=forms.TextInput(attrs=_PLAIN | {"placeholder": "HF_TOKEN"}))
    secret = forms.TypedChoiceField(
        label="Kind",
        choices=[("yes", "Secret: nobody sees its value again"), ("no", "Plain: shown to all members")],
        coerce=lambda said: said == "yes",
        initial="yes",
    )
    value = forms.CharField(
        max_length=2 * VALUE_LIMIT,
        required=False,
        strip=False,
        widget=forms.Textarea(attrs=_PLAIN | {"rows": 3}),
        help_text="May have several lines.",
    )

    def without_secret(self) -> VariableForm:
        if self.is_bound and self.data.get("secret") != "no":
            said = self.data.copy()  # type: ignore[attr-defined]  # a QueryDict, whose values are lists to dict's own ways
            said["value"] = ""
            self.data = said
        return self


@sensitive_post_parameters("value")
@require_http_methods(["GET", "HEAD", "POST"])
def of_project(request: HttpRequest, pk: int) -> HttpResponse:
    project = access.project(person(request), pk, need=_need(request, "admin"))
    return _page(request, project, "variables/project.html", tab(project, "variables"), may_change=access.may(project, "admin"))


@sensitive_post_parameters("value")
@require_http_methods(["GET", "HEAD", "POST"])
def of_definition(request: HttpRequest, pk: int) -> HttpResponse:
    definition = access.definition(person(request), pk, need=_need(request, "write"))
    may_change = access.may(definition.project, "write")
    context = {
        "section": "projects",
        "definition": definition,
        "crumbs": definition_crumbs(definition),
        "inherited": later(lambda: list(definition.project.variables.all())),
    }
    return _page(request, definition, "variables/definition.html", context, may_change=may_change)


@require_POST
def delete_of_project(request: HttpRequest, pk: int, name: str) -> HttpResponse:
    return _delete(request, access.project(person(request), pk, need="admin"), name, to=reverse("project_variables", args=[pk]))


@require_POST
def delete_of_definition(request: HttpRequest, pk: int, name: str) -> HttpResponse:
    return _delete(request, access.definition(person(request), pk, need="write"), name, to=reverse("definition_variables", args=[pk]))


def _need(request: HttpRequest, to_write: Need) -> Need:
    return to_write if request.method == "POST" else "read"


def _page(request: HttpRequest, of: Owner, template: str, context: dict[str, object], *, may_change: bool) -> HttpResponse:
    user = person(request)
    form = VariableForm(request.POST or None, initial=_initial(of, request.GET.get("edit", "")))
    if request.method == "POST" and form.is_valid():
        said = form.cleaned_data
        if attempt(form, lambda: services.set_variable(of, by=user, **said)):
            return done(request, f"{said['name'].strip()} is saved. Runs that start from now on have it.", to=request.path)
    found = later(lambda: list(of.variables.select_related("set_by")))
    shown = {**context, "variables": found, "form": form.without_secret(), "may_change": may_change}
    response = page(request, template, shown, parts={"list": "variables/_list.html"})
    response["Cache-Control"] = "no-store"  # what was typed is not kept for the browser's Back
    return response


def _initial(of: Owner, name: str) -> dict[str, str]:
    """What stands in the form at first: what there is of the variable that is to be changed."""
    found = of.variables.filter(name=name).first() if name else None
    if found is None:
        return {}
    return {"name": found.name, "secret": "yes" if found.secret else "no", "value": "" if found.secret else found.value}


def _delete(request: HttpRequest, of: Owner, name: str, *, to: str) -> HttpResponse:
    said = f"{name} is deleted. Runs that start from now on do not have it."
    return act(request, lambda: services.delete_variable(of, by=person(request), name=name), said=said, to=to)
