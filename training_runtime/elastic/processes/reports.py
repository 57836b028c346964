"""What the driver of a run is told by those who act for it: its fork server and workers here; and, through its bridge, other machines and
what theirs say. One JSON object each, read at the edge.

Rare events only; finished steps go through the ring in shared memory.
"""

from __future__ import annotations

import dataclasses
import json
import typing
from dataclasses import dataclass, field
from typing import Any, Literal

from training_runtime import json_object
from training_runtime.errors import ProtocolError
from training_runtime.protocol import SlotRef
from training_runtime.records import build

# -- from a fork server


@dataclass(frozen=True)
class Sized:
    """It has the datasets, of so many samples."""

    samples: int
    test_samples: int
    kind: Literal["sized"] = "sized"


@dataclass(frozen=True)
class Unforkable:
    """It has the datasets, and must not fork: `why`."""

    why: str
    samples: int
    test_samples: int
    kind: Literal["unforkable"] = "unforkable"


@dataclass(frozen=True)
class ForkServerFailed:
    """It ends by an exception, in the `where` of the script; `advice` goes with the exception's own words."""

    where: str
    traceback: str
    advice: str
    kind: Literal["error"] = "error"


@dataclass(frozen=True)
class Forked:
    """A worker has a process."""

    worker_id: int
    pid: int
    kind: Literal["forked"] = "forked"


@dataclass(frozen=True)
class Exited:
    """A worker is reaped. `code`: its exit code; -N: signal N."""

    worker_id: int
    code: int
    kind: Literal["exited"] = "exited"


# -- from a worker, about itself or its generation


@dataclass(frozen=True)
class Ready:
    """It can become a member."""

    worker_id: int
    kind: Literal["ready"] = "ready"


@dataclass(frozen=True)
class PullLimit:
    """It has asked for the state often enough, and goes."""

    worker_id: int
    kind: Literal["pull_limit"] = "pull_limit"


@dataclass(frozen=True)
class Dying:
    """It ends by an exception. `final`: that would only happen again; `no_room`: for want of room on the disk."""

    worker_id: int
    traceback: str
    summary: str
    final: bool
    no_room: bool
    kind: Literal["dying"] = "dying"


@dataclass(frozen=True)
class Begun:
    """A generation works, from `position` on. `redone`: steps that are done again; `stood_s`: how long nobody trained."""

    generation: int
    position: int
    redone: int
    stood_s: float
    kind: Literal["begun"] = "begun"


@dataclass(frozen=True)
class Suspended:
    """The state of `position` is on the disk, and there are no members any more."""

    position: int
    paths: tuple[str, ...]
    size_bytes: int
    kind: Literal["suspended"] = "suspended"


@dataclass(frozen=True)
class Diverged:
    """The workers differ: in which `parts` of the state, and the worker ids in `groups` that agree."""

    step: int
    parts: tuple[str, ...]
    groups: tuple[tuple[int, ...], ...]
    kind: Literal["diverged"] = "diverged"


@dataclass(frozen=True)
class Retired:
    """All units are done, and it is not the one that writes the final model."""

    worker_id: int
    position: int
    kind: Literal["retired"] = "retired"


@dataclass(frozen=True)
class Done:
    """All units are done, and the final model is written."""

    position: int
    kind: Literal["done"] = "done"


# -- from a worker, for the journal


@dataclass(frozen=True)
class Exactness:
    """More was seen of whether the run is exact."""

    reasons: tuple[str, ...]
    checked: bool
    kind: Literal["exactness"] = "exactness"


@dataclass(frozen=True)
class _Journaled:
    """`machine`: whose bridge has passed it on, 0 for the driver's own."""

    machine: int = field(default=0, kw_only=True)


@dataclass(frozen=True)
class Tested(_Journaled):
    """`row`: the metric vector of the validation."""

    step: int
    epoch: int
    row: tuple[float, ...]
    kind: Literal["tested"] = "tested"


@dataclass(frozen=True)
class Checkpoint(_Journaled):
    """Files were written; `paths` are relative to the run's folder."""

    step: int
    epoch: int
    role: Literal["model", "engine"]
    paths: tuple[str, ...]
    size_bytes: int
    kind: Literal["checkpoint"] = "checkpoint"


@dataclass(frozen=True)
class Digest(_Journaled):
    """Of the state after `step`, 16 hexadecimal digits."""

    step: int
    epoch: int
    digest: str
    kind: Literal["digest"] = "digest"


@dataclass(frozen=True)
class Warned(_Journaled):
    """What a person should know."""

    message: str
    kind: Literal["warning"] = "warning"


@dataclass(frozen=True)
class LoggedLine:
    """Metrics that the script has logged itself."""

    group: Literal["train", "test"]
    step: int
    values: dict[str, float]


@dataclass(frozen=True)
class Logged(_Journaled):
    """What the body of a script's loop has logged in step `at`."""

    at: int
    lines: tuple[LoggedLine, ...]
    kind: Literal["logged"] = "logged"


# -- from the bridge, and from a remote agent through it


@dataclass(frozen=True)
class StartAsked:
    """Another machine needs the state that all workers begin with."""

    kind: Literal["asked"] = "asked"


@dataclass(frozen=True)
class Joined:
    """Another machine takes part, with these slots; `reason` is why. `own_folder`: it has a folder of its own."""

    slots: tuple[SlotRef, ...]
    reason: str
    machine: int = 0
    own_folder: bool = False
    kind: Literal["joined"] = "joined"


@dataclass(frozen=True)
class Offered:
    """The slots of another machine are these now."""

    slots: tuple[SlotRef, ...]
    reason: str
    machine: int = 0
    kind: Literal["slots"] = "slots"


@dataclass(frozen=True)
class MachineLost:
    """Nothing more will be heard of a machine."""

    machine: int
    kind: Literal["lost_machine"] = "lost_machine"


Once = Digest | Tested | Checkpoint  # the journal takes each only once, however often it is given it
Journaled = Once | Warned | Logged  # worth a line in whichever driver's journal
OfMachine = StartAsked | Joined | Offered
OfForkServer = Sized | Unforkable | ForkServerFailed | Forked | Exited
OfWorker = Ready | PullLimit | Dying | Begun | Suspended | Diverged | Retired | Done | Exactness | Journaled
Report = OfForkServer | OfWorker | OfMachine | MachineLost
_KINDS: dict[str, type[Any]] = {str(kind.__dataclass_fields__["kind"].default): kind for kind in typing.get_args(Report)}


def encode(report: Report) -> bytes:
    return json.dumps(vars(report), default=vars).encode()  # records inside are dataclasses too


def plain(report: Report) -> dict[str, Any]:
    """As an object of JSON."""
    return dataclasses.asdict(report)


def decode(raw: bytes) -> Report:
    """Raises ProtocolError for what is no report."""
    return read(json_object.parse(raw))


def read(said: dict[str, Any]) -> Report:
    """From parsed JSON; fields that are not known are left out. Raises ProtocolError."""
    kind = _KINDS.get(str(said.get("kind")))
    if kind is None:
        raise ProtocolError(f"unknown report {str(said)[:80]!r}")
    return typing.cast(Report, build(kind, said, lenient=True))
