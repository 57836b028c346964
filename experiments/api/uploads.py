"""Files that arrive in pieces: data sets, and the zips of training definitions. After a lost connection one asks how far they are."""

from __future__ import annotations

from typing import Annotated, BinaryIO, Literal, cast

from django.http import Http404, HttpRequest
from ninja import Field, Query, Router, Schema
from ninja.responses import Status

from experiments import access, services
from experiments.api.auth import person
from experiments.api.data import DataAsset
from experiments.api.data import data_asset_response as data_shown
from experiments.api.problems import Refused
from experiments.api.schemas import Body
from experiments.files import datastore
from experiments.files.datastore import Part
from experiments.models import DataUpload
from experiments.services import code
from experiments.views.uploads import MOST_PIECE_BYTES

router = Router(tags=["uploads"])


class NewFile(Body):
    """`size`: bytes."""

    path: str = Field(max_length=1000)
    size: int = Field(ge=0, le=2**60)


class NewUpload(Body):
    """`kind`: "code" is the one zip of a training definition; name and description are of data."""

    kind: Literal["code", "data"]
    name: str = ""
    description: str = ""
    files: list[NewFile]


class Arriving(Schema):
    """`received`: bytes that have arrived."""

    number: int
    path: str
    size: int
    received: int


class Upload(Schema):
    """`piece_bytes`: so large is a piece at most."""

    id: int
    kind: Literal["code", "data"]
    project: int
    piece_bytes: int
    files: list[Arriving]


class Received(Schema):
    received: int


class Hashes(Body):
    """SHA-256 of each file in hex, or null where it is not to be checked."""

    sha256: list[Annotated[str, Field(max_length=64)] | None] = []


class Finished(Schema):
    """`data`: the data asset that came of it; `upload`: the number of code that is whole, by which a training definition takes it."""

    data: DataAsset | None = None
    upload: int | None = None


def upload_response(row: DataUpload) -> Upload:
    received = datastore.received(row.key, len(row.parts))
    files = [Arriving(number=number, path=path, size=size, received=received[number]) for number, (path, size) in enumerate(row.parts)]
    kind: Literal["code", "data"] = "code" if row.for_code else "data"
    return Upload(id=row.pk, kind=kind, project=row.project_id, piece_bytes=MOST_PIECE_BYTES, files=files)


@router.post("/projects/{int:project}/uploads", response={201: Upload}, url_name="api_begin_upload")
def begin_upload(request: HttpRequest, project: int, body: NewUpload) -> Status[Upload]:
    """Announce files. Of code, what was begun of the same file is gone on with."""
    user = person(request)
    found = access.project(user, project, need="write")
    parts = [Part(each.path, each.size) for each in body.files]
    if body.kind == "data":
        return Status(
            201, upload_response(services.begin_upload(found, by=user, name=body.name, description=body.description, parts=parts))
        )
    if len(parts) != 1:
        raise Refused(400, "Code is one file: pack it as a zip.", errors={"files": ["Code is one file: pack it as a zip."]})
    return Status(201, upload_response(code.begin_code(found, by=user, file_name=parts[0].path, size_bytes=parts[0].size_bytes)))


@router.get("/uploads/{int:upload}", response=Upload)
def upload(request: HttpRequest, upload: int) -> Upload:
    return upload_response(access.data_upload(person(request), upload))


@router.put(
    "/uploads/{int:upload}/files/{int:number}",
    response=Received,
    url_name="api_upload_piece",
    openapi_extra={"requestBody": {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}}},
)
def send_piece(request: HttpRequest, upload: int, number: int, offset: Annotated[int, Query(ge=0, le=2**60)]) -> Received:
    """The body is written behind what is there; 409 where `offset` is not where that ends (`received` says where it does)."""
    found = access.data_upload(person(request), upload)
    if number >= len(found.parts):
        raise Http404("There is no such file in this upload.")
    if int(request.headers.get("Content-Length") or 0) > MOST_PIECE_BYTES:
        raise Refused(413, f"A piece has at most {MOST_PIECE_BYTES >> 20} MiB.")
    return Received(received=services.receive(found, number=number, offset=offset, body=cast(BinaryIO, request)))


@router.post("/uploads/{int:upload}/finish", response=Finished, url_name="api_finish_upload")
def finish_upload(request: HttpRequest, upload: int, body: Hashes) -> Finished:
    """Check what has arrived. Sent again, it answers the same."""
    user = person(request)
    try:
        found = access.data_upload(user, upload)
    except Http404:  # finished before, and the answer was lost on its way
        return Finished(data=data_shown(request, access.finished_upload(user, upload)))
    hashes = [each.lower() if each else None for each in body.sha256]
    if len(hashes) != len(found.parts):
        hashes = [None] * len(found.parts)
    if found.for_code:
        code.verify_code(found, sha256=hashes[0])
        return Finished(upload=found.pk)
    asset = services.finish_upload(found, by=user, hashes=hashes)
    return Finished(data=data_shown(request, access.data_asset(user, asset.pk)))


@router.delete("/uploads/{int:upload}", response={204: None})
def drop_upload(request: HttpRequest, upload: int) -> Status[None]:
    """Give it up, with what has arrived of it."""
    services.drop_upload(access.data_upload(person(request), upload))
    return Status(204, None)
