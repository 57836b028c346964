"""Data sets from a client: send one or its next version, and what can be asked of its versions (operations, see `calls`)."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from edt_client import operations, packing
from edt_client.calls import Call, Operation
from edt_client.errors import ClientError, Refused
from edt_client.operations import pages
from edt_client.things import DataAsset, read


def sets(project: int, *, most: int = 1000) -> Operation[list[DataAsset]]:
    """The data sets of a project, each by its newest version."""
    return pages(DataAsset, f"/projects/{project}/data", {}, most=most)


def versions(data: int, *, most: int = 1000) -> Operation[list[DataAsset]]:
    """Of the data set of which `data` is a version, newest first."""
    return pages(DataAsset, f"/data/{data}/versions", {}, most=most)


def version_of(project: int, address: str, *, only: bool = False) -> Operation[DataAsset]:
    """The version that is meant by "digits@2", by "digits", which is its newest, or by a number, which is its id. Of several data sets of
    that name the one with the newest version; where it must be the `only` one, ClientError."""
    if address.isdigit():
        return read(DataAsset, (yield Call("GET", f"/data/{address}")).json())
    there = yield from sets(project)
    name, _, wanted = address.rpartition("@")
    if any(each.name == address for each in there) or not (name and wanted.removeprefix("v").isdigit()):
        return _chosen(there, address, only)
    number, found = int(wanted.removeprefix("v")), (yield from versions(_chosen(there, name, only).id))
    if not (right := [each for each in found if each.version == number]):
        raise ClientError(f"{name} has no version {number}: it has {', '.join(str(each.version) for each in reversed(found))}.")
    return right[0]


def _chosen(there: list[DataAsset], name: str, only: bool) -> DataAsset:
    found = [each for each in there if each.name == name]
    if not found:
        raise ClientError(f"The project has no data asset named {name}: edt upload makes one.")
    if only and len(found) > 1:
        numbers = ", ".join(str(each.id) for each in found)
        raise ClientError(f"The project has {len(found)} data sets named {name}: name one by its number ({numbers}).")
    return found[0]


def upload(project: int, name: str, folder: Path, *, description: str = "") -> Operation[DataAsset]:
    """The files of a folder, or one file, as a data set of its own; each in pieces, checked by its hash when all have arrived."""
    paths, files = _files(folder)
    packing.check_names([name], "give it another one")
    body = {"kind": "data", "name": name, "description": description, "files": files}
    return (yield from _send(f"/projects/{project}/uploads", body, paths))


def add_data(folder: Path, *, project: str, name: str = "", next_of: str = "", note: str = "") -> Operation[DataAsset]:
    """As a data set of the project, or as the next version of its data set `next_of`."""
    found = yield from operations.project_of(project, make=not next_of)
    if next_of:
        before = yield from version_of(found.id, next_of, only=True)
        return (yield from add_version(before.id, folder, note=note))
    return (yield from upload(found.id, name or folder.resolve().name, folder))


def of_project(address: str, project: str) -> Operation[DataAsset]:
    """`version_of`, by the name of the project."""
    return (yield from version_of((yield from operations.project_of(project, make=False)).id, address))


def add_version(data: int, folder: Path, *, note: str = "") -> Operation[DataAsset]:
    """The same as the next version of the data set of which `data` is a version. Refused where it is the same as the newest one."""
    paths, files = _files(folder)
    return (yield from _send(f"/data/{data}/versions", {"note": note, "files": files}, paths))


def delete(data: int, *, all_versions: bool = False) -> Operation[None]:
    """One version, or all of its data set."""
    yield Call("DELETE", f"/data/{data}/versions" if all_versions else f"/data/{data}")


def left_out(folder: Path) -> list[str]:
    """Links of a folder that are not sent."""
    return _listed(folder)[1]


def _listed(folder: Path) -> tuple[list[str], list[str]]:
    files = (path for path in folder.rglob("*") if path.is_file() or path.is_symlink())
    return packing.split_links(folder, (path.relative_to(folder).as_posix() for path in files))


def _files(folder: Path) -> tuple[list[Path], list[dict[str, Any]]]:
    paths = [folder / path for path in _listed(folder)[0]] if folder.is_dir() else [folder]
    if not paths:
        raise ClientError(f"{folder} has no files to upload.")
    said = [{"path": path.relative_to(folder).as_posix() if folder.is_dir() else path.name, "size": path.stat().st_size} for path in paths]
    packing.check_names((str(each["path"]) for each in said), "upload a folder without it")
    return paths, said


def _send(address: str, body: dict[str, Any], paths: list[Path]) -> Operation[DataAsset]:
    begun = (yield Call("POST", address, json=body)).json()
    hashes = []
    for number, path in enumerate(paths):
        hashes.append((yield from _send_file(begun, number, path)))
    answer = yield Call("POST", f"/uploads/{begun['id']}/finish", json={"sha256": hashes}, key="finish")
    return read(DataAsset, answer.json()["data"])


def _send_file(upload: dict[str, Any], number: int, path: Path) -> Operation[str]:
    """Its hash, in hex."""
    digest, offset = hashlib.sha256(), 0
    with open(path, "rb") as file:
        while piece := file.read(int(upload["piece_bytes"])):
            try:
                yield Call("PUT", f"/uploads/{upload['id']}/files/{number}", {"offset": offset}, content=piece)
            except Refused as refused:
                if refused.status != 409:  # else it had arrived, and the answer was lost
                    raise
            digest.update(piece)
            offset += len(piece)
    return digest.hexdigest()
