"""Training definitions: a new one, its versions, its code. The code is shown highlighted as text, never run or rendered."""

from __future__ import annotations

import re
import uuid
from pathlib import Path

from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse, QueryDict
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.urls import reverse
from django.utils.safestring import SafeString
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from experiments import access, services
from experiments.definitions import gitcode
from experiments.errors import DomainError
from experiments.forms.common import CopyForm, DefinitionSettingsForm, attempt
from experiments.forms.definitions import DefinitionForm, VersionForm, version_initial
from experiments.forms.sent_once import RequestForm
from experiments.models import ClusterRules, DefinitionVersion, Project, TrainingDefinition, User
from experiments.selectors import changes as differences
from experiments.selectors import code as source
from experiments.selectors import environments
from experiments.views import uploaded_code
from experiments.views.downloads import attachment
from experiments.views.paging import Pages
from experiments.views.responses import act, begun, change, definition_crumbs, done, later, number, page, person, project_crumbs, refused

PANEL_IDS = "panel_%s"  # the panel stands on a page that has a form with the same fields


@require_http_methods(["GET", "HEAD", "POST"])
def new(request: HttpRequest, pk: int) -> HttpResponse:
    """A page of its own, and the side panel of New experiment (then a row of its table is answered)."""
    user = person(request)
    project = access.project(user, pk, need="write")
    in_panel = request.headers.get("HX-Request") == "true"
    sent = uploaded_code.find(user, project, number(request, "kept", 0, least=0, most=1 << 60))
    initial = {"kept": sent.pk, "name": _plain_name(sent.name)} if sent else {}
    form = DefinitionForm(request.POST or None, request.FILES or None, auto_id=PANEL_IDS if in_panel else "id_%s", initial=initial)
    if request.method == "POST" and form.is_valid():
        version = attempt(form, lambda: make(project, user, form))
        if version and in_panel:
            return render(request, "experiments/_associated.html", {"each": source.associated([version])[0]}, status=201)
        if version:
            return done(
                request, f"{version.definition.name} is saved as version 1.", to=reverse("definition", args=[version.definition.pk])
            )
    kept = uploaded_code.keep_code_of(form, user, project)
    begun(form, check=reverse("check_definition", args=[pk]))
    context = {"section": "projects", "project": project, "form": form, "arrived": kept, "crumbs": project_crumbs(project)}
    if in_panel:
        return render(request, "definitions/_form.html", {**context, "in_panel": True})
    return page(request, "definitions/new.html", context)


def make(project: Project, user: User, form: DefinitionForm) -> DefinitionVersion:
    """The service call behind the form, here and on the New experiment page."""
    said, upload, kept = form.service_arguments(), form.cleaned_data["upload"], form.cleaned_data["kept"]
    if git := form.git():
        return services.create_definition_from_git(project, by=user, **git, **said)
    if upload:
        version = services.create_definition(project, by=user, upload=upload, file_name=upload.name, **said)
        uploaded_code.spent(form, user, project)
        return version
    with uploaded_code.consumed(user, project, kept) as (zip_, name):
        return services.create_definition(project, by=user, upload=zip_, file_name=name, **said)


@require_safe
def detail(request: HttpRequest, pk: int) -> HttpResponse:
    definition = access.definition(person(request), pk)
    versions = definition.versions.select_related("bundle", "created_by", "named__environment").order_by("-number")
    newest = versions[0]
    context = {
        "section": "projects",
        "definition": definition,
        "versions": Pages(request, versions, name="versions"),
        "newest": newest,
        "oldest": later(lambda: versions.last()),
        "environments": later(lambda: environments.of_version(newest)),
        "scripts": later(lambda: source.scripts(newest.bundle)),
        "network_closed": not ClusterRules.current().may_use_network(definition.project_id),
        "syntax_note": later(lambda: source.syntax_note(newest, newest.command)),
        "training_note": later(lambda: source.training_note(newest)),
        "crumbs": project_crumbs(definition.project),
        "may_write": access.may(definition.project, "write"),
        "commit_page": gitcode.page_of(newest.git_address, newest.git_commit),
        "used_by": later(lambda: list(definition.project.experiments.filter(versions__definition=definition).distinct()[:50])),
        "idempotency_key": uuid.uuid4(),
        "writable": later(lambda: _writable(person(request), but=definition.project)),
        "settings_form": _settings(definition),
    }
    return page(request, "definitions/detail.html", context)


@require_http_methods(["GET", "HEAD", "POST"])
def new_version(request: HttpRequest, pk: int) -> HttpResponse:
    user = person(request)
    definition = access.definition(user, pk, need="write")
    asked = {"network": request.GET["network"]} if request.GET.get("network") in DefinitionVersion.Network else {}  # by a failed run's page
    form = VersionForm(request.POST or None, request.FILES or None, initial=version_initial(definition) | asked)
    if request.method == "POST" and form.is_valid():
        version = attempt(form, lambda: _add(definition, user, form))
        if version:
            return done(request, f"Saved as version {version.number}.", to=reverse("definition", args=[pk]))
    kept = uploaded_code.keep_code_of(form, user, definition.project)
    begun(form, check=reverse("check_version", args=[pk]), first="upload")
    context = {"section": "projects", "definition": definition, "form": form, "arrived": kept, "crumbs": definition_crumbs(definition)}
    return page(request, "definitions/new_version.html", context)


def _add(definition: TrainingDefinition, user: User, form: VersionForm) -> DefinitionVersion:
    said, upload, kept = form.service_arguments(), form.cleaned_data["upload"], form.cleaned_data["kept"]
    if git := form.git():
        return services.add_version_from_git(definition, by=user, **git, **said)
    if upload or not kept:
        version = services.add_version(definition, by=user, upload=upload or None, file_name=upload.name if upload else "", **said)
        uploaded_code.spent(form, user, definition.project)
        return version
    with uploaded_code.consumed(user, definition.project, kept) as (zip_, name):
        return services.add_version(definition, by=user, upload=zip_, file_name=name, **said)


@require_POST
def fetch_again(request: HttpRequest, pk: int) -> HttpResponse:
    """The newest commit of what the newest version was fetched from, as the next version."""
    user = person(request)
    definition = access.definition(user, pk, need="write")
    to = reverse("definition", args=[pk])
    form = RequestForm(request.POST)
    if not form.is_valid():
        return refused(request, "The form was not complete: load the page again.", to=to)
    try:
        version = services.fetch_again(definition, by=user, idempotency_key=form.cleaned_data["idempotency_key"])
    except DomainError as error:
        return refused(request, str(error), to=to)
    if version is None:
        return done(request, "Nothing has changed: this is the newest commit.", to=to)
    return done(request, f"Commit {version.git_commit[:12]} is saved as version {version.number}.", to=to)


def _writable(user: User, *, but: Project) -> list[Project]:
    """The other projects that the person may copy something to."""
    return [project for project in access.projects_for(user).exclude(pk=but.pk)[:200] if access.may(project, "write")]


@require_POST
def copy(request: HttpRequest, pk: int) -> HttpResponse:
    """The newest version, to another project: reading here and writing there are both needed."""
    user = person(request)
    definition = access.definition(user, pk)
    form = CopyForm(request.POST)
    if not form.is_valid():
        return refused(request, "Choose the project to copy it to.", to=reverse("definition", args=[pk]))
    target = access.project(user, form.cleaned_data["project"], need="write")
    made = services.copy_definition(definition.newest(), to=target, by=user, idempotency_key=form.cleaned_data["idempotency_key"])
    return done(request, f"{definition.name} is now in {target.name}, too.", to=reverse("definition", args=[made.definition.pk]))


@require_POST
def update(request: HttpRequest, pk: int) -> HttpResponse:
    user = person(request)
    definition = access.definition(user, pk, need="write")
    form, to = _settings(definition, request.POST), reverse("definition", args=[pk])
    return change(
        request,
        form,
        lambda: services.update_definition(definition, by=user, **form.cleaned_data),
        to=to,
        title=f"Rename {definition.name}",
        crumbs=definition_crumbs(definition),
    )


def _settings(definition: TrainingDefinition, sent: QueryDict | None = None) -> DefinitionSettingsForm:
    return DefinitionSettingsForm(sent, initial={"name": definition.name, "description": definition.description})


@require_POST
def delete(request: HttpRequest, pk: int) -> HttpResponse:
    user = person(request)
    definition = access.definition(user, pk, need="write")
    to = reverse("assets", args=[definition.project.pk])
    said = f"{definition.name} is deleted."
    return act(request, lambda: services.delete_definition(definition, by=user), said=said, to=to, back=reverse("definition", args=[pk]))


@require_safe
def row(request: HttpRequest, pk: int) -> HttpResponse:
    """The version as a row of New experiment's table, with what its scripts say of their arguments."""
    version = access.version(person(request), pk)
    response = render(request, "experiments/_associated.html", {"each": source.associated([version])[0]})
    response["Cache-Control"] = "no-store"
    return response


@require_safe
def code(request: HttpRequest, pk: int) -> HttpResponse:
    version = access.version(person(request), pk)
    paths = source.files(version.bundle)
    chosen = request.GET.get("path", "") or _first(paths, version)
    if chosen and chosen not in paths:
        raise Http404("There is no such file in this version.")
    context = {
        "section": "projects",
        "version": version,
        "definition": version.definition,
        "paths": paths,
        "chosen": chosen,
        "text": later(lambda: _highlighted(version, chosen)),
        "crumbs": definition_crumbs(version.definition),
    }
    return page(request, "definitions/code.html", context)


def _first(paths: list[str], version: DefinitionVersion) -> str:
    """The script that the command names, else the first Python file, else any."""
    named = [path for path in paths if path in version.command.split()]
    return next(iter([*named, *(p for p in paths if p.endswith(".py")), *paths]), "")


def _highlighted(version: DefinitionVersion, path: str) -> SafeString | None:
    """The file as HTML with classes only; None where it is not shown."""
    html = source.coloured(version.bundle, path) if path else None
    return SafeString(html) if html is not None else None  # what it is made by escapes the text


@require_safe
def changes(request: HttpRequest, pk: int) -> HttpResponse:
    """What is different in a version's code and attributes, against ?since=NUMBER or the version before."""
    version = access.version(person(request), pk)
    others = differences.others(version)
    since = differences.since(version, others, request.GET.get("since", ""))
    context = {
        "section": "projects",
        "version": version,
        "definition": version.definition,
        "since": since,
        "others": others,
        "attributes": differences.attributes(since, version) if since else [],
        "changes": later(lambda: differences.files(since, version) if since else []),
        "crumbs": definition_crumbs(version.definition),
    }
    return page(request, "definitions/changes.html", context)


def _plain_name(file_name: str) -> str:
    """Of an upload, without what says how it was packed."""
    return re.sub(r"(?i)(\.zip|(\.modelDir)?\.tar(\.gz)?|\.tgz|\.py|\.ipynb)$", "", file_name)


def _zip_name(file_name: str) -> str:
    """What is kept of any upload is a zip."""
    return file_name if file_name.lower().endswith(".zip") else f"{_plain_name(file_name) or 'code'}.zip"


@require_safe
def download(request: HttpRequest, pk: int) -> HttpResponseBase:
    version = access.version(person(request), pk)
    path = Path(settings.EDT_HOME) / "bundles" / f"{version.bundle.sha256}.zip"
    try:
        opened = open(path, "rb")  # noqa: SIM115  (closed by the one who sends it)
    except FileNotFoundError:
        raise Http404("The zip of this version is not there any more.") from None
    return attachment(request, opened, name=_zip_name(version.file_name), kind="application/zip")
