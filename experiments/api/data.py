"""Data assets: the data sets of a project, and their files; and those that everybody shares."""

from __future__ import annotations

import dataclasses
import datetime as dt
from typing import Annotated

from django.http import Http404, HttpRequest
from django.http.response import HttpResponseBase
from ninja import Query, Router, Schema
from ninja.responses import Status

from experiments import access, services
from experiments.api.auth import person
from experiments.api.paging import Page, PageParameters, newest
from experiments.api.requests import unchanged
from experiments.api.schemas import BINARY, Body, page_of
from experiments.models import DataAsset as Row
from experiments.selectors import data as selector
from experiments.views.data import LONGEST_PATH
from experiments.views.downloads import attachment

router = Router(tags=["data"])


FolderPath = Annotated[str, Query(max_length=LONGEST_PATH)]


class DataAsset(Schema):
    """A version of a data set. `series`: the number that its versions have in common, as they have name and description; `version`: of this
    one, and `note`: what is new in it; `versions`: how many there are, and `newest`: the id of the newest. `files`: how many; `sha256`: of
    the one file that was uploaded, else of the list of all with their hashes."""

    id: int
    project: int
    name: str
    description: str
    series: int
    version: int
    note: str
    versions: int
    newest: int
    files: int
    size_bytes: int
    sha256: str
    created_by: str
    created_at: dt.datetime
    url: str


class DataChange(Body):
    """What is left out stays as it is. It is of all versions of the data set. The files never change: new data is the next version."""

    name: str | None = None
    description: str | None = None


class Entry(Schema):
    """A file, or a folder."""

    name: str
    path: str
    is_folder: bool
    size_bytes: int
    modified_at: dt.datetime


class Folder(Schema):
    """What is in a folder, of `total`."""

    items: list[Entry]
    total: int


def data_asset_response(request: HttpRequest, row: Row) -> DataAsset:
    """`row`: of `selectors.data.in_their_series`, or any, which is then looked up there."""
    if not hasattr(row, "newest_id"):
        row = selector.in_their_series(Row.objects.filter(pk=row.pk)).get()
    return DataAsset(
        id=row.pk,
        project=row.project_id,
        name=row.name,
        description=row.description,
        series=row.series_id,
        version=row.version,
        note=row.note,
        versions=row.count,  # type: ignore[attr-defined]  # annotated
        newest=row.newest_id,  # type: ignore[attr-defined]  # annotated
        files=row.files,
        size_bytes=row.size_bytes,
        sha256=row.sha256,
        created_by=row.created_by.username,
        created_at=row.created_at,
        url=page_of(request, "data", row.pk),
    )


@router.get("/projects/{int:project}/data", response=Page[DataAsset])
def data_of_project(request: HttpRequest, project: int, page: PageParameters) -> Page[DataAsset]:
    """Its data sets, each by its newest version."""
    found = access.project(person(request), project)
    return newest(selector.newest(found.data_assets.all()), page, lambda row: data_asset_response(request, row))


@router.get("/data/{int:data}", response=DataAsset)
def data_asset(request: HttpRequest, data: int) -> DataAsset:
    return data_asset_response(request, access.data_asset(person(request), data))


@router.patch("/data/{int:data}", response=DataAsset)
def change_data(request: HttpRequest, data: int, body: DataChange) -> DataAsset:
    user = person(request)
    found = access.data_asset(user, data, need="write")
    unchanged(request, data_asset_response(request, found))
    name, text = (found.name if body.name is None else body.name), (found.description if body.description is None else body.description)
    return data_asset_response(request, services.update_asset(found, by=user, name=name, description=text))


@router.delete("/data/{int:data}", response={204: None})
def delete_data(request: HttpRequest, data: int) -> Status[None]:
    """This version alone, with its files; its number is not given again. Refused while an experiment reads it."""
    user = person(request)
    services.delete_asset(access.data_asset(user, data, need="write"), by=user)
    return Status(204, None)


@router.get("/data/{int:data}/files", response=Folder)
def files_of_data(request: HttpRequest, data: int, path: FolderPath = "") -> Folder:
    """What is in the folder `path` of it: folders first, at most 500."""
    return _folder(access.data_asset(person(request), data), path)


@router.get("/data/{int:data}/files/{path:path}", response={200: bytes}, openapi_extra=BINARY)
def file_of_data(request: HttpRequest, data: int, path: str) -> HttpResponseBase:
    """The file, or the part of it that `Range` names."""
    return _file(request, access.data_asset(person(request), data), path)


@router.get("/shared-data/files", response=Folder)
def shared_files(request: HttpRequest, path: FolderPath = "") -> Folder:
    """The same of the data that everybody who is logged in shares: what a run finds by `source_folder`."""
    person(request)
    return _folder(None, path)


@router.get("/shared-data/files/{path:path}", response={200: bytes}, openapi_extra=BINARY)
def shared_file(request: HttpRequest, path: str) -> HttpResponseBase:
    person(request)
    return _file(request, None, path)


def _folder(asset: Row | None, path: str) -> Folder:
    try:
        listing = selector.listing(asset, path.strip("/"))
    except FileNotFoundError:
        raise Http404("There is no such folder in this data.") from None
    return Folder(items=[Entry(**dataclasses.asdict(each)) for each in listing.entries], total=listing.total)


def _file(request: HttpRequest, asset: Row | None, path: str) -> HttpResponseBase:
    try:
        opened = selector.open_file(asset, path)
    except FileNotFoundError:
        raise Http404("There is no such file in this data.") from None
    return attachment(request, opened, name=path.rsplit("/", 1)[-1])
