"""The box around user code (first form of law 7): levels, and what a run's box is; `enter` is how a forked
child enters it.

Levels, strongest first; `probe.strongest` finds the one that really works on this machine:
  user+landlock  own user per run, and Landlock closes every file but its own, its code, its data and the system's libraries
  landlock       the studio's user (it is not root), files closed by Landlock
  user           own user per run, files closed by their modes alone (no Landlock in the kernel)
  limits         same user, resource limits and a scrubbed environment: no protection against a hostile script
  off            nothing but the scrubbed environment, for debugging
At all but the last the kernel refuses a list of system calls, where it can (see `seccomp`).

At all of them a run reaches as much of the network as `network` says.

What no level protects against: a bug in the kernel or the GPU driver; contents of GPU memory left by another run; using up disk space,
memory or processor time; what runs tell each other on purpose; a run tampering with its own results and its own journal. At `landlock` a
path-named Unix socket of the same user can be connected to (the kernel has no right for it), and below version 6 of Landlock processes of
the same user can be signalled.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from training_runtime.errors import SandboxRefused
from training_runtime.host.sandbox import network, rootfs
from training_runtime.host.sandbox.network import Reach
from training_runtime.host.sandbox.rootfs import TEMPORARY
from training_runtime.protocol import RunSpec

Level = Literal["user+landlock", "landlock", "user", "limits", "off"]
LEVELS: tuple[Level, ...] = ("user+landlock", "landlock", "user", "limits", "off")
Mode = Literal["best-effort", "off"]
RUN_USERS = 50_000
BUILDER, READER = RUN_USERS - 1, RUN_USERS - 2  # counted from the base: who builds environments, who looks into files (see `file_box`)
SPARES = range(READER - 1000, READER)  # the users of spare processes, and of the runs that they were given to

_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
# Not all of /etc and /sys: a run that may search closed folders (see Box.read_search) would read /etc/shadow and debugfs there.
ETC = (
    *("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives", "localtime", "timezone", "os-release", "debian_version", "locale.alias"),
    *("passwd", "group", "nsswitch.conf", "resolv.conf", "hosts", "host.conf", "services", "protocols", "gai.conf", "mime.types", "fonts"),
    *("ssl/certs", "ssl/openssl.cnf", "pki/tls/certs", "ca-certificates", "OpenCL", "vulkan", "libibverbs.d", "nccl.conf"),
)


NOT_APART = (
    "the box of this run would be {!r}, which does not keep people's code apart, as this machine had said it does: {}. Or let an "
    "administrator say under Scheduling policy that the people here trust each other"
)
TOO_WEAK = "the box of this machine is {!r}, and EDT_SANDBOX asks for {!r} at least: {}"
LACKS: dict[Level, str] = {
    "user+landlock": "that needs Linux 5.13 with Landlock, and the studio started as root without EDT_UID_BASE=0, or with EDT_ROOTLESS=1",
    "landlock": "that needs Linux 5.13 with Landlock",
    "user": "that needs Landlock, or a studio that is root (EDT_ROOTLESS=1 will do) with interpreter, code and data that others may read",
    "limits": "EDT_SANDBOX=off is for debugging",
}


@dataclass(frozen=True)
class Box:
    """All that a child needs to know to lock itself in. `uid` is also the gid.

    `private`: own mount and IPC namespaces, with a root of its own (see `rootfs`), an own /dev/shm and without other users' processes in
    /proc. `read_search`: something that the run must read is closed to its user (data of mode 0700), or without namespaces of its own the
    way to it is (an interpreter under /root), so it keeps CAP_DAC_READ_SEARCH and nothing else; only ever together with Landlock, which
    then bounds what can be read. `own_tmp`: /tmp is the run's own `tmp` folder; not where something that it needs lies in the machine's
    /tmp. `services`: it sees /run, with the sockets of the machine's resolver and other services. `filtered`: system calls are (see
    `seccomp`). `reach`, `opened`, `closed`: see `network`. `later`: of a spare process (see `spares`), the folders of its root in which
    what is its run's own appears when it is given to one; until then there is nothing in them, and no device that computes.
    """

    level: Level
    uid: int | None
    read_search: bool
    private: bool
    own_tmp: bool
    execute: tuple[str, ...]
    read: tuple[str, ...]
    write: str
    max_file_bytes: int
    max_processes: int = 8192
    max_files: int = 65536
    filtered: bool = False
    services: bool = False
    reach: Reach = "machine"
    opened: tuple[str, ...] = ()
    closed: tuple[str, ...] = ()
    later: tuple[tuple[str, rootfs.Use], ...] = ()

    @property
    def landlock(self) -> bool:
        return self.level in ("user+landlock", "landlock")


@dataclass(frozen=True)
class Abilities:
    """What the probe found: the strongest level that works here, whether namespaces do, what a person should know, whether system calls
    can be filtered, and the least of the network that a run can be left with that asks for it."""

    level: Level
    private: bool
    notes: tuple[str, ...]
    filtered: bool = False
    reach: Reach = "machine"


@dataclass(frozen=True)
class Policy:
    """What an administrator sets (EDT_SANDBOX, EDT_UID_BASE, EDT_SANDBOX_READ, EDT_MAX_FILE_BYTES, EDT_RUN_PROCESSES, EDT_RUN_MEMORY,
    EDT_RUN_NETWORK, EDT_RUN_NETWORK_ALLOW, EDT_RUN_NETWORK_DENY, EDT_SANDBOX_DEVICES). `least`: the weakest level at which user code may
    run. `uid_base` 0: runs keep the studio's user. `run_memory`: see `cgroup_values.limits`. `devices`: a run that could open GPUs on which
    it holds no slot is refused."""

    mode: Mode = "best-effort"
    least: Level = "off"
    uid_base: int = 200_000
    extra_read: tuple[str, ...] = ()
    max_file_bytes: int = 1 << 40
    max_processes: int = 8192
    run_memory: float | None = None
    network: network.Mode = "best-effort"
    opened: tuple[str, ...] = ()
    closed: tuple[str, ...] = ()
    devices: bool = False


def run_user(run: int, policy: Policy) -> int:
    """A run whose number comes to one of the users above shares that of another run, which is far enough away to have ended."""
    number = run % RUN_USERS
    return policy.uid_base + (number if number < SPARES.start else number // 2)


def user_of(spec: RunSpec, policy: Policy) -> int:
    """Who a run is: the owner of its folder where an attempt of it was a spare process."""
    with contextlib.suppress(OSError):
        owner = os.lstat(spec.result_dir).st_uid
        if policy.uid_base and owner - policy.uid_base in SPARES:
            return owner
    return run_user(spec.run, policy)


def runtime_folders() -> tuple[str, ...]:
    """Where the interpreter, its packages and this runtime lie."""
    package = Path(__file__).resolve().parents[2]
    return tuple(dict.fromkeys((sys.prefix, sys.base_prefix, sys.exec_prefix, str(package))))


def data_folders(spec: RunSpec) -> tuple[str, ...]:
    """What the run reads as its data: all of the root that its own folder lies in, as scripts that go by DLI_DATA_FS expect it. Who may
    name one folder of a root may name the root."""
    root = spec.data_root or spec.data_dir
    apart = spec.data_dir and not Path(spec.data_dir).is_relative_to(root)
    return tuple(path for path in (root, spec.data_dir if apart else "") if path)


def box_for(spec: RunSpec, abilities: Abilities, *, policy: Policy, fabric_home: str, environment: str = "", several: bool = False) -> Box:
    """The box of one run. Raises SandboxRefused where user code must not run at all under this policy, or must have a user of its own
    (`RunSpec.isolated`) and would not. `environment`: the folder of its packages; `several`: it may have workers on other machines."""
    execute = (fabric_home, spec.code_dir, *((environment,) if environment else ()))
    read = data_folders(spec)
    reach = network.reach(asked=spec.network, several=several, can=abilities.reach, mode=policy.network)
    box = _box(abilities, policy, uid=user_of(spec, policy), execute=execute, read=read, write=spec.result_dir, reach=reach)
    if spec.isolated and box.uid is None:
        raise SandboxRefused(NOT_APART.format(box.level, LACKS["user"]))
    return box


def box_for_building(folder: str, abilities: Abilities, *, policy: Policy, read: tuple[str, ...], run: int | None = None) -> Box:
    """The box of who builds an environment in `folder`; with the user of `run`, which waits for it, where code of packages may run. It
    reaches the outside alone, where this machine can keep that (see `with_servers`). Raises SandboxRefused as `box_for` does, and where
    EDT_RUN_NETWORK requires what this machine cannot keep, of code of packages."""
    uid = policy.uid_base + BUILDER if run is None else run_user(run, policy)
    mode: network.Mode = "best-effort" if run is None and policy.network == "required" else policy.network
    reach = network.reach(asked=True, several=False, can=abilities.reach, mode=mode)
    return _box(abilities, policy, uid=uid, execute=(), read=read, write=folder, reach=reach)


def with_servers(box: Box, servers: Iterable[str]) -> Box:
    """The box, from which these are reached beside the outside: all of the machine's network where there is no other way to one of them.
    Waits for answers about names."""
    if box.reach != "outward":
        return box
    opened = network.openings(servers)
    if opened is None:
        return dataclasses.replace(box, reach="machine", services=True)
    return dataclasses.replace(box, opened=(*box.opened, *opened))


def _box(
    abilities: Abilities,
    policy: Policy,
    *,
    uid: int | None,
    execute: tuple[str, ...],
    read: tuple[str, ...],
    write: str,
    reach: Reach = "machine",
) -> Box:
    level = abilities.level
    uid = uid if level in ("user+landlock", "user") else None
    private = abilities.private and uid is not None
    readable_to_it = _open_itself if private else reachable
    needed = (*runtime_folders(), *execute, *read)
    execute = (*_SYSTEM, *runtime_folders(), *policy.extra_read, *execute)
    open_to_it = uid is None or (all(readable_to_it(path) for path in needed) and (private or _way_is_open(Path(write).resolve())))
    if level == "user" and not open_to_it:
        level, uid = "limits", None
    if LEVELS.index(level) > LEVELS.index(policy.least):
        raise SandboxRefused(TOO_WEAK.format(level, policy.least, LACKS[policy.least]))
    private = private and uid is not None
    return Box(
        level=level,
        uid=uid,
        read_search=uid is not None and not open_to_it,
        private=private,
        own_tmp=private and not any(_below(TEMPORARY, path) for path in (*execute, *read, write)),
        services=reach == "machine",
        execute=execute,
        read=read,
        write=write,
        max_file_bytes=policy.max_file_bytes,
        max_processes=policy.max_processes,
        filtered=abilities.filtered,
        reach=reach,
        opened=policy.opened,
        closed=policy.closed,
    )


def _below(folder: str, path: str) -> bool:
    return Path(path).resolve().is_relative_to(folder)


def reachable(path: str) -> bool:
    """Whether a user without any rights of its own can enter this folder (search on every ancestor) and read it (and a sample of its
    files)."""
    return _way_is_open(Path(path).resolve()) and _open_itself(path)


def _way_is_open(folder: Path) -> bool:
    try:
        return all(ancestor.stat().st_mode & 0o001 for ancestor in folder.parents)
    except OSError:
        return False


def _open_itself(path: str) -> bool:
    folder = Path(path).resolve()
    try:
        if not folder.is_dir():
            return bool(folder.stat().st_mode & 0o004)
        entries = [entry.stat(follow_symlinks=False).st_mode for _, entry in zip(range(64), os.scandir(folder), strict=False)]
        return folder.stat().st_mode & 0o005 == 0o005 and all(mode & 0o004 for mode in entries)
    except OSError:
        return False
