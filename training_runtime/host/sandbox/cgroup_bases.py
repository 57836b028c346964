"""Where the control groups of runs may be (see `cgroup`), and which controllers really work there: found by trying.

They lie below the group that the host was started in. With version 2 that takes a group that was given to the studio: a container's, or
one that systemd has delegated (Delegate=yes; what else it has made is its own to arrange). The other processes in it are put into a group
beside the runs, since a group has either processes or groups with controllers.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import logging
import os
from pathlib import Path

from training_runtime.host.sandbox import cgroup_values as values
from training_runtime.host.sandbox import device_wall, disk_device
from training_runtime.host.sandbox.cgroup import Base, Groups, door, gone, leaves, read, try_write, write, write_all
from training_runtime.host.sandbox.cgroup_values import CONTROLLERS, Controller, Limits, Version

log = logging.getLogger(__name__)
_STUDIO = "edt-studio"
_TRIES = 10
_DELEGATED = ("trusted.delegate", "user.delegate")  # extended attributes that systemd gives to such a group
_NO_DISK = values.Disk()
NOT_GIVEN = "{} is systemd's own: give the studio a group by Delegate=yes in its unit, or start it with systemd-run --scope -p Delegate=yes"


def begin(folder: Path, *, memory: float | None, processes: int, machine_bytes: int, devices: tuple[int, ...] | None = None) -> Groups:
    """The groups of the host whose own folder this is. What cannot be had here is found by trying, and said in `notes`. The calling process
    must be single-threaded. `devices`: the minors of this machine's GPUs, of which runs can open those of their slots alone; None: all."""
    found = values.places(read(Path("/proc/self/cgroup")), read(Path("/proc/self/mountinfo")))
    systemd = Path("/run/systemd/system").is_dir()  # sd_booted(3)
    top = found.unified[1] if found.unified is not None else "/"
    disk = disk_device.disk_of(folder, read(Path("/proc/self/mountinfo")), read(Path(top, "io.cost.qos")))
    return begin_in(
        found, folder, memory=memory, processes=processes, machine_bytes=machine_bytes, systemd=systemd, disk=disk, devices=devices
    )


def begin_in(
    found: values.Places,
    folder: Path,
    *,
    memory: float | None,
    processes: int,
    machine_bytes: int,
    systemd: bool = False,
    disk: values.Disk = _NO_DISK,
    devices: tuple[int, ...] | None = None,
) -> Groups:
    name = f"edt-{hashlib.sha256(os.fsencode(folder)).hexdigest()[:12]}"
    own = _own(found)
    machine_bytes = _least(machine_bytes, own.get("memory"), ("memory.max", "memory.limit_in_bytes"))
    machine_processes = _least(_machine_processes(), own.get("pids"), ("pids.max",))
    given = values.limits(memory=memory, processes=processes, machine_bytes=machine_bytes, machine_processes=machine_processes)
    earlier = _earlier(folder)
    used = {base for base in set(earlier.values()) if _is_used(base)}
    works: dict[tuple[Path, Version], list[Controller]] = {}
    notes = []
    for controller in values.WITH_DEVICES if devices is not None else CONTROLLERS:
        problem = "the group in which the host was started has no controller for it"
        if controller in own:
            version, group, top = own[controller]
            base = earlier[controller] if earlier.get(controller) in used else group / name
            works.setdefault((base, version), [])
            given_to_us = version == 1 or not systemd or group == top or _is_delegated(group)
            problem = _try(base, controller, version, given) if given_to_us else NOT_GIVEN.format(group)
            if not problem:
                works[base, version].append(controller)
                problem = values.unheeded(disk, _weights_in(base, version)) if controller == "io" else ""
        if problem:
            notes.append(f"{values.WITHOUT[controller]} ({problem})")
    bases = tuple(Base(base, version, tuple(controllers)) for (base, version), controllers in works.items() if controllers)
    for base, _ in works.keys() - {(base.folder, base.version) for base in bases}:
        gone(base)
    unwalled = _tear_down(earlier, used) if devices is None else None
    _remember(folder, bases, unwalled)
    return Groups(bases, given, tuple(notes), devices or ())


def _tear_down(earlier: dict[str, Path], used: set[Path]) -> Path | None:
    """Runs that live were begun with a wall that is not asked for any more: it goes, since no slot that they get would open a GPU. Their
    base, so that it is found when they have ended."""
    base = earlier.get("devices")
    if base is None or base not in used:
        return None
    for leaf in leaves(base):
        try:
            device_wall.tear_down(leaf)
        except OSError as error:
            log.warning("the devices of a group cannot be opened: %s", error)
    return base


def _is_delegated(group: Path) -> bool:
    for name in _DELEGATED:
        with contextlib.suppress(OSError):
            if os.getxattr(group, name) == b"1":
                return True
    return False


def _own(found: values.Places) -> dict[Controller, tuple[Version, Path, Path]]:
    """By controller: the version, our group, and the folder above which nothing can be seen."""
    own: dict[Controller, tuple[Version, Path, Path]] = {}
    for controller in values.WITH_DEVICES:
        if (name := values.name_of(controller, 1)) in found.own:
            group, top = found.own[name]
            own[controller] = 1, Path(group), Path(top)
        elif found.unified is not None:
            group, top = found.unified
            at = Path(group).parent if Path(group).name == _STUDIO else Path(group)
            if controller == "devices" or controller in read(at / "cgroup.controllers").split():
                own[controller] = 2, at, Path(top)
    return own


def _least(machine: int, own: tuple[Version, Path, Path] | None, names: tuple[str, ...]) -> int:
    """What the machine has, or less where a group around ours has a limit."""
    if own is None:
        return machine
    _, group, top = own
    around = [folder for folder in (group, *group.parents) if folder.is_relative_to(top)]
    said = [read(folder / name).strip() for folder in around for name in names]
    return min([machine, *(int(text) for text in said if text.isdecimal() and int(text) > 0)])


def _machine_processes() -> int:
    said = [read(Path("/proc/sys/kernel", name)).strip() for name in ("pid_max", "threads-max")]
    return min((int(text) for text in said if text.isdecimal()), default=32768)


def _try(base: Path, controller: Controller, version: Version, given: Limits) -> str:
    """Makes the base ready for this controller and tries a leaf in it; what went wrong, empty if nothing."""
    trial = base / "trial"
    handed_down = version == 2 and controller != "devices"  # for those each group has a program of its own
    try:
        if handed_down:
            _enable(base.parent, controller)
        base.mkdir(exist_ok=True)
        write_all(base, values.of_all(given, controller, version))
        if handed_down:
            _enable(base, controller)
        trial.mkdir(exist_ok=True)
        write_all(trial, values.of_run(given, controller, version))
        write_all(trial, values.weights(1, controller, version))
        if controller == "devices":
            device_wall.build(trial, version)
        if controller == "io" and not _weights_in(trial, version):
            return "this kernel has no weights of groups for disks"
        _enter(door(trial, version))
        return ""
    except OSError as error:
        return f"{error.filename or base}: {error.strerror}"
    finally:
        gone(trial)


def _weights_in(group: Path, version: Version) -> list[str]:
    """The files of a disk's weights that this kernel has."""
    return [name for name, _ in values.weights(1, "io", version) if (group / name).exists()]


def _enter(file: Path) -> None:
    """As the first process of a run will."""
    child = os.fork()
    if child == 0:
        problem = 1
        try:
            write(file, "0")
            problem = 0
        except OSError as error:
            problem = error.errno or 1
        finally:
            os._exit(problem)
    if problem := os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
        raise OSError(problem, os.strerror(problem), str(file))


def _enable(group: Path, controller: Controller) -> None:
    """Version 2: for the groups in this one. Processes that are in it itself go into a group beside the runs: the kernel allows either
    processes or groups with controllers, except at the very top."""
    file, aside = group / "cgroup.subtree_control", group / _STUDIO
    if controller in file.read_text().split():
        return
    for left in reversed(range(_TRIES)):  # those that are moved may be starting others meanwhile
        try:
            write(file, f"+{controller}")
            break
        except OSError as error:
            if error.errno != errno.EBUSY or not left:
                raise
        aside.mkdir(exist_ok=True)
        for pid in (group / "cgroup.procs").read_text().split():
            with contextlib.suppress(ProcessLookupError):
                write(aside / "cgroup.procs", pid)
    if aside.is_dir():
        try_write(aside, values.of_studio(controller))


def _earlier(folder: Path) -> dict[str, Path]:
    """By controller: the base of the host before, which may have been started in another group."""
    try:
        said = json.loads((folder / "cgroups.json").read_bytes())
        return {str(controller): Path(path) for controller, path in said.items()}
    except (OSError, ValueError, AttributeError, TypeError):
        return {}


def _is_used(base: Path) -> bool:
    """Whether runs of the host before are in there; it is taken away where none are."""
    left = [leaf for leaf in leaves(base) if not gone(leaf)]
    return bool(left) or not gone(base)


def _remember(folder: Path, bases: tuple[Base, ...], unwalled: Path | None) -> None:
    with contextlib.suppress(OSError):  # it helps only a host that is started in another group
        said = {"devices": str(unwalled)} if unwalled is not None else {}
        said |= {controller: str(base.folder) for base in bases for controller in base.controllers}
        (folder / "cgroups.json").write_text(json.dumps(said))
