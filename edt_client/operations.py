"""What can be asked of a studio, as operations (see `calls`): each once, for both clients. What is sent in pieces is in `sending`."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Iterable, Mapping, Sequence
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
LONGEST_NUMBER = 19  # digits, and one more
DRIVER = "driver"  # the log that every run has that has begun


def object_of(answer: Answer) -> dict[str, Any]:
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
        said = object_of(answer)
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
    chosen = [each for each in (yield from projects(q=name)) if each.name == name]
    if not chosen and (one := (yield from _project_numbered(name))) is not None:
        return one
    if len(chosen) > 1:
        numbers = ", ".join(str(each.id) for each in chosen)
        raise ClientError(f"You have {len(chosen)} projects named {name}: name one by its number ({numbers}).")
    if chosen:
        return chosen[0]
    if not make:
        raise ClientError(f"You have no project named {name}: edt projects lists them, --project NAME chooses one.")
    return read(Project, (yield Call("POST", "/projects", json={"name": name}, key=uuid.uuid4().hex)).json())


def _project_numbered(said: str) -> Operation[Project | None]:
    """None for what is no number of a project that one may open."""
    if not (said.isascii() and said.isdigit() and len(said) < LONGEST_NUMBER):
        return None
    try:
        return read(Project, (yield Call("GET", f"/projects/{int(said)}")).json())
    except Refused as refused:
        if refused.status != 404:
            raise
        return None


def number_of(project: str) -> Operation[int | None]:
    """Of a project that is named; None where none is."""
    return (yield from project_of(project, make=False)).id if project else None


def own_project() -> Operation[Project]:
    """Where runs go of which nobody says where; made where there is none. Of several of its name (one may have been imported again) the
    oldest."""
    me = yield from get("/me")
    name = f"{me['username']}'s runs"
    found = [each for each in (yield from projects(q=name)) if each.name == name]
    return min(found, key=lambda each: each.id) if found else (yield from project_of(name, make=True))


def definitions(project: int, *, name: str = "") -> Operation[list[Definition]]:
    return pages(Definition, f"/projects/{project}/definitions", {"name": name}, most=1000)


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
    made = object_of((yield Call("POST", f"/projects/{project}/experiments", json={**body, "run": True}, key=uuid.uuid4().hex)))
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
    """`changes`: priority, min_slots, max_slots, any_kind, tags, note."""
    return read(RunFacts, (yield Call("PATCH", f"/runs/{number}", json=changes)).json())


def go_on(number: int, *, command: str = "") -> Operation[RunFacts]:
    """A new run from the last checkpoint of this one."""
    return read(RunFacts, (yield Call("POST", f"/runs/{number}/continue", json={"command": command}, key=uuid.uuid4().hex)).json())


def rerun(number: int, **changes: Any) -> Operation[list[RunFacts]]:
    """New runs in its experiment. `changes`: version, command, grid, min_slots, max_slots, priority, environment."""
    answer = yield Call("POST", f"/runs/{number}/rerun", json=changes, key=uuid.uuid4().hex)
    return [read(RunFacts, each) for each in object_of(answer).get("items", [])]


def receipt(number: int) -> Operation[bytes]:
    """Sealed, of a run that has ended: the file as it is to be kept."""
    return (yield Call("GET", f"/runs/{number}/receipt")).body


def is_ours(receipt: Mapping[str, Any]) -> Operation[bool]:
    """Whether the studio has sealed it."""
    return bool(object_of((yield Call("POST", "/receipts/check", json=dict(receipt), key="check")))["ours"])


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
    return [read(Series, each) for each in object_of((yield Call("GET", f"/runs/{number}/metrics"))).get("items", [])]


def curves(number: int, *, group: str = "", name: str = "", max_points: int = 1000) -> Operation[list[Curve]]:
    query = {"group": group, "name": name, "max_points": max_points, "format": "json"}
    return [read(Curve, each) for each in object_of((yield Call("GET", f"/runs/{number}/metrics/points", query))).get("curves", [])]


def table(number: int, *, group: str = "", name: str = "") -> Operation[bytes]:
    """All points, as CSV."""
    return (yield Call("GET", f"/runs/{number}/metrics/points", {"group": group, "name": name, "format": "csv"})).body


def version(number: int) -> Operation[Version]:
    return read(Version, (yield Call("GET", f"/versions/{number}")).json())


def logs(number: int) -> Operation[list[Log]]:
    return [read(Log, each) for each in object_of((yield Call("GET", f"/runs/{number}/logs"))).get("items", [])]


def log(number: int, name: str, *, offset: int | None = None, lines: int = 200) -> Operation[Tail]:
    """What stands from `offset` on, else the last lines."""
    query: dict[str, Any] = {"tail_lines": lines} if offset is None else {"offset": offset}
    return read(Tail, (yield Call("GET", f"/runs/{number}/logs/{part(name)}", query)).json())


def log_from(run: RunFacts, name: str, *, offset: int) -> Operation[Tail | None]:
    """What stands from `offset` on; None where the run's driver has not begun to write its log."""
    try:
        return (yield from log(run.id, name, offset=offset))
    except Refused as refused:
        if refused.status != 404 or name != DRIVER or run.has_ended:
            raise
        return None


def files(number: int, *, q: str = "", kind: str = "", folder: str = "") -> Operation[list[File]]:
    """Those whose path has every word of `q` in it, of a kind, in a folder, however deep."""
    wanted = {name: value for name, value in (("q", q), ("kind", kind), ("folder", folder)) if value}
    return [read(File, each) for each in object_of((yield Call("GET", f"/runs/{number}/files", wanted))).get("items", [])]


def size_of_file(number: int, path: str) -> Operation[int | None]:
    """In bytes, of a file that the run has; None where it has more files than are listed, and this one is not among them. Raises
    ClientError."""
    said = object_of((yield Call("GET", f"/runs/{number}/files", {"folder": path.rpartition("/")[0]})))
    for each in (read(File, one) for one in said.get("items", [])):
        if each.path == path:
            return each.size_bytes
    if said.get("missing"):
        return None
    raise ClientError(f"Run {number} has no file {path}: edt download {number} --list names them.")


def checkpoints(number: int) -> Operation[dict[str, Any]]:
    """Its `policy`, the `best` one, and `items`."""
    return object_of((yield Call("GET", f"/runs/{number}/checkpoints")))


def set_checkpoints(number: int, *, last: int, best: int = 0, metric: str = "", greatest: bool = False) -> Operation[dict[str, Any]]:
    """Which of them are kept; `last` 0: all."""
    wanted = {"last": last, "best": best, "metric": metric, "greatest": greatest}
    return object_of((yield Call("PUT", f"/runs/{number}/checkpoints", json=wanted)))


def file_path(number: int, path: str) -> str:
    return f"/runs/{number}/files/{path_part(path)}"


def compare(numbers: Iterable[int]) -> Operation[Comparison]:
    """Runs of any projects side by side, each of which there has to be."""
    asked = list(dict.fromkeys(numbers))
    said = object_of((yield Call("GET", "/compare", {"run": ",".join(map(str, asked))})))
    if missing := said.get("missing"):
        names = ", ".join(map(str, missing))
        raise ClientError(f"There is no such run, or you may not see it: {names}.")
    return Comparison([read(RunFacts, each) for each in said.get("runs", [])], [read(Fact, each) for each in said.get("facts", [])])


def slots() -> Operation[list[Slot]]:
    """Who holds what now."""
    return [read(Slot, each) for each in object_of((yield Call("GET", "/cluster"))).get("slots", [])]


def nodes() -> Operation[list[Node]]:
    return [read(Node, each) for each in object_of((yield Call("GET", "/nodes"))).get("items", [])]
