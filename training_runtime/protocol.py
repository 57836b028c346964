"""What processes of the runtime say to each other: frozen records, and their JSON form, one object a line.

Three conversations use them, each over a Unix stream socket:
  link <-> node host         Apply ->, <- Observation (and pushed Observations to subscribers)
  node host  <-> driver      Authenticate, Members, Stop ->, <- Holding, Grown, Imported, Meets   (a remote agent: no Grown, no Meets)
Everything that arrives is parsed here and nowhere else; a sender is never trusted. Of secrets those that people give runs cross them.

Sender and receiver may be of different versions, since a host and its drivers outlive the studio that is updated: a field that is not known
is ignored, one that is missing has its default, a message of an unknown kind is left out. VERSION is raised by one whenever a message
changes; versions one apart work together, others refuse each other and say which is behind (see `version_skew`). Standard library only.
"""

from __future__ import annotations

import dataclasses
import json
import typing
from dataclasses import dataclass, field
from typing import Any, Literal

from training_runtime.gpu_health import GpuHealth
from training_runtime.gpu_memory import GpuMemoryHolder
from training_runtime.imported import Imported
from training_runtime.meeting import Meeting, Meets
from training_runtime.records import build, parse_message
from training_runtime.version_skew import ProtocolVersion

VERSION = 3  # of what link and host say to each other; 2: runs over several machines were told by other names, 1: no secrets of runs
OLDEST = 3  # of the other side that this one works with; from version 4 on it is the one before VERSION
UNCHANGED_CODE_NS = 315_532_801_234_567_890  # when files of a run's working folder were written that are as they were uploaded (in 1980)
MAX_LINE_BYTES = 1 << 20  # to and from a driver
MAX_STUDIO_LINE_BYTES = 64 << 20  # between agent and host: some 60,000 live runs on one machine

SPOKEN = ProtocolVersion(VERSION, OLDEST)

Device = Literal["cpu", "gpu"]


@dataclass(frozen=True)
class SlotRef:
    """One slot of one node. `id` is the studio's number for it, `index` its place on the node (the GPU's number where it is a GPU)."""

    id: int
    node: str
    index: int
    device: Device


@dataclass(frozen=True)
class RunSpec:
    """All that a node host needs to start the driver of a run.

    `argv` is the script, relative to `code_dir`, or a program of a package, and its arguments. `module`: it is begun as `python -m` begins
    this one, which may be a package's, and its first word is then the same. `result_dir` is the run's own folder
    (RESULT_DIR); it exists and is empty but for the journal when the run starts for the first time. `env` holds the user's own variables
    (`--msd-env`, and those of its project and definition), already filtered; `secrets` those whose values nobody may see, in nothing that
    is shown of the run.
    `environment`: the folder of its packages, as its node calls it (see EnvironmentSeen); empty: those that every run has.
    `continue_from` is the result folder of another run of the same node, beside this run's own: the run begins with its engine checkpoint
    instead of the first step (empty: it does not). `remote`: the run's driver is on another machine; what starts here runs the same script
    up to train(), finds the driver, and forks the workers of this machine's slots. `data_root` is the folder that `data_dir` lies in or is
    (empty: it is), `elastic` what the training definition says: the work is done by workers, and the driver uses no device. `torchrun`: the
    script runs once on each slot as torchrun runs it: "elastic" on as many slots as there are, "fixed" on `max_slots`; `max_restarts`:
    how often it is started again after a worker has failed. `network`: it may have it. `release_grace_s`: for leaving a slot that is asked
    back, 0: the machine's. `isolated`: it must not start in a box that does not keep people's code apart, as the node has said it does.
    `address`: where the run's other machines reach this one; empty: as the host was started with. `meeting`: of a remote agent whose
    `result_dir` is no folder of its driver's: that is met there, and files go between the two.
    """

    run: int
    name: str
    user: str
    argv: tuple[str, ...]
    code_dir: str
    result_dir: str
    data_dir: str
    max_slots: int
    env: dict[str, str] = field(default_factory=dict)
    attempt: int = 1
    continue_from: str = ""
    remote: bool = False
    data_root: str = ""
    elastic: bool = True
    torchrun: Literal["", "elastic", "fixed"] = ""
    max_restarts: int = 0
    environment: str = ""
    secrets: dict[str, str] = field(default_factory=dict, repr=False)
    network: bool = False
    release_grace_s: float = 0.0
    isolated: bool = False
    address: str = ""
    meeting: Meeting | None = None
    module: str = ""


@dataclass(frozen=True)
class WantedRun:
    """What the studio wants of a run here: its driver (or remote agent) alive, holding exactly `slots` of this node, for `reason`."""

    spec: RunSpec
    slots: tuple[SlotRef, ...]
    reason: str
    stop: bool = False


@dataclass(frozen=True)
class WantedEnvironment:
    """Packages that runs wait for on this node: what is required (`requirements.to_text`), and the lock where it was resolved before;
    `prefer`: one of another base, whose versions are taken where they fit.

    `attempt`: one that has failed is built again when this is more than then. `run`: one that waits for it; code of packages that have to
    be built runs as its user. `known`: the studio has the lock and the log already, so they need not be sent again.
    """

    key: str
    requirements: str
    lock: str = ""
    prefer: str = ""
    attempt: int = 1
    run: int = 0
    known: bool = False


@dataclass(frozen=True)
class Apply:
    """Make what runs on this node equal to `runs`; a run that is not listed is stopped and, once gone, forgotten.

    `revision` grows with every snapshot of the studio's database: an older one than the last seen is ignored. `identity`: of the host that
    it is meant for (see NodeFacts), another does nothing of it; empty: of whoever is there. `fence`: an administrator declared the machine
    lost at that revision, and what ran there goes on elsewhere: whatever a host has from before it is killed without being asked.
    `environments`: to be built, or kept in readiness; a build that is not listed is cancelled. `drop`: folders of built ones to delete,
    which are not listed by anything else.
    """

    revision: int
    runs: tuple[WantedRun, ...]
    identity: str = ""
    fence: int = 0
    environments: tuple[WantedEnvironment, ...] = ()
    drop: tuple[str, ...] = ()
    version: int = VERSION
    oldest: int = OLDEST
    type: Literal["apply"] = "apply"


@dataclass(frozen=True)
class Subscribe:
    """Ask the node host to push an Observation whenever something changes, until the connection closes."""

    version: int = VERSION
    oldest: int = OLDEST
    type: Literal["subscribe"] = "subscribe"


DriverState = Literal["starting", "running", "stopping", "exited"]


@dataclass(frozen=True)
class SlotSeen:
    """What a machine has measured of a run's worker on one slot.

    `busy_s` of `counted_s` seconds were work, counted since `since_s` (seconds after boot). Another number there is another count (a new
    worker, a new host); two of one count give the share in between. `memory_bytes`: of the worker on a CPU slot; on a GPU slot what is in
    use of the device, of its `device_bytes`, by its `holders`. None: not known. `gpu`: its number, since slots may share one.
    """

    slot: int
    since_s: float
    busy_s: float | None = None
    counted_s: float = 0.0
    memory_bytes: int | None = None
    device_bytes: int | None = None
    gpu: int | None = None
    holders: tuple[GpuMemoryHolder, ...] = ()


@dataclass(frozen=True)
class RunObservation:
    """What a node host sees of one run.

    `holding` lists the slot ids for which a process of the run may still be alive: a slot that left this list is free, proven.
    `exit_code` is set once the driver and every process of the run are gone: 0 completed, >0 failed, <0 killed by that signal.
    `journal_bytes` is the journal's size when last heard of. `busy_s`: seconds in which its slots were at work, added up over the slots
    of this attempt; never more than they were held. None: this machine cannot tell. `counted_s`: over how many seconds of its slots that
    was counted; both only grow, so whoever sees them twice knows the share in between. `slots`: the same of each slot on which a worker is
    now; None where that is left out, since only the journal has grown.

    `remote`: it is not the run's driver but its remote agent here: what it holds and did is said of this node alone, its journal's size is
    0, and its exit code says nothing of the run. `abandoned`: it cannot work on this machine, as `detail` says, and is not started again.
    `meeting`: where remote agents reach the driver, once they can. `crowding`: of one that failed, who else had memory of its GPUs.
    """

    run: int
    attempt: int
    state: DriverState
    holding: tuple[int, ...]
    journal_bytes: int = 0
    exit_code: int | None = None
    detail: str = ""
    busy_s: float | None = None
    counted_s: float = 0.0
    slots: tuple[SlotSeen, ...] | None = None
    remote: bool = False
    abandoned: bool = False
    meeting: Meeting | None = None
    crowding: str = ""


@dataclass(frozen=True)
class NodeFacts:
    """What a node is: its devices and how strongly user code is boxed in there (see host/sandbox/levels.py). `address`: where other
    machines reach it, a host name or an IP; empty: nowhere, so it shares no run with them. `processor`: see that module. `base`: what
    environments stand on there, by its key and in words; empty: it builds none. `identity`: made once and kept in the host's folder, so
    that two machines with one name are told from each other."""

    name: str
    cpu_count: int
    memory_bytes: int
    gpus: tuple[str, ...]
    torch_version: str
    sandbox_level: str
    sandbox_notes: tuple[str, ...] = ()
    address: str = ""
    processor: str = ""
    identity: str = ""
    base: str = ""
    base_words: str = ""


@dataclass(frozen=True)
class EnvironmentSeen:
    """How far a wanted environment is. `detail`: what is being done; `problem`: why it failed. `folder`: what the node calls it. `lock` and
    `log` are there once it is built or has failed, until the studio knows them."""

    key: str
    attempt: int
    state: Literal["wanted", "building", "ready", "failed"]
    detail: str = ""
    problem: str = ""
    folder: str = ""
    lock: str = ""
    log: str = ""
    size_bytes: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class Observation:
    """The state of a node: answer to Apply, and what subscribers are sent. `revision` is the last one applied. `storage_problem`: why runs
    cannot write there now, for which they wait. `gpus`: those whose driver tells of their health. `environments`: those that are wanted;
    `folders`: of all that are built; None where both are left out, since only journals have grown."""

    revision: int
    node: NodeFacts
    runs: tuple[RunObservation, ...]
    warm: bool = True
    storage_problem: str = ""
    gpus: tuple[GpuHealth, ...] = ()
    environments: tuple[EnvironmentSeen, ...] | None = None
    folders: tuple[str, ...] | None = None
    version: int = VERSION
    oldest: int = OLDEST
    type: Literal["observation"] = "observation"


@dataclass(frozen=True)
class Authenticate:
    """Node host -> driver, first on each connection: the secret that the driver was started with. Nobody else is listened to: where runs
    share a user, any of them can find the socket and connect."""

    secret: str
    type: Literal["authenticate"] = "authenticate"


@dataclass(frozen=True)
class Members:
    """Node host -> driver or remote agent: the run's granted slots on this node, all of them, in order. None on any node: suspend at the
    next step boundary. `suspend`: that is so whatever other nodes offer. `meeting`: see RunSpec."""

    revision: int
    slots: tuple[SlotRef, ...]
    reason: str
    suspend: bool = False
    meeting: Meeting | None = None
    type: Literal["members"] = "members"


@dataclass(frozen=True)
class Stop:
    """Node host -> driver: finish the step, write what is to be written, exit."""

    reason: str
    type: Literal["stop"] = "stop"


@dataclass(frozen=True)
class Worker:
    """One live process on one slot, as the driver knows it."""

    slot: int
    pid: int
    start_ticks: int


@dataclass(frozen=True)
class Holding:
    """Driver -> node host: every slot that a process of the run may still use. Sent after each change and on connection.

    `revision` is that of the last Members message that the driver has taken in (0: none yet). A Holding that was on its way when a newer
    Members was sent says nothing about that one's slots: without the number a slot could be handed on just before a worker starts on it.
    """

    workers: tuple[Worker, ...]
    revision: int | None = None
    type: Literal["holding"] = "holding"


@dataclass(frozen=True)
class Grown:
    """Driver -> node host: the journal has grown to this many bytes. Sent after each flush."""

    journal_bytes: int
    type: Literal["grown"] = "grown"


Message = Apply | Subscribe | Observation | Authenticate | Members | Stop | Holding | Grown | Imported | Meets
_TYPES: dict[str, type[Any]] = {str(c.__dataclass_fields__["type"].default): c for c in typing.get_args(Message)}


def encode(message: Message) -> bytes:
    """One line of JSON, newline included."""
    return json.dumps(dataclasses.asdict(message), separators=(",", ":")).encode() + b"\n"


def decode(line: bytes, *, limit_bytes: int = MAX_LINE_BYTES) -> Message:
    """The record that a line holds, fields that are not known left out. Raises UnknownMessage for a kind that is not known, which a newer
    version may have sent, ProtocolError for anything else."""
    raw, cls = parse_message(line, _TYPES, limit_bytes=limit_bytes)
    if cls in (Apply, Subscribe, Observation):
        raw.setdefault("version", 0)
        raw.setdefault("oldest", raw["version"])  # who says no more than that works with no other
    return typing.cast(Message, build(cls, raw, lenient=True))


def spoken_by(message: Apply | Subscribe | Observation) -> ProtocolVersion:
    return ProtocolVersion(message.version, message.oldest)
