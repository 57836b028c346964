"""The archive of a project is sent in pieces, and gone on with where it was cut off."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from edt_client import sending
from edt_client.calls import Answer, Call, Operation
from edt_client.errors import Refused
from edt_client.things import Import


@dataclass
class Studio:
    """Takes pieces of four bytes. `there`: imports that were begun before; `loses`: the answer to so many pieces, which have arrived."""

    there: list[dict[str, Any]] = field(default_factory=list)
    loses: int = 0
    arrived: bytearray = field(default_factory=bytearray)
    sent: list[str] = field(default_factory=list)

    def answer(self, call: Call) -> Answer:
        self.sent.append(f"{call.method} {call.path}")
        match call.method, call.path.rpartition("/")[2]:
            case "GET", "imports":
                return _said({"items": self.there, "next": None})
            case "PUT", _:
                if call.query["offset"] != len(self.arrived):
                    raise Refused("The file ends elsewhere.", 409)
                self.arrived += call.content or b""
                if self.loses:
                    self.loses -= 1
                    raise Refused("The file ends elsewhere.", 409)  # it was sent again, since the answer was lost
                return _said({"received": len(self.arrived)})
        return _said(_order(7, received=len(self.arrived)))


def _order(number: int, *, received: int, file: str = "digits.zip", name: str = "", state: str = "arriving") -> dict[str, Any]:
    facts = {"id": number, "file": file, "name": name, "size": 10, "received": received, "piece_bytes": 4}
    return {**facts, "state": state, "says": "", "project": None}


def _said(said: Any) -> Answer:
    return Answer(200, json.dumps(said).encode())


def done(operation: Operation[Import], studio: Studio) -> Import:
    call = next(operation)
    while True:
        try:
            try:
                answer = studio.answer(call)
            except Refused as refused:
                call = operation.throw(refused)
            else:
                call = operation.send(answer)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    path = tmp_path / "digits.zip"
    path.write_bytes(b"0123456789")
    return path


def test_an_archive_is_sent_in_pieces(archive: Path) -> None:
    studio = Studio()
    assert done(sending.send_project(archive), studio).id == 7
    assert bytes(studio.arrived) == b"0123456789"
    assert studio.sent[-1] == "POST /projects/imports/7/finish"


def test_a_piece_whose_answer_was_lost_is_there_once(archive: Path) -> None:
    studio = Studio(loses=2)
    done(sending.send_project(archive), studio)
    assert bytes(studio.arrived) == b"0123456789"


def test_one_that_was_cut_off_is_gone_on_with_and_another_is_not(archive: Path) -> None:
    others = [_order(1, received=5, file="letters.zip"), _order(2, received=10, state="done"), _order(3, received=6)]
    studio = Studio(there=others, arrived=bytearray(b"012345"))
    done(sending.send_project(archive), studio)
    assert bytes(studio.arrived) == b"0123456789"
    assert "POST /projects/imports" not in studio.sent
    assert studio.sent[-1] == "POST /projects/imports/3/finish"


def test_one_that_was_cut_off_on_its_way_to_another_name_is_left_alone(archive: Path) -> None:
    there = [_order(3, received=6), _order(4, received=6, name="Mine"), _order(5, received=0, name="Ours and theirs")]
    studio = Studio(there=there)
    done(sending.send_project(archive, name=" Ours  and theirs"), studio)
    assert studio.sent[-1] == "POST /projects/imports/5/finish"
    studio = Studio(there=there)
    done(sending.send_project(archive, name="Theirs"), studio)
    assert "POST /projects/imports" in studio.sent
    assert studio.sent[-1] == "POST /projects/imports/7/finish"


@pytest.mark.parametrize("project", [None, 4])
def test_what_was_refused_is_said_with_why(project: int | None) -> None:
    over = Import(1, "a.zip", 1, 1, 1, "refused", "This is not the archive of a project.", project)
    with pytest.raises(Refused, match="not the archive"):
        next(sending.imported(over))
