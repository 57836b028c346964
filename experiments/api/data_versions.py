"""The versions of a data set: its list, the next one, and the end of all. Each is a data asset of its own (`data`)."""

from __future__ import annotations

from django.http import HttpRequest
from ninja import Router
from ninja.responses import Status

from experiments import access, services
from experiments.api.auth import person
from experiments.api.data import DataAsset, data_asset_response
from experiments.api.paging import Page, PageParameters, newest
from experiments.api.schemas import Body
from experiments.api.uploads import NewFile, Upload
from experiments.api.uploads import upload_response as arriving
from experiments.files.datastore import Part
from experiments.selectors import data as selector

router = Router(tags=["data"])


class NewDataVersion(Body):
    """`note`: what is new, in one line. `files`: of the whole data set as it is now."""

    note: str = ""
    files: list[NewFile]


@router.get("/data/{int:data}/versions", response=Page[DataAsset])
def versions_of_data(request: HttpRequest, data: int, page: PageParameters) -> Page[DataAsset]:
    """Of the data set that it is a version of, newest first."""
    found = access.data_asset(person(request), data)
    return newest(selector.versions(found), page, lambda row: data_asset_response(request, row))


@router.post("/data/{int:data}/versions", response={201: Upload}, url_name="api_begin_data_version")
def begin_data_version(request: HttpRequest, data: int, body: NewDataVersion) -> Status[Upload]:
    """Announce the files of the next version of the data set that it is a version of. What was sent is it when the upload is finished;
    where it is the same as the newest version it is refused then, and the upload given up."""
    user = person(request)
    found = access.data_asset(user, data, need="write")
    parts = [Part(each.path, each.size) for each in body.files]
    return Status(201, arriving(services.begin_upload(found.project, by=user, next_of=found, note=body.note, parts=parts)))


@router.delete("/data/{int:data}/versions", response={204: None})
def delete_data_versions(request: HttpRequest, data: int) -> Status[None]:
    """All versions of the data set, with their files. Refused while an experiment reads one of them, and then all stay."""
    user = person(request)
    services.delete_versions(access.data_asset(user, data, need="write"), by=user)
    return Status(204, None)
