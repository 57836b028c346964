"""The driver's commands to its fork server and, through the bridge, to remote agents on other machines, which pass commands for workers on
to their own fork servers. One JSON object each, parsed at the edge."""

from __future__ import annotations

import dataclasses
import json
import typing
from dataclasses import dataclass
from typing import Any, Literal

from training_runtime import json_object
from training_runtime.errors import ProtocolError
from training_runtime.protocol import Device
from training_runtime.records import build


@dataclass(frozen=True)
class Fork:
    """To a fork server: fork a worker. The fields are described at `WorkerContext`."""

    worker_id: int
    slot: int
    index: int
    kind: Device
    begin: int
    after: int
    workers: int
    do: Literal["fork"] = "fork"


@dataclass(frozen=True)
class Kill:
    """To a fork server: end this worker at once."""

    worker_id: int
    do: Literal["kill"] = "kill"


@dataclass(frozen=True)
class Start:
    """To the bridge: the state that all workers begin with is laid out."""

    do: Literal["start"] = "start"


@dataclass(frozen=True)
class Acknowledge:
    """To the bridge of a remote agent: what it reported last is in the journal."""

    do: Literal["heard"] = "heard"


@dataclass(frozen=True)
class Cut:
    """To the bridge: give this machine up."""

    do: Literal["cut"] = "cut"


@dataclass(frozen=True)
class End:
    """To all remote agents: the training is over."""

    do: Literal["end"] = "end"


Command = Fork | Kill | Start | Acknowledge | Cut | End
_KINDS: dict[str, type[Any]] = {str(kind.__dataclass_fields__["do"].default): kind for kind in typing.get_args(Command)}
LIMIT_BYTES = 64 * 1024


def encode(command: Command, *, machine: int | None = None) -> bytes:
    """Encode the command. `machine`: the addressee, for the bridge; 0: all machines."""
    return json.dumps(plain(command) | ({} if machine is None else {"machine": machine})).encode()


def plain(command: Command) -> dict[str, Any]:
    return dataclasses.asdict(command)


def decode(raw: bytes) -> Command:
    """Parse a command. Raises ProtocolError if it is none."""
    return read(json_object.parse(raw))


def decode_addressed(raw: bytes) -> tuple[int, Command]:
    """Parse (machine, command) as the bridge receives it. Raises ProtocolError."""
    said = json_object.parse(raw)
    return build(_Address, said, lenient=True).machine, read(said)


@dataclass(frozen=True)
class _Address:
    machine: int


def read(said: dict[str, Any]) -> Command:
    """Build a command from parsed JSON; unknown fields are ignored. Raises ProtocolError."""
    kind = _KINDS.get(str(said.get("do")))
    if kind is None:
        raise ProtocolError(f"unknown command {str(said)[:80]!r}")
    return typing.cast(Command, build(kind, said, lenient=True))
