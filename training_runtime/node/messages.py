"""What a joined machine and the studio say to each other on their stream: frozen records, a JSON text each.

    node -> studio   Hello, ObservedState, JournalsGrown, Departed
    studio -> node   Welcome, DesiredState, Refused

The stream is a WebSocket that the node opens (`/ws/node/`, Authorization: Bearer). A DesiredState comes every few seconds and whenever
something has changed; it is the whole of what should run there, so one that is lost is made up for by the next. Fields that are not known
are ignored, those that are missing have their defaults, and a message of a kind that is not known is left out. VERSION is raised by one
whenever a message changes, those of `protocol` inside these included. Machines one version apart, in either direction, take part as they
are; one that is further apart (OLDEST) is refused with a sentence that says which side to upgrade, and asks again until one of them is.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import Any, Literal, get_args

from training_runtime.protocol import MAX_STUDIO_LINE_BYTES, Apply, Observation
from training_runtime.records import build, parse_message
from training_runtime.version_skew import Behind, ProtocolVersion

VERSION = 3
OLDEST = VERSION - 1  # of the other side that this one works with
SPOKEN = ProtocolVersion(VERSION, OLDEST)
UPGRADE_MACHINE = (
    'Upgrade it to the studio\'s release: `pip install --upgrade "edt-studio[node]"` there (in a clone: update it, and `tools/setup.sh`), '
    "then `edt-node join --replace`. What runs there trains on."
)
STREAM = "/ws/node/"
FILES = "/node/v1"
GUEST = "guest"


@dataclass(frozen=True)
class Hello:
    """Node -> studio, first. `identity`: made once and kept in the node's home; `boot`: of this start of the machine. `slots`: how many it
    offers; None: what the studio says."""

    identity: str
    boot: str = ""
    slots: int | None = None
    version: int = VERSION
    oldest: int = OLDEST
    type: Literal["hello"] = "hello"


@dataclass(frozen=True)
class Welcome:
    """Studio -> node. `incarnation`: grows with every joining, and goes with all that the node sends from now on: what an older one sends
    is refused. `lease_s`: so long after the last DesiredState the node may use its slots; 0: for good. `slots`: how many it shares out.
    `installation`: the key of the studio's home, which a machine that shares that finds there."""

    name: str
    incarnation: int
    lease_s: float
    slots: int | None = None
    installation: str = ""
    version: int = VERSION
    oldest: int = OLDEST
    type: Literal["welcome"] = "welcome"


@dataclass(frozen=True)
class RunFolder:
    """Where the files of a wanted run are. `folder`: its name among those of runs. `term`: of the run's stay on this machine, GUEST where
    its driver is elsewhere; a folder that is here from an earlier stay is out of date."""

    run: int
    folder: str
    term: str


@dataclass(frozen=True)
class DesiredState:
    """Studio -> node: what should run there. The paths in it are places (see `places`). `several`: a run may use several machines, so
    drivers here may be reached from others."""

    apply: Apply
    folders: tuple[RunFolder, ...] = ()
    several: bool = False
    type: Literal["wanted"] = "wanted"


@dataclass(frozen=True)
class ObservedState:
    """Node -> studio: what the node's host sees, as far as its files have arrived: a run whose last file is still on its way has not ended
    yet."""

    observation: Observation
    type: Literal["seen"] = "seen"


@dataclass(frozen=True)
class Journal:
    run: int
    bytes: int


@dataclass(frozen=True)
class JournalsGrown:
    """Node -> studio: of a machine that shares the studio's folders: how long the journals are that have grown there since it last said."""

    journals: tuple[Journal, ...]
    type: Literal["grown"] = "grown"


@dataclass(frozen=True)
class Departed:
    """Node -> studio, last: it was told to end, its host has ended, and no process of a run is left there. They may go on elsewhere."""

    type: Literal["departed"] = "departed"


@dataclass(frozen=True)
class Refused:
    """Studio -> node, before it closes the stream. `final`: trying again will not help."""

    reason: str
    final: bool = False
    type: Literal["refused"] = "refused"


Message = Hello | Welcome | DesiredState | ObservedState | JournalsGrown | Departed | Refused
_TYPES: dict[str, type[Any]] = {str(each.__dataclass_fields__["type"].default): each for each in get_args(Message)}


def encode(message: Message) -> str:
    return json.dumps(dataclasses.asdict(message), separators=(",", ":"))


def decode(text: str | bytes) -> Message:
    """The record that a message holds. Raises UnknownMessage for a kind that is not known, which a newer version may have sent,
    ProtocolError for anything else."""
    raw, cls = parse_message(text, _TYPES, limit_bytes=MAX_STUDIO_LINE_BYTES)
    if cls in (Hello, Welcome):
        raw.setdefault("version", 0)
        raw.setdefault("oldest", raw["version"])  # who says no more than that works with no other
    message: Message = build(cls, raw, lenient=True)
    return message


def apart(behind: Behind, *, studio: ProtocolVersion, machine: ProtocolVersion) -> str:
    """Why the two cannot work together, and what to upgrade. `behind`: as the machine sees it, "ours" is the machine."""
    if behind == "ours":
        return f"The studio speaks {studio} of this stream and this machine {machine}. {UPGRADE_MACHINE}"
    return (
        f"This machine speaks {machine} of this stream and the studio {studio}: upgrade the studio first, or install here the release that "
        "the studio has."
    )
