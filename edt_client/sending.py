"""Operations that send much: code and whole projects, in pieces and from where they stand."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Mapping
from pathlib import Path

from edt_client.calls import Call, Operation
from edt_client.errors import Refused
from edt_client.operations import PAGE, definitions, object_of, pages
from edt_client.things import Definition, Import, Project, Version, read

WHOLE_BYTES = 8 << 20  # code up to this size goes with its form
BY_CODE = "by_code"  # the type of training that the code asks for


def save_code(project: int, name: str, zip_: bytes, attributes: Mapping[str, str]) -> Operation[tuple[Version, bool]]:
    """The version of the definition of this name whose code and attributes are these, and whether it was made for that.

    The newest version is taken again where it is the same.
    """
    found = yield from definitions(project, name=name)
    before = found[0].version if found else None
    same = before is not None and before.sha256 == hashlib.sha256(zip_).hexdigest()
    if before is not None and same and (yield from _is_as(before, attributes)):
        return before, False
    fields, file = dict(attributes), None if same else (f"{name}.zip", zip_)
    if file is not None and len(zip_) > WHOLE_BYTES:
        fields["upload"], file = str((yield from upload_code(project, f"{name}.zip", zip_))), None
    key = uuid.uuid4().hex
    if before is not None:
        answer = yield Call("POST", f"/definitions/{found[0].id}/versions", fields=fields, file=file, key=key)
        return read(Version, answer.json()), True
    answer = yield Call("POST", f"/projects/{project}/definitions", fields={**fields, "name": name}, file=file, key=key)
    return read(Definition, answer.json()).version, True


def _is_as(version: Version, attributes: Mapping[str, str]) -> Operation[bool]:
    """Whether it has these. What its code asks for is asked: somebody may have chosen another type for it."""
    if not all(value in (BY_CODE, str(getattr(version, key, value))) for key, value in attributes.items()):
        return False
    if BY_CODE not in attributes.values():
        return True
    return bool(object_of((yield Call("GET", f"/versions/{version.id}/arguments")))["distributed"] == version.distributed)


def upload_code(project: int, name: str, zip_: bytes) -> Operation[int]:
    """Send a zip in pieces, from where it stands; the number by which a definition takes it."""
    answer = yield Call("POST", f"/projects/{project}/uploads", json={"kind": "code", "files": [{"path": name, "size": len(zip_)}]})
    said = object_of(answer)
    offset, size = int(said["files"][0]["received"]), int(said["piece_bytes"])
    while offset < len(zip_):
        piece = zip_[offset : offset + size]
        try:
            answer = yield Call("PUT", f"/uploads/{said['id']}/files/0", {"offset": offset}, content=piece)
            offset = int(object_of(answer)["received"])
        except Refused as refused:
            if refused.status != 409:  # else it had arrived, and the answer was lost
                raise
            offset = int(object_of((yield Call("GET", f"/uploads/{said['id']}")))["files"][0]["received"])
    hashes = {"sha256": [hashlib.sha256(zip_).hexdigest()]}
    return int(object_of((yield Call("POST", f"/uploads/{said['id']}/finish", json=hashes, key="finish")))["upload"])


def send_project(archive: Path, *, name: str = "") -> Operation[Import]:
    """Send the archive of a project, from where it stands, and have it taken in. `name`: of the project, if it is to have another one."""
    begun = yield from _begun(archive.name, archive.stat().st_size, name)
    with open(archive, "rb") as file:
        offset = file.seek(begun.received)
        while piece := file.read(begun.piece_bytes):
            try:
                answer = yield Call("PUT", f"/projects/imports/{begun.id}/archive", {"offset": offset}, content=piece)
                offset = int(object_of(answer)["received"])
            except Refused as refused:
                if refused.status != 409:  # else it had arrived, and the answer was lost
                    raise
                offset = file.seek((yield from project_import(begun.id)).received)
    return read(Import, (yield Call("POST", f"/projects/imports/{begun.id}/finish", json={}, key="finish")).json())


def _begun(file: str, size: int, name: str) -> Operation[Import]:
    """One of this file and to this name that was cut off on its way, else a new one."""
    for each in (yield from pages(Import, "/projects/imports", {}, most=PAGE)):
        if each.state == "arriving" and (each.file, each.size, each.name) == (file, size, " ".join(name.split())):
            return each
    body = {"file": file, "size": size, "name": name}
    return read(Import, (yield Call("POST", "/projects/imports", json=body, key=uuid.uuid4().hex)).json())


def project_import(number: int) -> Operation[Import]:
    return read(Import, (yield Call("GET", f"/projects/imports/{number}")).json())


def imported(done: Import) -> Operation[Project]:
    """What came of an import that is over. Raises Refused."""
    if done.state != "done" or done.project is None:
        raise Refused(done.says or "The project was deleted meanwhile.", 400)
    return read(Project, (yield Call("GET", f"/projects/{done.project}")).json())
