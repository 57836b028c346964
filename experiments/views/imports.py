"""A project as an archive to take away, and a new project of one that is uploaded: in pieces by the script (as `uploads`), or whole by the
form. What becomes of it is the page of the import."""

from __future__ import annotations

import uuid
from typing import BinaryIO, cast

from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect
from django.urls import reverse
from django.utils import timezone
from django.utils.text import slugify
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from experiments import access
from experiments.errors import DomainError
from experiments.files import datastore
from experiments.files.datastore import WrongOffset
from experiments.forms.common import ImportForm, attempt
from experiments.models import Project, ProjectImport, User
from experiments.ops import installation
from experiments.services import imports
from experiments.transfer import exporting
from experiments.views.downloads import streamed
from experiments.views.responses import Crumbs, act, later, number, page, person, refused
from experiments.views.uploads import MOST_PIECE_BYTES, errors_response, json_body, refusal, size_of

MOST_SHOWN = 20


@require_safe
def export(request: HttpRequest, pk: int) -> HttpResponseBase:
    try:
        return exported(access.project(person(request), pk), by=person(request))
    except DomainError as error:
        return refused(request, str(error), to=reverse("project_settings", args=[pk]))


def exported(project: Project, *, by: User) -> HttpResponseBase:
    """The archive, while it is made. Raises DomainError."""
    if problem := exporting.missing_code(project):
        raise DomainError(problem)
    imports.tell_of_export(project, by=by)
    now = timezone.now()
    name = f"project-{slugify(project.name)[:60] or project.pk}-{now:%Y-%m-%d}.zip"
    made = exporting.export(project, now=now, studio=installation.version())
    return streamed(made, name=name, kind="application/zip", reads_database=True)


@require_http_methods(["GET", "HEAD", "POST"])
def new(request: HttpRequest) -> HttpResponse:
    """With script the archive goes through the addresses below, piece by piece; this form is the way without."""
    user = person(request)
    form = ImportForm(request.POST or None, request.FILES or None)
    if request.method == "POST" and form.is_valid():
        made = attempt(form, lambda: _whole(user, form))
        if made:
            return redirect("project_import", made.pk)
    context = {
        "section": "projects",
        "form": form,
        "idempotency_key": uuid.uuid4(),
        "imports": later(lambda: list(ProjectImport.objects.filter(created_by=user).select_related("project")[:MOST_SHOWN])),
        "crumbs": _crumbs(),
    }
    return page(request, "projects/import.html", context, parts={"list": "projects/_imports.html"})


def _whole(user: User, form: ImportForm) -> ProjectImport:
    file, now = form.cleaned_data["upload"], timezone.now()
    facts = {"file_name": file.name or "", "size_bytes": file.size or 0, "idempotency_key": form.cleaned_data["idempotency_key"]}
    return imports.import_whole(by=user, body=file, now=now, **facts)


@require_POST
def begin(request: HttpRequest) -> HttpResponse:
    """{"files": [{"path", "size"}]}, of one file -> 201 {"upload": address, "received": [bytes]}"""
    said = json_body(request)
    try:
        [file] = said.get("files", [])
        order = imports.begin_import(by=person(request), file_name=str(file["path"]), size_bytes=size_of(file["size"]))
    except (KeyError, TypeError, ValueError):
        return errors_response({"upload": ["Choose one file: the archive of a project."]})
    except DomainError as error:
        return refusal(error)
    return JsonResponse(_state(order), status=201)


@require_safe
def detail(request: HttpRequest, pk: int) -> HttpResponse:
    """How far it is; for a script how much has arrived."""
    order = access.project_import(person(request), pk)
    if request.headers.get("Accept") == "application/json":
        return JsonResponse(_state(order))
    (received,) = datastore.received(order.key, 1)
    context = {"section": "projects", "order": order, "received": received, "crumbs": [*_crumbs(), ("Import", reverse("import_project"))]}
    return page(request, "projects/import_detail.html", context, parts={"state": "projects/_import_state.html"})


@require_http_methods(["PUT"])
def piece(request: HttpRequest, pk: int, place: int) -> HttpResponse:
    """The body is written behind what is there: 200 {"size"}, or 409 {"size"} where ?offset= is not where it ends."""
    order = access.project_import(person(request), pk)
    if place:
        raise Http404("There is no such file in this upload.")
    if int(request.headers.get("Content-Length") or 0) > MOST_PIECE_BYTES:
        return errors_response({"upload": [f"A piece has at most {MOST_PIECE_BYTES >> 20} MiB."]}, status=413)
    offset = number(request, "offset", -1, least=-1, most=1 << 60)
    try:
        return JsonResponse({"size": imports.receive_archive(order, offset=offset, body=cast(BinaryIO, request))})
    except WrongOffset as wrong:
        return JsonResponse({"size": wrong.size_bytes}, status=409)
    except DomainError as error:
        return refusal(error)


@require_POST
def finish(request: HttpRequest, pk: int) -> HttpResponse:
    """{"to": the page of the import}. Sent again, it answers the same."""
    order = access.project_import(person(request), pk)
    try:
        imports.finish_archive(order)
    except DomainError as error:
        return refusal(error)
    return JsonResponse({"to": reverse("project_import", args=[pk])})


@require_POST
def drop(request: HttpRequest, pk: int) -> HttpResponse:
    order, back = access.project_import(person(request), pk), reverse("project_import", args=[pk])
    to, now = reverse("import_project"), timezone.now()
    return act(request, lambda: imports.drop_import(order, now=now), said="The import is removed.", to=to, back=back)


def _state(order: ProjectImport) -> dict[str, object]:
    return {
        "upload": reverse("project_import", args=[order.pk]),
        "files": [{"path": order.file_name, "size": order.size_bytes}],
        "received": datastore.received(order.key, 1),
    }


def _crumbs() -> Crumbs:
    return [("Projects", reverse("projects"))]
