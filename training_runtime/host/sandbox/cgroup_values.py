"""What the cgroups of runs are told, for both versions of the kernel's interface: pure, numbers in and names and values of files out.

Version 2: Documentation/admin-guide/cgroup-v2.rst of the kernel; version 1: cgroup-v1/memory.rst, pids.rst and blkio-controller.rst beside
it, and scheduler/sched-design-CFS.rst; weights of disks: block/bfq-iosched.rst.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal

Version = Literal[1, 2]
Controller = Literal["memory", "pids", "cpu", "io", "devices"]
CONTROLLERS: tuple[Controller, ...] = ("memory", "pids", "cpu", "io")
WITH_DEVICES: tuple[Controller, ...] = (*CONTROLLERS, "devices")  # where that is asked for
WITHOUT: dict[Controller, str] = {
    "memory": "the memory of a run is not limited",
    "pids": "the processes of all runs together are not limited",
    "cpu": "runs do not share the processors by the slots they hold",
    "io": "runs do not share the disk by the slots they hold",
    "devices": "runs are refused here, since they could open GPUs on which they hold no slot, against EDT_SANDBOX_DEVICES",
}
WALLED = "a run can open no GPU on which it holds no slot"
LEAST_BYTES = 64 << 20
_GIB = 1 << 30


@dataclass(frozen=True)
class _Scale:
    """Of a file with a weight: what one slot weighs, and the most that the kernel takes."""

    slot: int
    most: int


# A slot of the processors weighs as much as one ordinary process without a group. Those of a disk count between runs alone, so they are
# small enough for many slots to fit. BFQ is a scheduler of disks, of both versions; the other files are of io.cost and of Linux before 5.0.
_WEIGHTS: dict[tuple[Controller, Version], dict[str, _Scale]] = {
    ("cpu", 1): {"cpu.shares": _Scale(1024, 1 << 18)},
    ("cpu", 2): {"cpu.weight": _Scale(100, 10_000)},
    ("io", 1): {"blkio.bfq.weight": _Scale(8, 1000), "blkio.weight": _Scale(40, 1000)},
    ("io", 2): {"io.bfq.weight": _Scale(8, 1000), "io.weight": _Scale(100, 10_000)},
}
_STUDIO_WEIGHT = "1000"


@dataclass(frozen=True)
class Limits:
    """In bytes and in processes and threads; None: no limit."""

    memory: int | None
    processes: int
    all_memory: int | None
    all_processes: int


def limits(*, memory: float | None, processes: int, machine_bytes: int, machine_processes: int) -> Limits:
    """`memory`: of one run, bytes, or up to 1 a share of the machine's; 0: none of its own; None: nine tenths of what all may have.

    All runs together leave the machine a sixteenth of its memory, at least 1 GiB or a quarter of a small one, and a quarter of its
    processes: for the studio, whose own processes the kernel then need not kill. One run may have less than all of them, so that it meets
    its own limit first: at that of all, the kernel kills whichever process is largest, though shared memory is counted to none.
    """
    spared = min(max(machine_bytes // 16, _GIB), machine_bytes // 4)
    all_memory = machine_bytes - spared if machine_bytes else None
    own: int | None
    if memory is None:
        own = all_memory * 9 // 10 if all_memory else None
    elif memory == 0:
        own = None
    else:
        own = int(memory * machine_bytes) if memory <= 1 else int(memory)
    if own is not None and all_memory is not None:
        own = min(own, all_memory)
    all_processes = max(1, machine_processes * 3 // 4)
    return Limits(own or None, min(processes, all_processes), all_memory, all_processes)


@dataclass(frozen=True)
class Most:
    """Of a process that has no run yet, in bytes and in processes and threads."""

    memory: int
    processes: int


def at_most(given: Limits, most: Most | None) -> Limits:
    if most is None:
        return given
    memory = most.memory if given.memory is None else min(given.memory, most.memory)
    return dataclasses.replace(given, memory=memory, processes=min(given.processes, most.processes))


def of_run(given: Limits, controller: Controller, version: Version) -> tuple[tuple[str, str], ...]:
    """The files of a run's leaf, in the order in which they are written. Swap counts as memory: a run that lives on the disk would take
    that from everybody."""
    return _values(controller, version, given.memory, given.processes)


def of_all(given: Limits, controller: Controller, version: Version) -> tuple[tuple[str, str], ...]:
    """The files of the group around all leaves."""
    tree = (("memory.use_hierarchy", "1"),) if (controller, version) == ("memory", 1) else ()  # before Linux 5.11 not by itself
    return tree + _values(controller, version, given.all_memory, given.all_processes)


def _values(controller: Controller, version: Version, memory: int | None, processes: int) -> tuple[tuple[str, str], ...]:
    if controller == "pids":
        return (("pids.max", str(processes)),)
    if controller == "memory" and memory is not None:
        if version == 2:
            return ("memory.max", str(memory)), ("memory.swap.max", "0")
        return ("memory.limit_in_bytes", str(memory)), ("memory.memsw.limit_in_bytes", str(memory))
    return ()


def words(given: Limits, controllers: Collection[Controller]) -> str:
    """For people, what a run may have; empty where nothing is limited."""
    parts = [f"{size(given.memory)} of memory"] if "memory" in controllers and given.memory is not None else []
    parts += [f"{given.processes} processes and threads"] if "pids" in controllers else []
    return f"a run may have {' and '.join(parts)}" if parts else ""


_OF_DISKS = frozenset(name for (controller, _), files in _WEIGHTS.items() if controller == "io" for name in files)
OPTIONAL = frozenset({"memory.swap.max", "memory.memsw.limit_in_bytes", "memory.use_hierarchy"}) | _OF_DISKS  # not in every kernel


def weights(slots: int, controller: Controller, version: Version) -> tuple[tuple[str, str], ...]:
    """Of a run that holds so many slots, against the other runs: a quarter of a slot's for one that holds none but has a process, and
    writes its model, say. Empty for a controller that has none; of a disk's files any may be missing, but not all."""
    files = _WEIGHTS.get((controller, version), {})
    return tuple((name, str(min(max(scale.slot * slots, scale.slot // 4), scale.most))) for name, scale in files.items())


def of_studio(controller: Controller) -> tuple[tuple[str, str], ...]:
    """Version 2: of its own processes together, where they have to be put into a group too."""
    return tuple((name, _STUDIO_WEIGHT) for name in _WEIGHTS.get((controller, 2), {}))


def name_of(controller: Controller, version: Version) -> str:
    """What the kernel calls it."""
    return "blkio" if (controller, version) == ("io", 1) else controller


@dataclass(frozen=True)
class Disk:
    """That of the runs' folders. `scheduler`: who orders what is asked of it, empty where the kernel does not say; `cost`: the kernel
    weighs it by io.cost, whoever orders."""

    scheduler: str = ""
    cost: bool = False


def unheeded(disk: Disk, files: Collection[str]) -> str:
    """Why the weights in these files change nothing on this disk; empty where they do."""
    heeded = {".bfq.": disk.scheduler == "bfq", "io.weight": disk.cost, "blkio.weight": disk.scheduler == "cfq"}
    if any(mark in name and yes for name in files for mark, yes in heeded.items()):
        return ""
    if not disk.scheduler:
        return "it is none whose scheduler the kernel tells"
    if disk.scheduler == "bfq":
        return "its scheduler is bfq, for which this kernel has no weights of groups"
    return f"its scheduler is {disk.scheduler}, which heeds no weights; bfq does"


def scheduler(text: str) -> str:
    """The one in use, from a disk's queue/scheduler."""
    return text.partition("[")[2].partition("]")[0]


def weighs_cost(text: str, device: str) -> bool:
    """Whether io.cost is on for this device ("8:0"), from io.cost.qos of the highest group."""
    lines = (line.split() for line in text.splitlines())
    return any(words[:1] == [device] and "enable=1" in words for words in lines)


@dataclass(frozen=True)
class Shortage:
    """`kills`: processes of the group that the kernel has killed for want of memory; `own`: it has met its own limit, not only one around
    it."""

    kills: int = 0
    own: bool = False


def shortage(files: Mapping[str, str], version: Version) -> Shortage:
    """From the texts of the files that `shortage_files` names. Version 1 has a counter of failures too, which new kernels leave at 0."""
    if version == 2:
        events = _numbers(files.get("memory.events", ""))
        return Shortage(events.get("oom_kill", 0), events.get("oom", 0) > 0)
    most, limit = (int(files.get(name, "").strip() or 0) for name in ("memory.max_usage_in_bytes", "memory.limit_in_bytes"))
    kills = _numbers(files.get("memory.oom_control", "")).get("oom_kill", 0)
    return Shortage(kills, 0 < limit - limit // 64 <= most)  # the kernel counts in lots of pages


def shortage_files(version: Version) -> tuple[str, ...]:
    return ("memory.events",) if version == 2 else ("memory.oom_control", "memory.max_usage_in_bytes", "memory.limit_in_bytes")


def _numbers(text: str) -> dict[str, int]:
    pairs = (line.split() for line in text.splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdecimal()}


def sentence(found: Shortage, limit: int | None) -> str:
    """For people, of a run that has failed; empty where memory has nothing to do with it."""
    if not found.kills:
        return ""
    if found.own and limit is not None:
        return (
            f"The run's processes needed more than {size(limit)} of memory, its limit: the kernel ended one of them. Let it hold less at "
            "once (a smaller batch, fewer loaders, data read piece by piece), or ask an administrator for more (EDT_RUN_MEMORY)."
        )
    return "The runs of the machine together needed more memory than it has: the kernel ended a process of this one. Run it again later."


def size(count: int) -> str:
    return f"{count / _GIB:.3g} GiB" if count >= _GIB else f"{count >> 20} MiB"


@dataclass(frozen=True)
class Places:
    """Where this process is: `own` by controller, of version 1; `unified` of version 2, None where it is not mounted. Each with the folder
    above which nothing can be seen."""

    own: Mapping[str, tuple[str, str]]
    unified: tuple[str, str] | None


def places(cgroup: str, mountinfo: str) -> Places:
    """From the texts of /proc/self/cgroup and /proc/self/mountinfo (cgroups(7), proc(5))."""
    mounts = [_mount(line) for line in mountinfo.splitlines() if " - cgroup" in line]
    own: dict[str, tuple[str, str]] = {}
    unified: tuple[str, str] | None = None
    for line in cgroup.splitlines():
        _, controllers, path = line.split(":", 2)
        named = set(filter(None, controllers.split(",")))
        for kind, root, at, options in mounts:
            inside = path == root or path.startswith(root.rstrip("/") + "/")
            if not inside or "/.." in path:
                continue  # mounted in such a way that our own group cannot be seen
            folder = (at.rstrip("/") + "/" + path[len(root.rstrip("/")) :].strip("/")).rstrip("/")
            if kind == "cgroup2" and not named:
                unified = unified or (folder, at)
            elif kind == "cgroup" and named & options:
                own |= {name: (folder, at) for name in named & options if name not in own}
    return Places(own, unified)


def mounted_from(mountinfo: str, device: str) -> str:
    """What the file system of this device ("0:42") was mounted from; empty if it is none of those."""
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        if before.split()[2:3] == [device]:
            return _plain(after.split()[1])
    return ""


def _mount(line: str) -> tuple[str, str, str, set[str]]:
    before, _, after = line.partition(" - ")
    root, at = before.split()[3:5]
    kind, _, options = after.split(None, 2)
    return kind, _plain(root), _plain(at), set(options.split(","))


def _plain(path: str) -> str:
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        path = path.replace(code, character)
    return path
