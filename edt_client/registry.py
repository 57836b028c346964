"""Registered models from a client: what the API answers of them, and what can be asked (operations, see `calls`)."""

from __future__ import annotations

import datetime as dt
import hashlib
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from edt_client import operations
from edt_client.calls import Call, Operation, part, path_part
from edt_client.errors import ClientError, NoAnswer
from edt_client.things import read

LATEST = "latest"


@dataclass(frozen=True)
class RegisteredModel:
    """`versions`: how many; `newest`: the number of the last; `aliases`: the version that each points to. `note`: Markdown."""

    id: int
    project: int
    name: str
    versions: int
    newest: int | None
    aliases: dict[str, int]
    created_by: str
    created_at: dt.datetime
    url: str
    note: str = ""
    tags: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ModelFile:
    """`made`: by the studio, beside what the run wrote."""

    path: str
    size_bytes: int
    sha256: str
    made: bool = False


@dataclass(frozen=True)
class ModelVersion:
    """`path`: what of the run was registered; `lineage`: what is known of how it came about; `left_out`: what could not be made of it."""

    id: int
    model: int
    name: str
    number: int
    run: int | None
    path: str
    size_bytes: int
    files: list[Any]
    url: str
    created_by: str
    created_at: dt.datetime
    aliases: list[str] = field(default_factory=list)
    note: str = ""
    tags: dict[str, str] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)
    lineage: dict[str, Any] = field(default_factory=dict)

    @property
    def its_files(self) -> list[ModelFile]:
        return [read(ModelFile, each) for each in self.files]


def parsed(address: str) -> tuple[str, str]:
    """(name, which version) of "digits@champion", "digits@3" and "digits", which is its newest version."""
    name, at, which = address.rpartition("@")
    return (name, which) if at else (address, LATEST)


def models(*, project: int | None = None, name: str = "", most: int = 1000) -> Operation[list[RegisteredModel]]:
    """Of a project, or of all that are yours."""
    path = "/models" if project is None else f"/projects/{project}/models"
    found = yield from operations.pages(RegisteredModel, path, {"name": name} if project is None and name else {}, most=most)
    return [each for each in found if name in ("", each.name)]


def model_of(name: str, *, project: int | None = None) -> Operation[RegisteredModel]:
    """The model of exactly this name."""
    found = yield from models(project=project, name=name)
    if len(found) > 1:
        raise ClientError(f"{len(found)} of your projects have a model named {name}: --project NAME says which is meant.")
    if not found:
        raise ClientError(f"You have no model named {name}: edt models lists them.")
    return found[0]


def versions(model: int, *, most: int = 1000) -> Operation[list[ModelVersion]]:
    """The newest first."""
    return operations.pages(ModelVersion, f"/models/{model}/versions", {}, most=most)


def version_of(address: str, *, project: int | None = None) -> Operation[ModelVersion]:
    """By "NAME@alias", "NAME@3" or "NAME"."""
    name, which = parsed(address)
    model = yield from model_of(name, project=project)
    return read(ModelVersion, (yield Call("GET", f"/models/{model.id}/versions/{part(which)}")).json())


def register(
    run: int, name: str, *, path: str = "", note: str = "", tags: Mapping[str, str] | None = None, aliases: Sequence[str] = ()
) -> Operation[ModelVersion]:
    """A version of what the run has written: `path`, or what looks like its model."""
    body = {"name": name, "path": path, "note": note, "tags": dict(tags or {}), "aliases": list(aliases)}
    return read(ModelVersion, (yield Call("POST", f"/runs/{run}/models", json=body, key=uuid.uuid4().hex)).json())


def set_alias(model: int, alias: str, number: int) -> Operation[RegisteredModel]:
    answer = yield Call("PUT", f"/models/{model}/aliases/{part(alias)}", json={"version": number})
    return read(RegisteredModel, answer.json())


def drop_alias(model: int, alias: str) -> Operation[None]:
    yield Call("DELETE", f"/models/{model}/aliases/{part(alias)}")


def point_alias(address: str, alias: str, *, project: int | None = None) -> Operation[RegisteredModel]:
    """Let the alias point to the version that `address` names."""
    version = yield from version_of(address, project=project)
    return (yield from set_alias(version.model, alias, version.number))


def chosen_files(version: ModelVersion, file: str, to: Path | str) -> tuple[list[ModelFile], Path]:
    """The files of it that are asked for, all or the one, and the folder where they go. Raises ClientError."""
    found = [each for each in version.its_files if file in ("", each.path)]
    if not found:
        raise ClientError(f"{version.name} version {version.number} has no file {file}.")
    return found, Path(to) if to else Path(f"{version.name}-{version.number}".replace("/", "_"))


def file_path(version: ModelVersion, path: str) -> str:
    """Of the API."""
    return f"/models/{version.model}/versions/{version.number}/files/{path_part(path)}"


def target_path(folder: Path, path: str) -> Path:
    """Where a file of a version goes below a folder: whoever named it, not outside. Raises NoAnswer."""
    parts = PurePosixPath(path).parts
    if not parts or path.startswith("/") or "\\" in path or any(each in (".", "..") for each in parts):
        raise NoAnswer(f"The studio names a file {path[:80]!r}, which leads out of the folder: nothing was written.")
    return folder.joinpath(*parts)


def check(at: Path, file: ModelFile) -> None:
    """Whether what has arrived is what was registered; else it does not stay. Raises NoAnswer."""
    with open(at, "rb") as opened:
        found = hashlib.file_digest(opened, "sha256").hexdigest()
    if found != file.sha256:
        at.unlink()
        raise NoAnswer(f"{at.name} did not arrive as it was registered: ask for it again.")
