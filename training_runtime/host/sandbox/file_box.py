"""The box of a process that looks into people's files for the studio: it reads what it is given, answers, and ends.

`prepare` is for the process that such processes are forked from: it gives up what none of them needs. `enter` is for the child, before it
looks at anything. Both take as much as the machine lets them, and `Walls` says how much that is.

Promise, where all of it holds: whoever takes such a child over by a file that was written for that has the memory of one child, which saw
that file alone, the descriptors that it was handed, the libraries of the interpreter to read and nothing to write but the folder it was
handed. No network, no other process to see, signal or speak to; and less of the processor, of memory and of the disk than the limits say.
Not promised: anything against a bug in the kernel.
"""

from __future__ import annotations

import contextlib
import os
import platform
import resource
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from training_runtime.host.sandbox import kernel, levels, seccomp
from training_runtime.host.settings import sandbox_policy

Folder = Literal["", "read", "write"]
_MOST_FILES = 64
_MAKE_DIR, _MAKE_REG = 1 << 7, 1 << 8  # of Landlock
_READ = kernel.FS_READ_FILE | kernel.FS_READ_DIR
_WRITE = _READ | kernel.FS_WRITE_FILE | kernel.FS_TRUNCATE | _MAKE_DIR | _MAKE_REG


@dataclass(frozen=True)
class Walls:
    """What holds around such a process on this machine. `uid`: the user that it is, None: the studio's own. `closed`: Landlock opens
    nothing to it but what it was given; `filtered`: system calls are refused; `cut_off`: it is in a network with nobody else."""

    uid: int | None = None
    closed: bool = False
    filtered: bool = False
    cut_off: bool = False


@dataclass(frozen=True)
class Limits:
    """Of one such process. `memory_bytes`: of its addresses, those of the interpreter included; `file_bytes`: of a file that it writes."""

    cpu_s: int
    memory_bytes: int
    file_bytes: int = 0


def prepare(*, home: Path, environment: Mapping[str, str], libraries: Iterable[str]) -> Walls:
    """Lock the calling process in, for good, as far as one may be that still forks. It must be single-threaded. `home`: EDT_HOME, which
    says from where on users are the studio's; `libraries`: folders that its children go on reading."""
    os.umask(0o077)
    closed = kernel.landlock_abi() > 0
    uid, search = _user(home, environment, libraries, closed=closed) if os.geteuid() == 0 else (None, False)
    with contextlib.suppress(OSError):  # these should be what the kernel kills first when memory runs out
        Path("/proc/self/oom_score_adj").write_text("1000")
    cut_off = _cut_off()
    if uid is not None and not _become(uid, kept=1 << kernel.CAP_DAC_READ_SEARCH if search else 0):
        uid = None
    if uid is None:
        _give_up_capabilities()
    kernel.set_no_new_privileges()
    try:
        seccomp.program(platform.machine(), alone=True)  # made once, for all children
        seccomp.install()
        filtered = True
    except OSError:
        filtered = False
    return Walls(uid, closed, filtered, cut_off)


def rules(libraries: Iterable[str], *, folder: Folder = "") -> int:
    """A ruleset of Landlock (a descriptor): nothing but these libraries, to be read, and the working folder. Raises OSError."""
    everything = kernel.landlock_rights(abi := kernel.landlock_abi())
    ruleset = kernel.landlock_ruleset(abi)
    for path in libraries:
        kernel.landlock_allow(ruleset, Path(path), _READ)
    if folder:
        kernel.landlock_allow(ruleset, Path(), (_WRITE if folder == "write" else _READ) & everything)
    return ruleset


def enter(walls: Walls, limits: Limits, *, ruleset: int | None, parent: int) -> None:
    """Lock the calling process in, for good: a child of the one that is prepared (`parent`), with which it ends. `ruleset`: what `rules`
    made, where the walls are closed. Raises OSError, in which case it must exit."""
    kernel.die_with_the_parent()
    if os.getppid() != parent:
        raise ProcessLookupError("the process that this one was forked from is gone")
    _limit(limits)
    if walls.closed:
        assert ruleset is not None
        kernel.landlock_restrict(ruleset)
        os.close(ruleset)
    if walls.filtered:
        seccomp.install(alone=True)


def _user(home: Path, environment: Mapping[str, str], libraries: Iterable[str], *, closed: bool) -> tuple[int | None, bool]:
    """Who the children are to be, and whether they keep the right to search closed folders: as runs do (`sandbox.Box.read_search`), only
    where Landlock then says alone what they read."""
    try:
        base = sandbox_policy(environment, home=home).uid_base
    except (OSError, ValueError):
        return None, False
    search = not all(levels.reachable(path) for path in libraries)
    return (None, False) if not base or (search and not closed) else (base + levels.READER, search)


def _cut_off() -> bool:
    """Into a network of its own, in which there is nobody. Tried in a child first: who gets halfway there may be left without a user."""
    child = os.fork()
    if child == 0:
        try:
            _own_network()
        except OSError:
            os._exit(1)
        os._exit(0)
    if os.waitpid(child, 0)[1] != 0:
        return False
    _own_network()
    return True


def _own_network() -> None:
    if os.geteuid() != 0:
        kernel.own_user_namespace()
    kernel.own_network()


def _become(uid: int, *, kept: int) -> bool:
    """False where there is no such user here: some containers have few."""
    kernel.drop_bounding_set(keep=kept)
    kernel.keep_capabilities_over_setuid()
    try:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    except OSError:
        return False
    kernel.set_capabilities(kept)
    return True


def _give_up_capabilities() -> None:
    with contextlib.suppress(OSError):  # nobody but root, also of an own user namespace, has any to give up
        kernel.drop_bounding_set(keep=0)
        kernel.refuse_root_privileges()
    kernel.set_capabilities(0)


def _limit(limits: Limits) -> None:
    """Soft and hard limits at once, never above what there is; at the end of its time a process may still say so, for a second."""
    wanted = {
        resource.RLIMIT_CORE: (0, 0),
        resource.RLIMIT_AS: (limits.memory_bytes, limits.memory_bytes),
        resource.RLIMIT_CPU: (limits.cpu_s, limits.cpu_s + 1),
        resource.RLIMIT_FSIZE: (limits.file_bytes, limits.file_bytes),
        resource.RLIMIT_NOFILE: (_MOST_FILES, _MOST_FILES),
        resource.RLIMIT_NPROC: (0, 0),
        resource.RLIMIT_MEMLOCK: (0, 0),
    }
    for limit, (soft, hard) in wanted.items():
        most = resource.getrlimit(limit)[1]
        bounded = [value if most == resource.RLIM_INFINITY else min(value, most) for value in (soft, hard)]
        resource.setrlimit(limit, (bounded[0], bounded[1]))
