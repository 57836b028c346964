"""Uploads in pieces, of data and of the zips of training definitions, for the browser's script: announce, send from where it stands,
finish. JSON in and out.

Each file is sent in pieces of at most MOST_PIECE_BYTES, each behind the last; after a lost connection the script asks how far the files
are, and goes on from there, also after the page was closed.
"""

from __future__ import annotations

import json
from typing import Any, BinaryIO, cast

from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from experiments import access, services
from experiments.errors import DomainError
from experiments.files import datastore
from experiments.files.datastore import Part, WrongOffset
from experiments.models import DataAsset, DataUpload, Project, User
from experiments.ops import full_disk
from experiments.services import code
from experiments.views.responses import done, number, page, person, project_crumbs

MOST_PIECE_BYTES = 16 << 20
MOST_LIST_BYTES = 64 << 20  # the names, sizes and hashes of an upload's files, of which there may be hundreds of thousands


@require_POST
def begin(request: HttpRequest, pk: int) -> HttpResponse:
    """{"name", "description", "files": [{"path", "size"}, ...]} -> 201 {"upload": address, "received": [...]}

    With "code": true it is the one zip of a training definition, and what was begun of it before is gone on with. With "next_of": the
    number of a data asset and "note" it is the next version of that, and has its name.
    """
    user = person(request)
    project = access.project(user, pk, need="write")
    said = json_body(request)
    try:
        parts = [Part(str(each["path"]), size_of(each["size"])) for each in said.get("files", [])]
        if said.get("code") is True:
            [zip_] = parts
            upload = code.begin_code(project, by=user, file_name=zip_.path, size_bytes=zip_.size_bytes)
        else:
            texts = {name: str(said.get(name, "")) for name in ("name", "description", "note")}
            upload = services.begin_upload(project, by=user, parts=parts, next_of=_next_of(user, project, said), **texts)
    except (KeyError, TypeError, ValueError):
        return errors_response({"upload": ["These are not files as the page sends them: reload it and try again."]})
    except DomainError as error:
        return refusal(error)
    return JsonResponse(_state(upload), status=201)


@require_safe
def resume(request: HttpRequest, pk: int) -> HttpResponse:
    """The page on which the same files are chosen again, to go on; for a script how far they are."""
    upload = access.data_upload(person(request), pk)
    if request.headers.get("Accept") == "application/json":
        return JsonResponse(_state(upload))
    received = datastore.received(upload.key, len(upload.parts))
    context = {"section": "projects", "upload": upload, "received": sum(received), "crumbs": project_crumbs(upload.project)}
    return page(request, "data/resume.html", context)


@require_http_methods(["PUT"])
def piece(request: HttpRequest, pk: int, place: int) -> HttpResponse:
    """The body is written behind what is there: 200 {"size"}, or 409 {"size"} where ?offset= is not where it ends."""
    upload = access.data_upload(person(request), pk)
    if place >= len(upload.parts):
        raise Http404("There is no such file in this upload.")
    if int(request.headers.get("Content-Length") or 0) > MOST_PIECE_BYTES:
        return JsonResponse({"errors": {"upload": [f"A piece has at most {MOST_PIECE_BYTES >> 20} MiB."]}}, status=413)
    offset = number(request, "offset", -1, least=-1, most=1 << 60)
    try:
        return JsonResponse({"size": services.receive(upload, number=place, offset=offset, body=cast(BinaryIO, request))})
    except WrongOffset as wrong:
        return JsonResponse({"size": wrong.size_bytes}, status=409)
    except DomainError as error:
        return refusal(error)


@require_POST
def finish(request: HttpRequest, pk: int) -> HttpResponse:
    """{"sha256": [of each file, or null]} -> {"to": address of the page to go on with}. Sent again, it answers the same.

    Refused with "gone": true the upload was given up, and other files are another one.
    Of code it also says "kept", the number by which the form of a training definition names it.
    """
    user = person(request)
    try:
        upload = access.data_upload(user, pk)
    except Http404:  # finished before, and the answer was lost on its way
        return JsonResponse({"to": reverse("data", args=[access.finished_upload(user, pk).pk])})
    hashes = json_body(request).get("sha256")
    if not isinstance(hashes, list) or len(hashes) != len(upload.parts):
        hashes = [None] * len(upload.parts)
    try:
        sent = [str(each).lower() if each is not None else None for each in hashes]
        if upload.for_code:
            code.verify_code(upload, sha256=sent[0])
            to = f"{reverse('new_definition', args=[upload.project.pk])}?kept={upload.pk}"
            return JsonResponse({"to": to, "kept": upload.pk})
        asset: DataAsset = services.finish_upload(upload, by=user, hashes=sent)
    except DomainError as error:
        return refusal(error, gone=upload.pk is None)
    return JsonResponse({"to": reverse("data", args=[asset.pk])})


@require_POST
def drop(request: HttpRequest, pk: int) -> HttpResponse:
    upload = access.data_upload(person(request), pk)
    to = reverse("assets", args=[upload.project.pk])
    services.drop_upload(upload)
    if request.headers.get("Accept") == "application/json":
        return redirect(to)
    return done(request, "The upload is removed.", to=to)


def _next_of(user: User, project: Project, said: dict[str, Any]) -> DataAsset | None:
    if (number := said.get("next_of")) is None:
        return None
    asset = access.data_asset(user, size_of(number), need="write")
    if asset.project.pk != project.pk:
        raise Http404("There is no such data in this project.")
    return asset


def _state(upload: DataUpload) -> dict[str, object]:
    return {
        "upload": reverse("upload", args=[upload.pk]),
        "files": [{"path": path, "size": size} for path, size in upload.parts],
        "received": datastore.received(upload.key, len(upload.parts)),
    }


def json_body(request: HttpRequest) -> dict[str, Any]:
    """The body's JSON; empty where it is none."""
    try:
        said = json.loads(request.read(MOST_LIST_BYTES + 1) or b"{}")  # not `body`, whose limit is that of a form
    except (ValueError, RecursionError):
        return {}
    return said if isinstance(said, dict) else {}


def size_of(said: object) -> int:
    """Bytes. Raises ValueError."""
    if isinstance(said, bool) or not isinstance(said, int) or said < 0:
        raise ValueError(said)
    return said


def refusal(error: DomainError, *, gone: bool = False) -> JsonResponse:
    """As `errors_response`, of what a service refuses."""
    return errors_response(error.by_field("upload"), status=full_disk.status_of(error), gone=gone)


def errors_response(errors: dict[str, list[str]], *, status: int = 400, gone: bool = False) -> JsonResponse:
    """What is refused, for the script. `gone`: and the upload was given up with it."""
    return JsonResponse({"errors": errors, **({"gone": True} if gone else {})}, status=status)
