"""Calls and what is made of their answers, without a connection."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

import pytest

from edt_client import folders, operations, sending
from edt_client.calls import Answer, Call, Operation
from edt_client.errors import ClientError, Refused
from edt_client.packing import Packed


def told(operation: Operation[Any], answers: Sequence[Any]) -> tuple[Any, list[Call]]:
    """What comes of it with these answers, and what was asked."""
    asked, left = [next(operation)], list(answers)
    try:
        while True:
            asked.append(operation.send(Answer(200, json.dumps(left.pop(0)).encode())))
    except StopIteration as end:
        return end.value, asked


def project(number: int, name: str) -> dict[str, Any]:
    return {"id": number, "name": name, "role": "admin", "created_by": "alice", "created_at": "2026-01-01T00:00:00Z", "url": ""}


@pytest.mark.parametrize(
    ("there", "number", "calls"),
    [
        ([(9, "alice's runs"), (1, "alice's runs"), (3, "malice's runs")], 1, 2),  # one was imported again
        ([(3, "malice's runs")], 7, 4),
        ([], 7, 4),
    ],
)
def test_ones_own_project_is_the_oldest_of_its_name_or_is_made(there: list[tuple[int, str]], number: int, calls: int) -> None:
    listed = {"items": [project(*each) for each in there], "next": None}
    found, asked = told(operations.own_project(), [{"username": "alice"}, listed, listed, project(7, "alice's runs")])
    assert (found.id, len(asked)) == (number, calls)
    assert asked[-1].method == ("POST" if calls == 4 else "GET")


def test_a_project_is_meant_by_its_name_first_and_by_its_number_however_many_there_are() -> None:
    none, called = {"items": [], "next": None}, {"items": [project(3, "7"), project(4, "77")], "next": None}
    found, asked = told(operations.project_of("7", make=True), [none, project(7, "digits")])
    assert (found.name, [call.path for call in asked]) == ("digits", ["/projects", "/projects/7"])
    assert told(operations.project_of("7", make=True), [called])[0].id == 3

    operation = operations.project_of("7", make=True)
    next(operation)
    operation.send(Answer(200, json.dumps(none).encode()))
    made = operation.throw(Refused("There is no such project.", 404))
    assert (made.method, made.json) == ("POST", {"name": "7"})
    operation = operations.project_of("7", make=True)
    next(operation)
    operation.send(Answer(200, json.dumps(none).encode()))
    with pytest.raises(Refused):
        operation.throw(Refused("This token is for another project.", 403))


def test_the_table_of_a_project_is_asked_for_with_what_is_wanted_alone() -> None:
    row = {"id": 3, "name": "r", "experiment": 1, "state": "completed", "url": "", "values": {"arg.lr": 0.1, "train.loss": None}, "new": 1}
    found, asked = told(operations.run_table(7, most=5, filter="lr < 1", sort="", columns=["arg.lr"]), [{"items": [row], "next": None}])
    assert [(each.id, each.values, each.steps) for each in found] == [(3, {"arg.lr": 0.1, "train.loss": None}, {})]
    assert asked == [Call("GET", "/projects/7/runs", {"filter": "lr < 1", "columns": ["arg.lr"], "limit": 5, "cursor": ""})]


def test_a_file_beyond_those_that_are_listed_is_fetched_whatever_its_size() -> None:
    file = {"path": "model/a.pth", "size_bytes": 7, "modified_at": "2026-01-01T00:00:00Z", "role": "model", "kind": "model"}
    size, asked = told(operations.size_of_file(7, "model/a.pth"), [{"items": [file], "folders": [], "missing": []}])
    assert (size, asked) == (7, [Call("GET", "/runs/7/files", {"folder": "model"})])
    more = {"items": [file], "folders": [], "missing": ["There are more files than are listed."]}
    assert told(operations.size_of_file(7, "model/b.pth"), [more])[0] is None
    with pytest.raises(ClientError, match=r"has no file model/b\.pth"):
        told(operations.size_of_file(7, "model/b.pth"), [{"items": [], "folders": [], "missing": []}])


def test_code_whose_type_nobody_says_is_not_saved_again_where_it_has_the_one_that_it_asks_for() -> None:
    version = {name: "" for name in ("name", "file_name", "framework", "device", "packages", "network", "requirements", "created_by")}
    version |= {"id": 5, "definition": 3, "number": 1, "size_bytes": 4, "max_slots": 1, "git": None, "created_at": "2026-01-01T00:00:00Z"}
    version |= {"sha256": hashlib.sha256(b"code").hexdigest(), "command": "main.py", "distributed": "single"}
    listed = {"id": 3, "project": 1, "name": "n", "description": "", "created_by": "", "created_at": "2026-01-01T00:00:00Z", "url": ""}
    listed = {"items": [{**listed, "newest": version}], "next": None}
    made = {**version, "number": 2, "distributed": "elastic"}
    for said, answers, number in (
        ("by_code", [listed, {"items": [], "distributed": "single"}], 1),
        ("by_code", [listed, {"items": [], "distributed": "elastic"}, made], 2),  # somebody had chosen another
        ("single", [listed], 1),
        ("elastic", [listed, made], 2),
    ):
        attributes = {"command": "main.py", "distributed": said}
        (taken, new), asked = told(sending.save_code(1, "n", b"code", attributes), answers)
        assert (taken.number, new, len(asked)) == (number, number == 2, len(answers))
    other = {"command": "other.py", "distributed": "by_code"}
    _, asked = told(sending.save_code(1, "n", b"code", other), [listed, made])
    assert asked[-1].fields == other, "of another script the type is not known yet"


@pytest.mark.parametrize(
    ("begin", "kind"),
    [
        (lambda packed: folders.run(packed, "main.py", project="p", name="", slots=None), "by_code"),
        (lambda packed: folders.run(packed, "main.py", project="p", name="", slots=2, distributed="torchrun"), "torchrun"),
        (lambda packed: folders.sweep(packed, "main.py", {"lr": ["1"]}, project="p", name=""), "by_code"),
        (lambda packed: folders.save(packed, {}, project="p"), "by_code"),
        (lambda packed: folders.save(packed, {"distributed": "elastic"}, project="p"), "elastic"),
    ],
    ids=["run", "run of a type", "sweep", "save", "save of a type"],
)
def test_code_that_python_sends_is_of_the_type_that_it_asks_for_unless_another_is_said(begin: Any, kind: str) -> None:
    operation = begin(Packed("n", b"code", ("main.py",), 4))
    assert next(operation).path == "/projects"
    operation.send(Answer(200, json.dumps({"items": [project(1, "p")], "next": None}).encode()))
    made = operation.send(Answer(200, json.dumps({"items": [], "next": None}).encode()))
    assert made.fields is not None
    assert (made.path, made.fields["distributed"]) == ("/projects/1/definitions", kind)
