"""What a driver tells its fork servers and bridges: read back as it was written, and refused where it is no command."""

from __future__ import annotations

import json

import pytest

from training_runtime.elastic.processes import commands
from training_runtime.elastic.processes.commands import Acknowledge, Command, Cut, End, Fork, Kill, Start
from training_runtime.errors import ProtocolError

FORK = Fork(worker_id=3, slot=7, index=1, kind="gpu", begin=-1, after=4, workers=2)


@pytest.mark.parametrize("command", [FORK, Kill(3), Start(), Acknowledge(), Cut(), End()], ids=lambda command: command.do)
def test_a_command_is_read_as_it_was_written_also_with_the_machine_that_it_is_for(command: Command) -> None:
    assert commands.decode(commands.encode(command)) == command
    assert commands.decode_addressed(commands.encode(command, machine=2)) == (2, command)


def test_a_field_of_a_later_version_is_left_out() -> None:
    assert commands.read({**commands.plain(FORK), "nice": 5}) == FORK


@pytest.mark.parametrize("said", [{}, {"do": "dance"}, {"do": "kill"}, {"do": "kill", "worker_id": "3"}, {"do": ["kill"]}])
def test_what_is_no_command_is_refused(said: dict[str, object]) -> None:
    with pytest.raises(ProtocolError):
        commands.decode(json.dumps(said).encode())


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b"7", commands.encode(Kill(3)), b'{"do": "kill", "worker_id": 3, "machine": "all"}'])
def test_what_names_no_machine_is_refused_by_a_bridge(raw: bytes) -> None:
    with pytest.raises(ProtocolError):
        commands.decode_addressed(raw)
