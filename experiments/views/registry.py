"""Registered models: a project's list, a model with its versions, one version with its files and how it came about, and the form that
registers what a run has written."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from typing import Any

from django.http import HttpRequest, HttpResponse, QueryDict
from django.http.response import HttpResponseBase
from django.shortcuts import redirect
from django.urls import reverse
from django.utils import timezone
from django.utils.http import content_disposition_header
from django.utils.safestring import mark_safe
from django.utils.text import slugify
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from experiments import access, services
from experiments.files.zipstream import ZipStream, pieces
from experiments.forms.common import attempt
from experiments.forms.registry import AliasForm, ModelForm, ModelVersionForm, RegisterForm
from experiments.models import ModelVersion, RegisteredModel, TrainingRun, User
from experiments.runs import seals
from experiments.selectors import registry
from experiments.views.downloads import attachment, in_zip, streamed
from experiments.views.paging import Pages
from experiments.views.projects import tab
from experiments.views.responses import Crumbs, act, change, later, page, person, project_crumbs, refused, run_crumbs

SHOWN_EVENTS = 30


@require_safe
def index(request: HttpRequest, pk: int) -> HttpResponse:
    project = access.project(person(request), pk)
    context = {**tab(project, "models"), "models": Pages(request, registry.models_of(project))}
    return page(request, "models/index.html", context, parts={"list": "models/_list.html"})


@require_http_methods(["GET", "HEAD", "POST"])
def register(request: HttpRequest, pk: int) -> HttpResponse:
    """Of a run: what of it, under which name."""
    user = person(request)
    run = access.run(user, pk, need="write")
    offered = registry.candidates(run)
    asked = request.GET.get("path", "")
    initial = {"path": asked if asked in [each.path for each in offered] else "", "name": run.version.definition.name[:120]}
    form = RegisterForm(request.POST or None, candidates=offered, initial=initial)
    if request.method == "POST" and form.is_valid():
        made = attempt(form, lambda: _register(run, user, form.cleaned_data))
        if made:
            return redirect("model_version", made.model_id, made.number)
    context = {
        "section": "projects",
        "run": run,
        "form": form,
        "offered": offered,
        "names": later(lambda: list(run.experiment.project.registered_models.values_list("name", flat=True))),
        "crumbs": [*run_crumbs(run), (f"Run {run.pk}", reverse("run", args=[pk]))],
        "idempotency_key": uuid.uuid4(),
    }
    return page(request, "models/register.html", context)


def _register(run: TrainingRun, user: User, said: dict[str, Any]) -> ModelVersion:
    return services.register_version(run, by=user, lineage=registry.lineage(run), now=timezone.now(), **said)


def _about(request: HttpRequest, model: RegisteredModel) -> dict[str, object]:
    return {
        "section": "projects",
        "project": model.project,
        "model": model,
        "may_write": access.may(model.project, "write"),
        "may_administer": access.may(model.project, "admin"),
        "here": request.path,
    }


def _crumbs(model: RegisteredModel) -> Crumbs:
    return [*project_crumbs(model.project), ("Models", reverse("models", args=[model.project_id]))]


@require_safe
def detail(request: HttpRequest, pk: int) -> HttpResponse:
    model = access.registered_model(person(request), pk)
    context = {
        **_about(request, model),
        "crumbs": _crumbs(model),
        "note": later(lambda: mark_safe(registry.rendered(model.note))),  # noqa: S308  (what is HTML in a note is shown as text)
        "versions": Pages(request, registry.versions_of(model)),
        "events": later(lambda: list(model.events.select_related("by")[:SHOWN_EVENTS])),
        "form": _model_form(model),
    }
    return page(request, "models/detail.html", context, parts={"body": "models/_detail.html"})


@require_safe
def version(request: HttpRequest, pk: int, which: str) -> HttpResponse:
    """By its number, an alias, or "latest"."""
    user = person(request)
    model = access.registered_model(user, pk)
    found = registry.version_of(model, which)
    context = {
        **_about(request, model),
        "crumbs": [*_crumbs(model), (model.name, reverse("model", args=[pk]))],
        "version": found,
        "lineage": found.lineage,
        "run": later(lambda: registry.run_of(user, found)),
        "note": later(lambda: mark_safe(registry.rendered(found.note))),  # noqa: S308  (what is HTML in a note is shown as text)
        "form": _version_form(found),
        "alias_form": AliasForm(),
    }
    return page(request, "models/version.html", context, parts={"body": "models/_version.html"})


@require_safe
def file(request: HttpRequest, pk: int, which: str, path: str) -> HttpResponseBase:
    return file_of(request, _version(request, pk, which), path)


@require_safe
def archive(request: HttpRequest, pk: int, which: str) -> HttpResponseBase:
    return archive_of(_version(request, pk, which))


@require_safe
def code(request: HttpRequest, pk: int, which: str) -> HttpResponseBase:
    return code_of(request, _version(request, pk, which))


@require_safe
def receipt(request: HttpRequest, pk: int, which: str) -> HttpResponse:
    """Sealed: the version's files by their hashes, and how it came about."""
    found = _version(request, pk, which)
    response = HttpResponse(json.dumps(seals.sealed(registry.card(found)), indent=1) + "\n", content_type="application/json")
    response["Content-Disposition"] = content_disposition_header(True, f"{_called(found)}.receipt.json") or "attachment"
    return response


@require_POST
def update(request: HttpRequest, pk: int) -> HttpResponse:
    user = person(request)
    model = access.registered_model(user, pk, need="write")
    form, to = _model_form(model, request.POST), reverse("model", args=[pk])
    return change(
        request,
        form,
        lambda: services.update_model(model, by=user, now=timezone.now(), **form.cleaned_data),
        to=to,
        title=f"Change {model.name}",
        crumbs=[*_crumbs(model), (model.name, to)],
    )


def _model_form(model: RegisteredModel, sent: QueryDict | None = None) -> ModelForm:
    return ModelForm(sent, initial={"name": model.name, "note": model.note, "tags": model.tags})


@require_POST
def update_version(request: HttpRequest, pk: int, number: int) -> HttpResponse:
    user = person(request)
    found = registry.version_of(access.registered_model(user, pk, need="write"), str(number))
    form, to = _version_form(found, request.POST), reverse("model_version", args=[pk, number])
    crumbs = [*_crumbs(found.model), (found.model.name, reverse("model", args=[pk])), (f"Version {number}", to)]
    return change(
        request,
        form,
        lambda: services.update_version(found, by=user, **form.cleaned_data),
        to=to,
        title=f"Change version {number} of {found.model.name}",
        crumbs=crumbs,
    )


def _version_form(found: ModelVersion, sent: QueryDict | None = None) -> ModelVersionForm:
    return ModelVersionForm(sent, initial={"note": found.note, "tags": found.tags})


@require_POST
def set_alias(request: HttpRequest, pk: int, number: int) -> HttpResponse:
    user = person(request)
    found = registry.version_of(access.registered_model(user, pk, need="write"), str(number))
    form, to = AliasForm(request.POST), reverse("model_version", args=[pk, number])
    if not form.is_valid():
        return refused(request, form.problems(), to=to)
    alias, now = form.cleaned_data["alias"], timezone.now()
    said = f"{alias} points to version {number}."
    return act(request, lambda: services.set_alias(found, by=user, alias=alias, now=now), said=said, to=to)


@require_POST
def drop_alias(request: HttpRequest, pk: int, alias: str) -> HttpResponse:
    user, now = person(request), timezone.now()
    model = access.registered_model(user, pk, need="write")
    said, to = f"{alias} points to nothing any more.", reverse("model", args=[pk])
    return act(request, lambda: services.drop_alias(model, by=user, alias=alias, now=now), said=said, to=to)


@require_POST
def delete_version(request: HttpRequest, pk: int, number: int) -> HttpResponse:
    user, now = person(request), timezone.now()
    found = registry.version_of(access.registered_model(user, pk, need="admin"), str(number))
    to, back = reverse("model", args=[pk]), reverse("model_version", args=[pk, number])
    said = f"Version {number} is deleted."
    return act(request, lambda: services.delete_version(found, by=user, now=now), said=said, to=to, back=back)


@require_POST
def delete(request: HttpRequest, pk: int) -> HttpResponse:
    user, now = person(request), timezone.now()
    model = access.registered_model(user, pk, need="admin")
    to, back = reverse("models", args=[model.project_id]), reverse("model", args=[pk])
    said = f"{model.name} is deleted with its versions."
    return act(request, lambda: services.delete_model(model, by=user, now=now), said=said, to=to, back=back)


def file_of(request: HttpRequest, version: ModelVersion, path: str) -> HttpResponseBase:
    """A file of the version, to take away. Raises Http404."""
    _, opened = registry.file_of(version, path)
    return attachment(request, opened, name=path.rsplit("/", 1)[-1])


def archive_of(version: ModelVersion) -> HttpResponseBase:
    """All its files as a zip that is made while it is sent."""
    return streamed(_zip(version), name=f"{_called(version)}.zip", kind="application/zip")


def code_of(request: HttpRequest, version: ModelVersion) -> HttpResponseBase:
    """The zip of its code. Raises Http404."""
    return attachment(request, registry.code_of(version), name=f"{_called(version)}-code.zip", kind="application/zip")


def _zip(version: ModelVersion) -> Iterator[bytes]:
    archive, at = ZipStream(compressed=False), version.created_at.timestamp()
    for each in list(version.files.all()):  # fetched with the version
        yield from archive.add(f"{_called(version)}/{in_zip(each.path)}", pieces(registry.opened(each), each.size_bytes), modified=at)
    yield from archive.end()


def _version(request: HttpRequest, pk: int, which: str) -> ModelVersion:
    return registry.version_of(access.registered_model(person(request), pk), which)


def _called(version: ModelVersion) -> str:
    return f"{slugify(version.model.name)[:60] or 'model'}-{version.number}"
