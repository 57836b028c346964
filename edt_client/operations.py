"""What can be asked of a studio, as operations (see `calls`): each once, for both clients."""

from __future__ import annotations

import datetime as dt
import hashlib
import uuid
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from edt_client.calls import Answer, Call, Operation, part, path_part
from edt_client.errors import ClientError, NoAnswer, Refused
from edt_client.things import (
    STRANGE,
    Comparison,
    Curve,
    Definition,
    Fact,
    File,
    Import,
    Log,
    Node,
    Project,
    Reproduction,
    RunFacts,
    Series,
    Slot,
    TableRow,
    Tail,
    Version,
    read,
)

T = TypeVar("T")
PAGE = 200
POINTS = 5000  # of a call
WHOLE_BYTES = 8 << 20  # code up to this size goes with its form


def _object(answer: Answer) -> dict[str, Any]:
    said = answer.json()
    if not isinstance(said, dict):
        raise NoAnswer(STRANGE)
    return said


def pages(kind: type[T], path: str, query: Mapping[str, Any], *, most: int) -> Operation[list[T]]:
    """A list, page by page, at most so many."""
    found: list[T] = []
    cursor = ""
    while len(found) < most:
        answer = yield Call("GET", path, {**query, "limit": min(PAGE, most - len(found)), "cursor": cursor})
        said = _object(answer)
        found += [read(kind, each) for each in said.get("items", [])]
        cursor = said.get("next") or ""
        if not cursor:
            break
    return found


def get(path: str, **query: Any) -> Operation[Any]:
    """Any call that reads, as plain JSON."""
    return (yield Call("GET", path, query)).json()


def send(method: str, path: str, body: Any) -> Operation[Any]:
    """Any call that changes something, as plain JSON."""
    return (yield Call(method, path, json=body)).json()


def projects(*, q: str = "", most: int = 1000) -> Operation[list[Project]]:
    return pages(Project, "/projects", {"q": q}, most=most)


def project_of(name: str, *, make: bool) -> Operation[Project]:
    """The project of exactly this name, or number; made where there is none and `make`."""
    found = yield from projects(q="" if name.isdigit() else name)
    chosen = [each for each in found if each.name == name] or [each for each in found if str(each.id) == name]
    if len(chosen) > 1:
        numbers = ", ".join(str(each.id) for each in chosen)
        raise ClientError(f"You have {len(chosen)} projects named {name}: name one by its number ({numbers}).")
    if chosen:
        return chosen[0]
    if not make:
        raise ClientError(f"You have no project named {name}: edt projects lists them, --project NAME chooses one.")
    return read(Project, (yield Call("POST", "/projects", json={"name": name}, key=uuid.uuid4().hex)).json())


def own_project() -> Operation[Project]:
    """Where runs go of which nobody says where; made where there is none. Of several of its name (one may have been imported again) the
    oldest."""
    me = yield from get("/me")
    name = f"{me['username']}'s runs"
    found = [each for each in (yield from projects(q=name)) if each.name == name]
    return min(found, key=lambda each: each.id) if found else (yield from project_of(name, make=True))


def definitions(project: int, *, name: str = "") -> Operation[list[Definition]]:
    return pages(Definition, f"/projects/{project}/definitions", {"name": name}, most=1000)


def save_code(project: int, name: str, zip_: bytes, attributes: Mapping[str, str]) -> Operation[tuple[Version, bool]]:
    """The version of the definition of this name whose code and attributes are these, and whether it was made for that.

    The newest version is taken again where it is the same.
    """
    found = yield from definitions(project, name=name)
    before = found[0].version if found else None
    same = before is not None and before.sha256 == hashlib.sha256(zip_).hexdigest()
    if before is not None and same and all(str(getattr(before, key, value)) == value for key, value in attributes.items()):
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


def upload_code(project: int, name: str, zip_: bytes) -> Operation[int]:
    """Send a zip in pieces, from where it stands; the number by which a definition takes it."""
    answer = yield Call("POST", f"/projects/{project}/uploads", json={"kind": "code", "files": [{"path": name, "size": len(zip_)}]})
    said = _object(answer)
    offset, size = int(said["files"][0]["received"]), int(said["piece_bytes"])
    while offset < len(zip_):
        piece = zip_[offset : offset + size]
        try:
            answer = yield Call("PUT", f"/uploads/{said['id']}/files/0", {"offset": offset}, content=piece)
            offset = int(_object(answer)["received"])
        except Refused as refused:
            if refused.status != 409:  # else it had arrived, and the answer was lost
                raise
            offset = int(_object((yield Call("GET", f"/uploads/{said['id']}")))["files"][0]["received"])
    hashes = {"sha256": [hashlib.sha256(zip_).hexdigest()]}
    return int(_object((yield Call("POST", f"/uploads/{said['id']}/finish", json=hashes, key="finish")))["upload"])


def send_project(archive: Path, *, name: str = "") -> Operation[Import]:
    """Send the archive of a project, from where it stands, and have it taken in. `name`: of the project, if it is to have another one."""
    begun = yield from _begun(archive.name, archive.stat().st_size, name)
    with open(archive, "rb") as file:
        offset = file.seek(begun.received)
        while piece := file.read(begun.piece_bytes):
            try:
                answer = yield Call("PUT", f"/projects/imports/{begun.id}/archive", {"offset": offset}, content=piece)
                offset = int(_object(answer)["received"])
            except Refused as refused:
                if refused.status != 409:  # else it had arrived, and the answer was lost
                    raise
                offset = file.seek((yield from project_import(begun.id)).received)
    return read(Import, (yield Call("POST", f"/projects/imports/{begun.id}/finish", json={}, key="finish")).json())


def _begun(file: str, size: int, name: str) -> Operation[Import]:
    """One of this file that was cut off on its way, else a new one."""
    for each in (yield from pages(Import, "/projects/imports", {}, most=PAGE)):
        if each.state == "arriving" and (each.file, each.size) == (file, size):
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


def start(
    project: int,
    version: int,
    *,
    command: str = "",
    name: str = "",
    data: int | None = None,
    source_folder: str = "",
    environment: Mapping[str, str] | None = None,
) -> Operation[RunFacts]:
    """Run a version, in an experiment of its own."""
    body = {"version": version, "command": command, "name": name, "data": data, "source_folder": source_folder}
    answer = yield Call("POST", f"/projects/{project}/runs", json={**body, "environment": dict(environment or {})}, key=uuid.uuid4().hex)
    return read(RunFacts, answer.json())


def sweep(
    project: int,
    version: int,
    *,
    grid: Mapping[str, Sequence[str]],
    command: str = "",
    name: str = "",
    data: int | None = None,
    source_folder: str = "",
    environment: Mapping[str, str] | None = None,
) -> Operation[list[RunFacts]]:
    """Run a version once for each combination of the values of `grid`, by the name of an argument, in an experiment of their own."""
    part_ = {"version": version, "command": command, "grid": {key: list(values) for key, values in grid.items()}}
    body = {"name": name, "versions": [part_], "data": data, "source_folder": source_folder, "environment": dict(environment or {})}
    made = _object((yield Call("POST", f"/projects/{project}/experiments", json={**body, "run": True}, key=uuid.uuid4().hex)))
    found: list[RunFacts] = yield from runs(most=PAGE, experiment=int(made["id"]))
    return sorted(found, key=lambda run: run.id)


def runs(*, most: int = 50, **wanted: Any) -> Operation[list[RunFacts]]:
    """`wanted`: project, experiment, state, submitter, tag, q."""
    return pages(RunFacts, "/runs", {name: value for name, value in wanted.items() if value not in (None, "")}, most=most)


def run_table(project: int, *, most: int = 50, **wanted: Any) -> Operation[list[TableRow]]:
    """`wanted`: filter, sort, columns (a list), experiment: as of the table's page."""
    return pages(TableRow, f"/projects/{project}/runs", {name: value for name, value in wanted.items() if value}, most=most)


def run(number: int) -> Operation[RunFacts]:
    return read(RunFacts, (yield Call("GET", f"/runs/{number}")).json())


def stop(number: int, *, reason: str = "") -> Operation[RunFacts]:
    return read(RunFacts, (yield Call("POST", f"/runs/{number}/stop", json={"reason": reason}, key="stop")).json())


def pause(number: int, *, reason: str = "") -> Operation[RunFacts]:
    return read(RunFacts, (yield Call("POST", f"/runs/{number}/pause", json={"reason": reason}, key="pause")).json())


def resume(number: int, *, reason: str = "") -> Operation[RunFacts]:
    return read(RunFacts, (yield Call("POST", f"/runs/{number}/resume", json={"reason": reason}, key="resume")).json())


def change(number: int, **changes: Any) -> Operation[RunFacts]:
    """`changes`: priority, min_slots, max_slots, tags, note."""
    return read(RunFacts, (yield Call("PATCH", f"/runs/{number}", json=changes)).json())


def go_on(number: int, *, command: str = "") -> Operation[RunFacts]:
    """A new run from the last checkpoint of this one."""
    return read(RunFacts, (yield Call("POST", f"/runs/{number}/continue", json={"command": command}, key=uuid.uuid4().hex)).json())


def rerun(number: int, **changes: Any) -> Operation[list[RunFacts]]:
    """New runs in its experiment. `changes`: version, command, grid, min_slots, max_slots, priority, environment."""
    answer = yield Call("POST", f"/runs/{number}/rerun", json=changes, key=uuid.uuid4().hex)
    return [read(RunFacts, each) for each in _object(answer).get("items", [])]


def receipt(number: int) -> Operation[bytes]:
    """Sealed, of a run that has ended: the file as it is to be kept."""
    return (yield Call("GET", f"/runs/{number}/receipt")).body


def is_ours(receipt: Mapping[str, Any]) -> Operation[bool]:
    """Whether the studio has sealed it."""
    return bool(_object((yield Call("POST", "/receipts/check", json=dict(receipt), key="check")))["ours"])


def reproduce(number: int) -> Operation[RunFacts]:
    """The same run again."""
    return read(RunFacts, (yield Call("POST", f"/runs/{number}/reproduce", key=uuid.uuid4().hex)).json())


def reproduction(number: int) -> Operation[Reproduction]:
    """How a run that repeats another one compares with it."""
    return read(Reproduction, (yield Call("GET", f"/runs/{number}/reproduction")).json())


def begin_outside(project: int, name: str, *, started_at: dt.datetime | None = None, key: str = "") -> Operation[RunFacts]:
    """A run on a machine that is not the studio's. The same `key`: the same run."""
    body = {"name": name, "started_at": started_at.isoformat() if started_at else None}
    return read(RunFacts, (yield Call("POST", f"/projects/{project}/outside-runs", json=body, key=key or uuid.uuid4().hex)).json())


def log_metrics(
    number: int, points: Sequence[Mapping[str, Any]], *, parameters: Mapping[str, str] | None = None, tags: Mapping[str, str] | None = None
) -> Operation[None]:
    """Of a run from outside. Points of each metric in the order of their steps: name, step, value, time (Unix seconds), group."""
    named = {"parameters": dict(parameters or {}), "tags": dict(tags or {})}
    for first in range(0, max(len(points), 1), POINTS):
        # Sent twice, it is the same: a step that a curve has passed is left out.
        some = points[first : first + POINTS]
        yield Call("POST", f"/runs/{number}/metrics", json={"points": list(some), **(named if not first else {})}, key="log")


def send_file(number: int, path: str, content: bytes) -> Operation[None]:
    """A file of a run from outside, below its artifacts."""
    yield Call("PUT", file_path(number, f"artifacts/{path}"), content=content)


def end_outside(number: int, state: str, *, ended_at: dt.datetime | None = None) -> Operation[RunFacts]:
    body = {"state": state, "ended_at": ended_at.isoformat() if ended_at else None}
    return read(RunFacts, (yield Call("POST", f"/runs/{number}/end", json=body, key="end")).json())


def metrics(number: int) -> Operation[list[Series]]:
    return [read(Series, each) for each in _object((yield Call("GET", f"/runs/{number}/metrics"))).get("items", [])]


def curves(number: int, *, group: str = "", name: str = "", max_points: int = 1000) -> Operation[list[Curve]]:
    query = {"group": group, "name": name, "max_points": max_points, "format": "json"}
    return [read(Curve, each) for each in _object((yield Call("GET", f"/runs/{number}/metrics/points", query))).get("curves", [])]


def table(number: int, *, group: str = "", name: str = "") -> Operation[bytes]:
    """All points, as CSV."""
    return (yield Call("GET", f"/runs/{number}/metrics/points", {"group": group, "name": name, "format": "csv"})).body


def logs(number: int) -> Operation[list[Log]]:
    return [read(Log, each) for each in _object((yield Call("GET", f"/runs/{number}/logs"))).get("items", [])]


def log(number: int, name: str, *, offset: int | None = None, lines: int = 200) -> Operation[Tail]:
    """What stands from `offset` on, else the last lines."""
    query: dict[str, Any] = {"tail_lines": lines} if offset is None else {"offset": offset}
    return read(Tail, (yield Call("GET", f"/runs/{number}/logs/{part(name)}", query)).json())


def files(number: int, *, q: str = "", kind: str = "", folder: str = "") -> Operation[list[File]]:
    """Those whose path has every word of `q` in it, of a kind, in a folder, however deep."""
    wanted = {name: value for name, value in (("q", q), ("kind", kind), ("folder", folder)) if value}
    return [read(File, each) for each in _object((yield Call("GET", f"/runs/{number}/files", wanted))).get("items", [])]


def checkpoints(number: int) -> Operation[dict[str, Any]]:
    """Its `policy`, the `best` one, and `items`."""
    return _object((yield Call("GET", f"/runs/{number}/checkpoints")))


def set_checkpoints(number: int, *, last: int, best: int = 0, metric: str = "", greatest: bool = False) -> Operation[dict[str, Any]]:
    """Which of them are kept; `last` 0: all."""
    wanted = {"last": last, "best": best, "metric": metric, "greatest": greatest}
    return _object((yield Call("PUT", f"/runs/{number}/checkpoints", json=wanted)))


def file_path(number: int, path: str) -> str:
    return f"/runs/{number}/files/{path_part(path)}"


def compare(numbers: Iterable[int]) -> Operation[Comparison]:
    """Runs of any projects side by side, each of which there has to be."""
    asked = list(dict.fromkeys(numbers))
    said = _object((yield Call("GET", "/compare", {"run": ",".join(map(str, asked))})))
    if missing := said.get("missing"):
        names = ", ".join(map(str, missing))
        raise ClientError(f"There is no such run, or you may not see it: {names}.")
    return Comparison([read(RunFacts, each) for each in said.get("runs", [])], [read(Fact, each) for each in said.get("facts", [])])


def slots() -> Operation[list[Slot]]:
    """Who holds what now."""
    return [read(Slot, each) for each in _object((yield Call("GET", "/cluster"))).get("slots", [])]


def nodes() -> Operation[list[Node]]:
    return [read(Node, each) for each in _object((yield Call("GET", "/nodes"))).get("items", [])]
