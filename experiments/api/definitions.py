"""Training definitions and their versions: model code with a command, and what its runs need."""

from __future__ import annotations

import contextlib
import datetime as dt
from collections.abc import Iterator
from typing import Annotated, Any, BinaryIO

from django.db.models import OuterRef, Prefetch, QuerySet, Subquery
from django.http import HttpRequest
from ninja import Field, File, Form, Router, Schema
from ninja.files import UploadedFile
from ninja.responses import Status

from experiments import access, services
from experiments.api.auth import person
from experiments.api.paging import Page, PageParameters, newest
from experiments.api.problems import Refused
from experiments.api.requests import idempotency_key, unchanged
from experiments.api.schemas import Body, page_of
from experiments.forms.definitions import NO_CODE
from experiments.models import DefinitionVersion, Project, TrainingDefinition, User
from experiments.models.definitions import MAX_SLOTS_LIMIT
from experiments.views import uploaded_code

router = Router(tags=["definitions"])
Zip = Annotated[UploadedFile | None, File()]
Slots = Annotated[int, Field(ge=1, le=MAX_SLOTS_LIMIT)]


class Git(Schema):
    address: str
    ref: str
    folder: str
    commit: str


class Version(Schema):
    """Never changed, only followed by another. `sha256` and `size_bytes`: of the zip of its code; `packages`: own, studio, or named:ID."""

    id: int
    definition: int
    number: int
    name: str
    file_name: str
    sha256: str
    size_bytes: int
    command: str
    framework: str
    device: str
    distributed: str
    max_slots: int
    packages: str
    network: str
    requirements: str
    git: Git | None
    created_by: str
    created_at: dt.datetime


class Definition(Schema):
    id: int
    project: int
    name: str
    description: str
    created_by: str
    created_at: dt.datetime
    newest: Version
    url: str


class Attributes(Body):
    """`device`: any, gpu or cpu; `distributed`: elastic, torchrun_elastic, torchrun, single, or by_code, as its code asks for;
    `max_slots`: left out, as usual for that; `packages`: own, studio, or named:ID; `network`: none or outward; `upload`: the number of
    code that has arrived in pieces."""

    command: str = ""
    framework: str = "pytorch"
    device: str = "any"
    distributed: str = "elastic"
    max_slots: Slots | None = None
    packages: str = "own"
    network: str = "none"


class NewVersion(Attributes):
    upload: int | None = Field(None, ge=1, le=2**62)


class NewDefinition(NewVersion):
    name: str
    description: str = ""


class FromGit(Attributes):
    """`git_credential`: a deploy key or a token, which is stored encrypted and never shown again."""

    git_address: str
    git_ref: str = ""
    git_folder: str = ""
    git_credential: str = ""


class NewFromGit(FromGit):
    name: str
    description: str = ""


class DefinitionChange(Body):
    """What is left out stays as it is."""

    name: str | None = None
    description: str | None = None


class Copy(Body):
    """`project`: to which it goes."""

    project: int


def version_response(row: DefinitionVersion) -> Version:
    git = Git(address=row.git_address, ref=row.git_ref, folder=row.git_folder, commit=row.git_commit) if row.git_address else None
    same = ("number", "file_name", "command", "framework", "device", "distributed", "max_slots", "network", "requirements", "created_at")
    return Version(
        id=row.pk,
        definition=row.definition_id,
        name=row.definition.name,
        sha256=row.bundle.sha256,
        size_bytes=row.bundle.size_bytes,
        packages=row.packages_choice,
        git=git,
        created_by=row.created_by.username,
        **{name: getattr(row, name) for name in same},
    )


def _all_of(found: QuerySet[DefinitionVersion]) -> QuerySet[DefinitionVersion]:
    """With what `version_response` says of each."""
    return found.select_related("definition", "bundle", "created_by", "named")


def _with_newest(found: QuerySet[TrainingDefinition]) -> QuerySet[TrainingDefinition]:
    """Each with its newest version, however many there are: in one question."""
    newest_of = DefinitionVersion.objects.filter(definition=OuterRef("definition")).order_by("-number").values("pk")[:1]
    versions = _all_of(DefinitionVersion.objects.filter(pk=Subquery(newest_of)))
    return found.select_related("created_by").prefetch_related(Prefetch("versions", versions, to_attr="newest_alone"))


def definition_response(request: HttpRequest, row: TrainingDefinition) -> Definition:
    known: list[DefinitionVersion] = getattr(row, "newest_alone", [])
    return Definition(
        id=row.pk,
        project=row.project_id,
        name=row.name,
        description=row.description,
        created_by=row.created_by.username,
        created_at=row.created_at,
        newest=version_response(known[0] if known else _all_of(row.versions.all()).order_by("-number")[0]),
        url=page_of(request, "definition", row.pk),
    )


@router.get("/projects/{int:project}/definitions", response=Page[Definition])
def definitions(request: HttpRequest, project: int, page: PageParameters, name: str = "") -> Page[Definition]:
    """`name`: those of exactly this name."""
    found = _with_newest(access.project(person(request), project).definitions.all())
    return newest(found.filter(name=name.replace("\0", "")) if name else found, page, lambda row: definition_response(request, row))


@router.post("/projects/{int:project}/definitions", response={201: Definition}, url_name="api_new_definition")
def make_definition(request: HttpRequest, project: int, body: Form[NewDefinition], file: Zip = None) -> Status[Definition]:
    """Its code as the part `file` (a zip, a tar, one .py file or one notebook), or as `upload`, which has arrived in pieces."""
    user = person(request)
    found = access.project(user, project, need="write")
    said = body.model_dump(exclude={"upload"})
    with _code(user, found, file, body.upload) as (upload, name):
        if upload is None:
            raise Refused(400, NO_CODE, errors={"file": [NO_CODE]})
        made = services.create_definition(found, by=user, upload=upload, file_name=name, idempotency_key=idempotency_key(request), **said)
    return Status(201, definition_response(request, access.definition(user, made.definition_id)))


@contextlib.contextmanager
def _code(user: User, project: Project, file: UploadedFile | None, number: int | None) -> Iterator[tuple[BinaryIO | None, str]]:
    """What is to be read, and its name; nothing where none was sent."""
    if file is not None or number is None:
        yield file, (file.name or "") if file is not None else ""  # type: ignore[misc]  # Django's files are read as such
        return
    with uploaded_code.consumed(user, project, number) as (zip_, name):
        yield zip_, name


@router.post("/projects/{int:project}/definitions/git", response={201: Definition})
def make_definition_from_git(request: HttpRequest, project: int, body: NewFromGit) -> Status[Definition]:
    """The newest commit is fetched now, and kept."""
    user = person(request)
    found = access.project(user, project, need="write")
    made = services.create_definition_from_git(found, by=user, idempotency_key=idempotency_key(request), **body.model_dump())
    return Status(201, definition_response(request, access.definition(user, made.definition_id)))


@router.get("/definitions/{int:definition}", response=Definition)
def definition(request: HttpRequest, definition: int) -> Definition:
    return definition_response(request, access.definition(person(request), definition))


@router.patch("/definitions/{int:definition}", response=Definition)
def change_definition(request: HttpRequest, definition: int, body: DefinitionChange) -> Definition:
    """Its name and description."""
    user = person(request)
    found = access.definition(user, definition, need="write")
    unchanged(request, definition_response(request, found))
    name, text = (found.name if body.name is None else body.name), (found.description if body.description is None else body.description)
    services.update_definition(found, by=user, name=name, description=text)
    return definition_response(request, access.definition(user, definition))


@router.delete("/definitions/{int:definition}", response={204: None})
def delete_definition(request: HttpRequest, definition: int) -> Status[None]:
    """With all its versions. Refused while an experiment has one of them."""
    user = person(request)
    services.delete_definition(access.definition(user, definition, need="write"), by=user)
    return Status(204, None)


@router.post("/definitions/{int:definition}/copy", response={201: Definition})
def copy_definition(request: HttpRequest, definition: int, body: Copy) -> Status[Definition]:
    """Its newest version, to another project."""
    user = person(request)
    found = access.definition(user, definition)
    target = access.project(user, body.project, need="write")
    made = services.copy_definition(found.newest(), to=target, by=user, idempotency_key=idempotency_key(request))
    return Status(201, definition_response(request, access.definition(user, made.definition_id)))


@router.post("/definitions/{int:definition}/fetch", response={200: Version, 201: Version})
def fetch_again(request: HttpRequest, definition: int) -> Status[Version]:
    """The newest commit of what the newest version was fetched from: 201 and the next version, or 200 and the newest, which is that."""
    user = person(request)
    found = access.definition(user, definition, need="write")
    made = services.fetch_again(found, by=user, idempotency_key=idempotency_key(request))
    return Status(201, version_response(made)) if made is not None else Status(200, version_response(found.newest()))


@router.get("/definitions/{int:definition}/versions", response=Page[Version])
def versions(request: HttpRequest, definition: int, page: PageParameters) -> Page[Version]:
    found = access.definition(person(request), definition)
    return newest(_all_of(found.versions.all()), page, version_response)


@router.post("/definitions/{int:definition}/versions", response={201: Version}, url_name="api_new_version")
def make_version(request: HttpRequest, definition: int, body: Form[NewVersion], file: Zip = None) -> Status[Version]:
    """The next version. Without code it keeps that of the newest, and changes what stands beside it."""
    user = person(request)
    found = access.definition(user, definition, need="write")
    said: dict[str, Any] = body.model_dump(exclude={"upload"})
    with _code(user, found.project, file, body.upload) as (upload, name):
        made = services.add_version(found, by=user, upload=upload, file_name=name, idempotency_key=idempotency_key(request), **said)
    return Status(201, version_response(access.version(user, made.pk)))


@router.post("/definitions/{int:definition}/versions/git", response={201: Version})
def make_version_from_git(request: HttpRequest, definition: int, body: FromGit) -> Status[Version]:
    user = person(request)
    found = access.definition(user, definition, need="write")
    made = services.add_version_from_git(found, by=user, idempotency_key=idempotency_key(request), **body.model_dump())
    return Status(201, version_response(access.version(user, made.pk)))


@router.get("/versions/{int:version}", response=Version)
def version(request: HttpRequest, version: int) -> Version:
    return version_response(access.version(person(request), version))
