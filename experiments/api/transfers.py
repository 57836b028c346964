"""A project as an archive, and a new project of one: announced, sent in pieces, taken in while one asks how far it is."""

from __future__ import annotations

import datetime as dt
from typing import Annotated, BinaryIO, cast

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils import timezone
from ninja import Field, Query, Router, Schema
from ninja.responses import Status

from experiments import access
from experiments.api.auth import all_of, person
from experiments.api.paging import Page, PageParameters, newest
from experiments.api.problems import Refused
from experiments.api.requests import idempotency_key
from experiments.api.schemas import BINARY, Body, page_of
from experiments.files import datastore
from experiments.models import ProjectImport as Row
from experiments.services import imports
from experiments.views.imports import exported
from experiments.views.uploads import MOST_PIECE_BYTES

router = Router(tags=["transfer"])


class NewImport(Body):
    """`file`: what the archive is called, `size`: its bytes; `name`: of the project, where it is to have another one."""

    file: str = Field(max_length=1000)
    size: int = Field(ge=0, le=2**60)
    name: str = ""


class Import(Schema):
    """`state`: arriving, waiting, checking, reading, done or refused; `says`: how far it is, or why it is refused; `notes`: what its maker
    should know of the project; `name`: of the project, empty: as in the archive; `received`: bytes that have arrived; `piece_bytes`: so
    large is a piece at most."""

    id: int
    file: str
    name: str
    size: int
    received: int
    piece_bytes: int
    state: str
    says: str
    notes: list[str]
    project: int | None
    created_at: dt.datetime
    ended_at: dt.datetime | None
    url: str


class ReceivedBytes(Schema):
    received: int


def _import_response(request: HttpRequest, row: Row) -> Import:
    (received,) = datastore.received(row.key, 1) if row.state == Row.State.ARRIVING else (row.size_bytes,)
    return Import(
        id=row.pk,
        file=row.file_name,
        name=row.name,
        size=row.size_bytes,
        received=received,
        piece_bytes=MOST_PIECE_BYTES,
        state=row.state,
        says=row.says,
        notes=row.notes,
        project=row.project_id,
        created_at=row.created_at,
        ended_at=row.ended_at,
        url=page_of(request, "project_import", row.pk),
    )


def _own_import(request: HttpRequest, number: int) -> Row:
    return access.project_import(all_of(request), number)


@router.get("/projects/{int:project}/export", response={200: bytes}, openapi_extra=BINARY)
def export_project(request: HttpRequest, project: int) -> HttpResponseBase:
    """All of it that has ended, as a zip that is made while it is sent: code, data, experiments, runs with their metrics, logs and files.
    Members, values of secrets, tokens, webhooks and triggers stay."""
    user = person(request)
    return exported(access.project(user, project), by=user)


@router.get("/projects/imports", response=Page[Import])
def project_imports(request: HttpRequest, page: PageParameters) -> Page[Import]:
    """Those of the caller."""
    return newest(Row.objects.filter(created_by=all_of(request)), page, lambda row: _import_response(request, row))


@router.post("/projects/imports", response={201: Import})
def begin_import(request: HttpRequest, body: NewImport) -> Status[Import]:
    """Announce the archive of a project. It becomes a new one, which the caller administers."""
    user, key = all_of(request), idempotency_key(request)
    return Status(
        201,
        _import_response(
            request, imports.begin_import(by=user, file_name=body.file, size_bytes=body.size, name=body.name, idempotency_key=key)
        ),
    )


@router.get("/projects/imports/{int:imported}", response=Import)
def project_import(request: HttpRequest, imported: int) -> Import:
    return _import_response(request, _own_import(request, imported))


@router.put(
    "/projects/imports/{int:imported}/archive",
    response=ReceivedBytes,
    url_name="api_import_piece",
    openapi_extra={"requestBody": {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}}},
)
def send_archive(request: HttpRequest, imported: int, offset: Annotated[int, Query(ge=0, le=2**60)]) -> ReceivedBytes:
    """The body is written behind what is there; 409 where `offset` is not where that ends (`received` says where it does)."""
    found = _own_import(request, imported)
    if int(request.headers.get("Content-Length") or 0) > MOST_PIECE_BYTES:
        raise Refused(413, f"A piece has at most {MOST_PIECE_BYTES >> 20} MiB.")
    return ReceivedBytes(received=imports.receive_archive(found, offset=offset, body=cast(BinaryIO, request)))


@router.post("/projects/imports/{int:imported}/finish", response=Import)
def finish_import(request: HttpRequest, imported: int) -> Import:
    """Have it taken in; `state` says what becomes of it. Sent again, it answers the same."""
    found = _own_import(request, imported)
    return _import_response(request, imports.finish_archive(found))


@router.delete("/projects/imports/{int:imported}", response={204: None})
def drop_import(request: HttpRequest, imported: int) -> Status[None]:
    """Give it up, with what has arrived of it; a project that came of it stays."""
    found = _own_import(request, imported)
    imports.drop_import(found, now=timezone.now())
    return Status(204, None)
