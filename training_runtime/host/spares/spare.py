"""A spare process: forked and boxed for no run yet, with the packages of one environment imported. What it is to its host; when to make one
and when to end it is decided in `spare_plan`, and `spares` does it.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from training_runtime.host import processes
from training_runtime.host.processes import Traces
from training_runtime.host.runs.launch import Hello, Launch
from training_runtime.host.sandbox import enter, levels, own_folder
from training_runtime.host.sandbox.levels import Box, Policy, data_folders
from training_runtime.host.sandbox.rootfs import Use
from training_runtime.host.sockets import LineSocket
from training_runtime.host.spares.ahead import Ahead
from training_runtime.host.spares.spare_plan import Likeness, Seen
from training_runtime.host.state import SavedSpare
from training_runtime.imported import Imported, SetBefore
from training_runtime.protocol import RunSpec

# Variables that name the run itself or its data: of no package that is imported, and told anew when the run is known.
_ITS_OWN = frozenset(
    [
        *("DLI_EXECID", "TRAINING_ID", "RESUME_WEIGHT_PATH"),
        *("DATA_DIR", "DATA_PATH", "DLI_DATA_FS", "DLI_SHARED_FS", "DL_NFS_PATH", "DLI_CS_DATASTORE_META"),
    ]
)
_NAME_LENGTH, MOST_MODULES, MOST_VARIABLES = 200, 20_000, 500


@dataclass(eq=False)
class Spare:
    """`gate`: to the process, `request`: what it is told there once it has said who it is (`hello`). `namespace`: the descriptor of its
    mount namespace. `ready`: it has imported all and waits."""

    number: int
    like: Likeness
    uid: int
    made_at: float
    gate: LineSocket = field(init=False)
    request: Ahead = field(init=False)
    hello: Hello | None = None
    namespace: int | None = None
    ready: bool = False

    @property
    def group(self) -> str:
        return group_name(self.number)

    def seen(self) -> Seen:
        return Seen(self.number, self.like, self.made_at, self.ready)

    def met(self) -> Hello:
        assert self.hello is not None
        return self.hello

    def saved(self) -> SavedSpare:
        return SavedSpare(self.met().pid, self.met().shim, self.met().shim_ticks, self.met().start_ticks)

    def enter_ready(self) -> None:
        """It cannot leave its namespaces any more. Raises OSError where it is gone."""
        hello = self.met()
        namespace = os.open(f"/proc/{hello.pid}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
        if not processes.alive(hello.pid, hello.start_ticks):
            os.close(namespace)
            raise ProcessLookupError("it is gone")
        self.namespace, self.ready = namespace, True

    def close(self) -> None:
        """What the host holds of it."""
        self.gate.close()
        self.close_namespace()

    def close_namespace(self) -> None:
        if self.namespace is not None:
            os.close(self.namespace)
            self.namespace = None


def group_name(number: int) -> str:
    return f"spare-{number}"


def unsuited(request: Launch, *, gpus: bool) -> str:
    """Why runs like this have no spare process, in words; empty where they may have one."""
    spec, box = request.spec, request.box
    own = (request.code, spec.data_dir, *data_folders(spec), spec.result_dir)
    refusals = {
        "it has no environment of its own": not request.environment_dir,
        "this machine gives runs no root of their own": not box.private or box.read_search,
        "this machine refuses runs no system call": not box.filtered,
        "it has secrets": bool(spec.secrets),
        "it has the network": box.reach != "none",
        "its script runs in processes of torchrun": bool(spec.torchrun),
        "it is a part of a run on other machines": spec.remote,
        "it goes on from another run's checkpoint": bool(spec.continue_from),
        "it computes on GPUs in its first process": gpus and not spec.elastic,
        "a folder of it lies behind a link": any(os.path.realpath(path) != path for path in own if path),
        "its folder lies among those of the machine": _is_among(str(Path(spec.result_dir).parent), box),
    }
    return next((why for why, holds in refusals.items() if holds), "")


def begun(request: Launch) -> str:
    """Why this very run has none though those like it may: its folder belongs to its user already. Empty where it may."""
    try:
        return "" if os.lstat(request.spec.result_dir).st_uid == os.geteuid() else "it goes on where an earlier attempt was"
    except OSError:
        return "its folder is not there"


def _is_among(folder: str, box: Box) -> bool:
    return any(Path(path).is_relative_to(folder) for path in box.execute if path != box.write)


def likeness(request: Launch) -> Likeness:
    spec = request.spec
    return Likeness(
        environment=Path(request.environment_dir).name,
        person=spec.user,
        code=request.code,
        script=_script(spec),
        slots=0 if spec.elastic else spec.max_slots,
        variables=tuple(sorted(_renamed(request.environment, spec.result_dir).items())),
        python_path=request.python_path,
        shown=tuple(path for path, _ in _later(request)),
    )


def _script(spec: RunSpec) -> str:
    return f"-m {spec.module}" if spec.module else spec.argv[0] if spec.argv else ""


def _renamed(environment: Mapping[str, str], result: str) -> dict[str, str]:
    return {name: value.replace(result, own_folder.SCRATCH) for name, value in environment.items() if name not in _ITS_OWN}


def _later(request: Launch) -> tuple[tuple[str, Use], ...]:
    """The folders of the box in which those of the run will appear."""
    read = (request.code, *data_folders(request.spec))
    parents: dict[str, Use] = {str(Path(path).parent): "read" for path in read}
    return tuple((parents | {str(Path(request.spec.result_dir).parent): "write"}).items())


def ahead(request: Launch, imported: Imported, *, uid: int, groups: tuple[str, ...]) -> Ahead:
    """What a spare process for runs like this is told: nothing of this run but the names of its modules, and the
    variables that were set before them."""
    result = request.spec.result_dir
    box = replace(
        request.box,
        uid=uid,
        execute=tuple(path for path in request.box.execute if path != request.code),
        read=(),
        write=own_folder.SCRATCH,
        later=_later(request),
    )
    return Ahead(
        modules=tuple(name for name in imported.modules[:MOST_MODULES] if _is_name(name)),
        variables=tuple(_elsewhere(each, result) for each in imported.variables[:MOST_VARIABLES]),
        driver=request.driver,
        box=box,
        environment=_renamed(request.environment, result) | dict.fromkeys(_ITS_OWN & request.environment.keys(), ""),
        python_path=request.python_path,
        environment_dir=request.environment_dir,
        work_dir=request.work_dir.replace(result, own_folder.SCRATCH),
        log_dir=request.log_dir.replace(result, own_folder.SCRATCH),
        temporary=request.temporary.replace(result, own_folder.SCRATCH),
        script=_script(request.spec),
        slots=0 if request.spec.elastic else request.spec.max_slots,
        said=request.spec.env,
        groups=groups,
    )


def _elsewhere(variable: SetBefore, result: str) -> SetBefore:
    return variable if variable.value is None else replace(variable, value=variable.value.replace(result, own_folder.SCRATCH))


def _is_name(name: str) -> bool:
    return len(name) <= _NAME_LENGTH and all(part.isidentifier() for part in name.split("."))


def visible_paths(request: Launch) -> tuple[tuple[str, Use], ...]:
    """What the run sees of the machine beside what its spare process has seen, and its own folder."""
    data = data_folders(request.spec)
    devices = tuple(path for path in enter.devices() if path not in enter.HARMLESS_DEVICES)
    return (*((path, "read") for path in (request.code, *data)), *((path, "device") for path in devices))


def a_user(policy: Policy, taken: Collection[int | None]) -> int:
    """Of those that are kept for spare processes, one that nobody here is now. The run keeps it, with its folder."""
    free = [policy.uid_base + number for number in levels.SPARES if policy.uid_base + number not in taken]
    return random.choice(free)


def kill(saved: SavedSpare) -> bool:
    """One pass over all that is left of it; whether that is nothing."""
    found = processes.table()
    members = processes.of_run(Traces(saved.shim, saved.shim_ticks, saved.pid, "\0", saved.start_ticks), found)
    for process in members:
        processes.send_signal(process, signal.SIGKILL)
    return not members and not processes.alive(saved.shim, saved.shim_ticks)


def has_children(saved: SavedSpare) -> bool:
    return bool(processes.descendants({saved.pid}, processes.table()))


def set_kill_order(pid: int, score: int) -> None:
    """How soon the kernel ends it when memory runs out, from 0 to 1000."""
    with contextlib.suppress(OSError):
        Path(f"/proc/{pid}/oom_score_adj").write_text(str(score))
