"""What is wrong with a form that is being filled in, for the browser's script (checking.js): {"errors": {field: [sentences]}, "notes": the
same}.

The sentences are those with which the form would be refused, found by the same forms and the same services; nothing is stored. A note is
no refusal: it says that a name is taken, which is allowed.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from django import forms
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.utils.text import Truncator
from django.views.decorators.http import require_POST

from experiments import access, services
from experiments.errors import DomainError
from experiments.forms.common import ExperimentForm, ProjectForm, RerunForm
from experiments.forms.data import DataForm, DataVersionForm
from experiments.forms.definitions import AttributesForm, DefinitionForm, VersionForm
from experiments.models import DefinitionVersion, Project
from experiments.selectors import code
from experiments.services import grid
from experiments.views import new_experiment
from experiments.views.new_experiment import Part, associated, choices_of, commands_of
from experiments.views.responses import person

MOST_SCRIPTS = 2000


@require_POST
def project(request: HttpRequest) -> HttpResponse:
    form = ProjectForm(request.POST)
    return _errors_response(form, notes=_name_taken("project of yours", access.projects_for(person(request)), form))


@require_POST
def definition(request: HttpRequest, pk: int) -> HttpResponse:
    """Beside the form `scripts`: a JSON list of the Python files of the chosen zip; `sent_bytes`: there is a file, of this size."""
    user = person(request)
    into = access.project(user, pk, need="write")
    form = DefinitionForm(request.POST)

    def check(said: dict[str, Any]) -> None:
        name, text = said.get("name", ""), said.get("description", "")
        services.check_definition(into, by=user, name=name, description=text, scripts=_scripts(request), **_attributes(form, said))

    return _errors_response(form, check, notes=_name_taken("training definition", into.definitions.all(), form), chosen=_chosen(request))


@require_POST
def version(request: HttpRequest, pk: int) -> HttpResponse:
    """The same of a new version; without a file its code is that of the newest one."""
    user = person(request)
    found = access.definition(user, pk, need="write")
    form = VersionForm(request.POST)

    def check(said: dict[str, Any]) -> None:
        told = _attributes(form, said)
        services.check_definition(found.project, by=user, name=None, scripts=_scripts(request), newest=found.newest(), **told)

    return _errors_response(form, check, chosen=_chosen(request))


@require_POST
def experiment(request: HttpRequest, pk: int) -> HttpResponse:
    """What is wrong with the command of a line is said at "command-VERSION#LINE", the lines of a version counted from 0."""
    user = person(request)
    into = access.project(user, pk, need="write")
    form = ExperimentForm(request.POST)
    form.fields["data_asset"].queryset = into.data_assets.all()  # type: ignore[attr-defined]
    form.fields["versions"].queryset = offered = choices_of(into, None)  # type: ignore[attr-defined]
    form.is_valid()
    everywhere = form.cleaned_data.get("global_command") or ""
    parts = associated(form, offered, commands_of(request, None))
    lines = _lines(into, [] if everywhere else parts)

    def check(said: dict[str, Any]) -> None:
        rows = grid.rows([part.version for part in parts], [part.command for part in parts], everywhere)
        told: dict[str, Any] = dict(zip(("versions", "commands", "global_command"), rows, strict=True))
        sent: dict[str, Any] = {name: said.get(name) or "" for name in ("name", "description", "source_folder")}
        new_experiment.check(into, form.spec(), told, data_asset=said.get("data_asset"), environment=said.get("environment"), **sent)

    notes = {**_name_taken("experiment", into.experiments.all(), form), **_unknown_arguments(form, parts, everywhere)}
    return _errors_response(form, check, notes=notes, more=lines)


@require_POST
def data(request: HttpRequest, pk: int) -> HttpResponse:
    into = access.project(person(request), pk, need="write")
    form = DataForm(request.POST)
    return _errors_response(form, notes=_name_taken("data asset", into.data_assets.all(), form), chosen=_chosen(request))


@require_POST
def data_version(request: HttpRequest, pk: int) -> HttpResponse:
    access.data_asset(person(request), pk, need="write")
    return _errors_response(DataVersionForm(request.POST), chosen=_chosen(request))


@require_POST
def rerun(request: HttpRequest, pk: int) -> HttpResponse:
    user = person(request)
    run = access.run(user, pk, need="write")
    form = RerunForm(request.POST)
    form.fields["version"].queryset = DefinitionVersion.objects.filter(definition=run.version.definition_id)  # type: ignore[attr-defined]

    def check(said: dict[str, Any]) -> None:
        wishes = {name: said.get(name) for name in ("version", "min_slots", "max_slots")}
        told = grid.expanded(said.get("command") or run.command)
        services.check_rerun(run, by=user, commands=told, environment=said.get("environment") or {}, **wishes)

    return _errors_response(form, check)


def _errors_response(
    form: forms.BaseForm,
    check: Callable[[dict[str, Any]], None] | None = None,
    *,
    notes: dict[str, list[str]] | None = None,
    chosen: bool = False,
    more: dict[str, list[str]] | None = None,
) -> JsonResponse:
    """`check`: the service's word on what is clean, which counts where the form has none of its own. `chosen`: there is a file, though it
    is not sent here."""
    form.is_valid()
    errors: dict[str, list[str]] = {name: [str(each) for each in said] for name, said in form.errors.items()}
    if chosen:
        errors.pop("upload", None)
    try:
        if check is not None:
            check(form.cleaned_data)
    except DomainError as error:
        errors = {**error.by_field("__all__"), **errors}
    return JsonResponse({"errors": {**errors, **(more or {})}, "notes": notes or {}})


def _attributes(form: AttributesForm, said: dict[str, Any]) -> dict[str, Any]:
    """What is said of a version; what is wrong with a field of it is said already, and the usual stands for it."""
    usual = {name: form.fields[name].choices[0][0] for name in ("framework", "device", "distributed")}  # type: ignore[attr-defined]
    usual |= {"packages": DefinitionVersion.Packages.OWN, "network": DefinitionVersion.Network.NONE}
    told: dict[str, Any] = {name: said.get(name) or value for name, value in usual.items()}
    return told | {"command": said.get("command") or "", "max_slots": said.get("max_slots")}


def _lines(into: Project, parts: list[Part]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    seen: dict[int, int] = {}
    for part in parts:
        line = seen[part.version.pk] = seen.get(part.version.pk, -1) + 1
        try:
            for each in grid.expanded(part.command):
                services.check_command(into, part.version, each)
        except DomainError as error:
            found[f"command-{part.version.pk}#{line}"] = error.messages
    return found


def _unknown_arguments(form: ExperimentForm, parts: list[Part], everywhere: str) -> dict[str, list[str]]:
    """Of a search, where the script declares its arguments."""
    spec = form.spec()
    if spec is None or len(parts) != 1:
        return {}
    said = code.unknown_arguments(parts[0].version, everywhere or parts[0].command, list(spec["parameters"]))
    return {"parameters": [said]} if said else {}


def _scripts(request: HttpRequest) -> list[str] | None:
    """None where nothing is known of them."""
    try:
        said = json.loads(request.POST.get("scripts", ""))
    except (ValueError, RecursionError):
        return None
    return [each for each in said[:MOST_SCRIPTS] if isinstance(each, str)] or None if isinstance(said, list) else None


def _chosen(request: HttpRequest) -> bool:
    return request.POST.get("sent_bytes", "").isdigit()


def _name_taken(what: str, those: QuerySet[Any], form: forms.BaseForm) -> dict[str, list[str]]:
    name = " ".join(str(form["name"].value() or "").split())
    if not name or "\0" in name or not those.filter(name__iexact=name).exists():
        return {}
    return {"name": [f"There is a {what} named {Truncator(name).chars(60)} already; this would be another one."]}
