"""Registered models: made of what runs have written, found by number or alias, and downloaded."""

from __future__ import annotations

import datetime as dt
from typing import Any

from django.http import Http404, HttpRequest
from django.http.response import HttpResponseBase
from django.utils import timezone
from ninja import Router, Schema
from ninja.responses import Status

from experiments import access, services
from experiments.api.auth import person
from experiments.api.paging import Page, PageParameters, newest, whole
from experiments.api.problems import Refused
from experiments.api.requests import idempotency_key, unchanged
from experiments.api.schemas import BINARY, Body, page_of
from experiments.files import modelnames
from experiments.models import ModelVersion as VersionRow
from experiments.models import RegisteredModel as Row
from experiments.runs import seals
from experiments.selectors import registry
from experiments.views.registry import archive_of, code_of, file_of

router = Router(tags=["models"])


class RegisteredModel(Schema):
    """`versions`: how many; `newest`: the number of the last; `aliases`: the version that each points to. `note`: Markdown."""

    id: int
    project: int
    name: str
    note: str
    tags: dict[str, str]
    versions: int
    newest: int | None
    aliases: dict[str, int]
    created_by: str
    created_at: dt.datetime
    url: str


class ModelFile(Schema):
    """`made`: by the studio, beside what the run wrote."""

    path: str
    size_bytes: int
    sha256: str
    made: bool


class ModelVersion(Schema):
    """`run`: which may have been deleted since; `path`: what of it was registered. `lineage`: what the run computed with and how it
    went, as its receipt has it; `left_out`: what could not be made of it and why, in sentences."""

    id: int
    model: int
    name: str
    number: int
    run: int | None
    path: str
    aliases: list[str]
    note: str
    tags: dict[str, str]
    size_bytes: int
    files: list[ModelFile]
    left_out: list[str]
    lineage: dict[str, Any]
    created_by: str
    created_at: dt.datetime
    url: str


class NewModel(Body):
    name: str
    note: str = ""


class ModelChange(Body):
    """What is left out stays as it is."""

    name: str | None = None
    note: str | None = None
    tags: dict[str, str] | None = None


class NewModelVersion(Body):
    """`name`: of a model of the run's project, made where there is none; `path`: a file of the run, or a folder; left out, what
    `/runs/ID/registrable` proposes first."""

    name: str
    path: str = ""
    note: str = ""
    tags: dict[str, str] = {}
    aliases: list[str] = []


class ModelVersionChange(Body):
    """What is left out stays as it is. Files never change."""

    note: str | None = None
    tags: dict[str, str] | None = None


class AliasTarget(Body):
    """The number of the version that it is to point to."""

    version: int


class Registrable(Schema):
    """`kind`: final (model), stopped, folder, model, checkpoint or other."""

    path: str
    kind: str
    size_bytes: int


class ModelEvent(Schema):
    at: dt.datetime
    by: str | None
    what: str


class ModelReceipt(Schema):
    """`card`: the files of the version with their hashes, and its lineage; `seal`: as a run's receipt has it, and checked as that is."""

    kind: str
    card: dict[str, Any]
    seal: dict[str, str]


def model_response(request: HttpRequest, row: Row) -> RegisteredModel:
    same = ("name", "note", "tags", "created_at", "newest")
    return RegisteredModel(
        id=row.pk,
        project=row.project_id,
        versions=row.count,  # type: ignore[attr-defined]  # counted by the selector
        aliases={each.name: each.version.number for each in row.aliases.all()},
        created_by=row.created_by.username,
        url=page_of(request, "model", row.pk),
        **{name: getattr(row, name) for name in same},
    )


def version_response(request: HttpRequest, row: VersionRow) -> ModelVersion:
    same = ("number", "run", "path", "note", "tags", "size_bytes", "left_out", "lineage", "created_at")
    files = [ModelFile(path=each.path, size_bytes=each.size_bytes, sha256=each.sha256, made=each.made) for each in row.files.all()]
    return ModelVersion(
        id=row.pk,
        model=row.model_id,
        name=row.model.name,
        aliases=[each.name for each in row.aliases.all()],
        files=files,
        created_by=row.created_by.username,
        url=page_of(request, "model_version", row.model_id, row.number),
        **{name: getattr(row, name) for name in same},
    )


def _again(request: HttpRequest, model: Row) -> RegisteredModel:
    return model_response(request, registry.models_of(model.project).get(pk=model.pk))


@router.get("/models", response=Page[RegisteredModel])
def models(request: HttpRequest, page: PageParameters, name: str = "") -> Page[RegisteredModel]:
    """Of all your projects; those that are called `name`, where one is given."""
    found = registry.models_for(person(request))
    return newest(found.filter(name=name) if name else found, page, lambda row: model_response(request, row))


@router.get("/projects/{int:project}/models", response=Page[RegisteredModel])
def models_of_project(request: HttpRequest, project: int, page: PageParameters) -> Page[RegisteredModel]:
    found = access.project(person(request), project)
    return newest(registry.models_of(found), page, lambda row: model_response(request, row))


@router.post("/projects/{int:project}/models", response={201: RegisteredModel})
def make_model(request: HttpRequest, project: int, body: NewModel) -> Status[RegisteredModel]:
    """Without a version. (`/runs/ID/models` makes the model where there is none.)"""
    user = person(request)
    made = services.create_model(access.project(user, project, need="write"), by=user, now=timezone.now(), **body.model_dump())
    return Status(201, _again(request, made))


@router.get("/models/{int:model}", response=RegisteredModel)
def model(request: HttpRequest, model: int) -> RegisteredModel:
    return _again(request, access.registered_model(person(request), model))


@router.patch("/models/{int:model}", response=RegisteredModel)
def change_model(request: HttpRequest, model: int, body: ModelChange) -> RegisteredModel:
    user = person(request)
    found = access.registered_model(user, model, need="write")
    unchanged(request, _again(request, found))
    said = {"name": found.name, "note": found.note, "tags": found.tags, **body.model_dump(exclude_none=True)}
    return _again(request, services.update_model(found, by=user, now=timezone.now(), **said))


@router.delete("/models/{int:model}", response={204: None})
def delete_model(request: HttpRequest, model: int) -> Status[None]:
    """With all its versions. Refused while an alias points to one."""
    user = person(request)
    services.delete_model(access.registered_model(user, model, need="admin"), by=user, now=timezone.now())
    return Status(204, None)


@router.get("/models/{int:model}/events", response=Page[ModelEvent])
def model_events(request: HttpRequest, model: int, page: PageParameters) -> Page[ModelEvent]:
    """What was done to it: versions registered, aliases moved."""
    found = access.registered_model(person(request), model).events.select_related("by")
    return newest(found, page, lambda row: ModelEvent(at=row.at, by=row.by.username if row.by else None, what=row.what))


@router.put("/models/{int:model}/aliases/{str:alias}", response=RegisteredModel)
def set_alias(request: HttpRequest, model: int, alias: str, body: AliasTarget) -> RegisteredModel:
    """Let it point to the version, wherever it pointed before."""
    user = person(request)
    found = access.registered_model(user, model, need="write")
    services.set_alias(registry.version_of(found, str(body.version)), by=user, alias=alias, now=timezone.now())
    return _again(request, found)


@router.delete("/models/{int:model}/aliases/{str:alias}", response={204: None})
def drop_alias(request: HttpRequest, model: int, alias: str) -> Status[None]:
    user = person(request)
    services.drop_alias(access.registered_model(user, model, need="write"), by=user, alias=alias, now=timezone.now())
    return Status(204, None)


@router.get("/models/{int:model}/versions", response=Page[ModelVersion])
def model_versions(request: HttpRequest, model: int, page: PageParameters) -> Page[ModelVersion]:
    found = access.registered_model(person(request), model)
    return newest(registry.versions_of(found), page, lambda row: version_response(request, row))


@router.get("/models/{int:model}/versions/{str:which}", response=ModelVersion)
def model_version(request: HttpRequest, model: int, which: str) -> ModelVersion:
    """`which`, here and below: a number, an alias, or latest."""
    return version_response(request, registry.version_of(access.registered_model(person(request), model), which))


@router.patch("/models/{int:model}/versions/{str:which}", response=ModelVersion)
def change_model_version(request: HttpRequest, model: int, which: str, body: ModelVersionChange) -> ModelVersion:
    user = person(request)
    found = registry.version_of(access.registered_model(user, model, need="write"), which)
    unchanged(request, version_response(request, found))
    said = {"note": found.note, "tags": found.tags, **body.model_dump(exclude_none=True)}
    return version_response(request, services.update_version(found, by=user, **said))


@router.delete("/models/{int:model}/versions/{str:which}", response={204: None})
def delete_model_version(request: HttpRequest, model: int, which: str) -> Status[None]:
    """Named by its number. With its files, but for those that another version has too; refused while an alias points to it."""
    user = person(request)
    found = access.registered_model(user, model, need="admin")
    if modelnames.number(which) is None:
        raise Refused(400, "Name the version by its number: what an alias points to may have changed.")
    services.delete_version(registry.version_of(found, which), by=user, now=timezone.now())
    return Status(204, None)


@router.get("/models/{int:model}/versions/{str:which}/files/{path:path}", response={200: bytes}, openapi_extra=BINARY)
def model_file(request: HttpRequest, model: int, which: str, path: str) -> HttpResponseBase:
    """The file, or the part of it that `Range` names."""
    return file_of(request, registry.version_of(access.registered_model(person(request), model), which), path)


@router.get("/models/{int:model}/versions/{str:which}/files.zip", response={200: bytes}, openapi_extra=BINARY)
def model_archive(request: HttpRequest, model: int, which: str) -> HttpResponseBase:
    """All of them, as a zip that is made while it is sent."""
    return archive_of(registry.version_of(access.registered_model(person(request), model), which))


@router.get("/models/{int:model}/versions/{str:which}/code.zip", response={200: bytes}, openapi_extra=BINARY)
def model_code(request: HttpRequest, model: int, which: str) -> HttpResponseBase:
    """The code of its run, as it was uploaded."""
    return code_of(request, registry.version_of(access.registered_model(person(request), model), which))


@router.get("/models/{int:model}/versions/{str:which}/receipt", response=ModelReceipt)
def model_receipt(request: HttpRequest, model: int, which: str) -> dict[str, Any]:
    """Sealed: its files by their hashes, and how it came about."""
    return seals.sealed(registry.card(registry.version_of(access.registered_model(person(request), model), which)))


@router.get("/runs/{int:run}/registrable", response=Page[Registrable])
def registrable(request: HttpRequest, run: int) -> Page[Registrable]:
    """What of its files can be registered, what is proposed first at first."""
    found = registry.candidates(access.run(person(request), run))
    return whole([Registrable(path=each.path, kind=each.kind, size_bytes=each.size_bytes) for each in found])


@router.get("/runs/{int:run}/models", response=Page[ModelVersion])
def models_of_run(request: HttpRequest, run: int) -> Page[ModelVersion]:
    """The versions that were made of it."""
    found = registry.of_run(access.run(person(request), run))
    return whole([version_response(request, each) for each in found])


@router.post("/runs/{int:run}/models", response={201: ModelVersion})
def register_model(request: HttpRequest, run: int, body: NewModelVersion) -> Status[ModelVersion]:
    """A version of what it has written: a copy, which stays when the run is deleted."""
    user = person(request)
    found = access.run(user, run, need="write")
    said = body.model_dump()
    if not said["path"]:
        offered = registry.candidates(found)
        if not offered:
            raise Http404("The run has written nothing that looks like a model: name a file or a folder of its results as `path`.")
        said["path"] = offered[0].path
    lineage = registry.lineage(found)
    made = services.register_version(found, by=user, lineage=lineage, idempotency_key=idempotency_key(request), now=timezone.now(), **said)
    return Status(201, version_response(request, registry.version_of(made.model, str(made.number))))
