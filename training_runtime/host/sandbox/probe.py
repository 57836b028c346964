"""Finds the strongest sandbox level that really works on this machine, by entering each in a forked child and trying to break out."""

from __future__ import annotations

import ctypes
import dataclasses
import errno
import json
import os
import signal
import socket
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from training_runtime.errors import SandboxRefused
from training_runtime.host import rootless
from training_runtime.host.sandbox import enter, kernel, levels, network, rootfs, seccomp
from training_runtime.host.sandbox.levels import Abilities, Box, Level, Policy
from training_runtime.host.sandbox.network import Reach
from training_runtime.protocol import RunSpec

_OPEN = "the network of this machine is open to user code"
_KEPT = "a run reaches no network unless its training definition asks for it"
_REACHES: dict[Reach, tuple[str, ...]] = {
    "outward": (f"{_KEPT}; then the internet alone: nothing of this machine, and no private network",),
    "none": (f"{_KEPT}; then that of this machine",),
    "machine": (_OPEN,),
}
_CUDA = "libcuda.so.1"
NO_CUDA = "CUDA starts on this machine, but not in the box of runs, so none can use its GPUs: {}"
_FILTERED = "system calls that no training needs are refused"
_WEAKER: dict[Level, tuple[str, ...]] = {
    "user+landlock": (),
    "landlock": ("runs share the studio's user: its Unix sockets can be reached", "runs share /dev/shm"),
    "user": ("no Landlock in this kernel: files that every user may read are open to user code",),
    "limits": ("user code is not boxed in: run only code that you trust",),
    "off": ("the sandbox is switched off (EDT_SANDBOX=off): run only code that you trust",),
}


def strongest(folder: Path, policy: Policy) -> Abilities:
    """Tries the levels on files made in `folder` (the host's own). Takes some 20 ms; the calling process must be single-threaded."""
    if policy.mode == "off":
        return Abilities("off", private=False, notes=_WEAKER["off"])
    can, remarks = _reach(policy)
    is_root = os.geteuid() == 0
    own_users = is_root and policy.uid_base > 0
    candidates: tuple[Level, ...] = ("user+landlock", "landlock", "user") if own_users else ("landlock",)
    found: list[str] = []
    with tempfile.TemporaryDirectory(prefix="probe-", dir=folder) as name:
        private = is_root and _works(_own_namespaces)
        unfiltered = _in_child(_try_refused_calls)
        found.append(f"no system call is refused: {unfiltered}" if unfiltered else _FILTERED)
        for level in candidates:
            tried = Abilities(level, private, (), filtered=not unfiltered, reach=can)
            if problem := _trial(tried, folder=Path(name), policy=policy):
                found.append(f"{level}: {problem}")
            else:
                found += _cuda_trouble(_box(tried, folder=Path(name), policy=policy))
                notes = remarks + _WEAKER[level] + _remarks(level, private=private) + tuple(found)
                return dataclasses.replace(tried, private=private and level != "landlock", notes=notes)
    return Abilities("limits", private=False, notes=_WEAKER["limits"] + remarks + tuple(found), filtered=not unfiltered, reach=can)


def _reach(policy: Policy) -> tuple[Reach, tuple[str, ...]]:
    """The least of the network that a run can be left with that asks for it, and what to say of it."""
    if policy.network == "shared":
        return "machine", (f"{_OPEN} (EDT_RUN_NETWORK=shared)",)
    if problem := _in_child(lambda: network.probe("none")):
        return "machine", (*_REACHES["machine"], f"networks of runs cannot be kept apart: {problem}")
    if problem := _in_child(lambda: network.probe("outward")):
        return "none", (*_REACHES["none"], f"no network but this machine's can be given: {network.missing('none')} ({problem})")
    return "outward", _REACHES["outward"]


def _remarks(level: Level, *, private: bool) -> tuple[str, ...]:
    notes = [rootless.ADVICE] if rootless.would_help() else []
    if level != "landlock" and private:
        notes.append("a run sees no file or folder of this machine but those that it may use")
        if not _works(_processes_hidden):
            notes.append("names and command lines of this machine's processes are seen in a run's /proc")
    elif level != "landlock":
        notes.append("no root of its own for a run here: runs share /dev/shm and see each other's process names")
    if level == "landlock" and kernel.landlock_abi() < 6:
        notes.append("this kernel's Landlock does not stop signals to processes of the same user")
    if level == "user+landlock" and not private and not all(levels.reachable(path) for path in levels.runtime_folders()):
        notes.append("the interpreter lies in a closed folder: runs keep the right to search folders, within what Landlock leaves open")
    return tuple(notes)


def _trial(tried: Abilities, *, folder: Path, policy: Policy) -> str:
    """What went wrong at this level; empty if it holds."""
    level = tried.level
    secret = folder / "secret"
    secret.write_text("not for user code")
    secret.chmod(0o600)
    try:
        box = _box(tried, folder=folder, policy=policy)
    except SandboxRefused as error:
        return str(error)
    if box.level != level:
        return "the interpreter or the studio's folders are closed to other users"
    return _in_child(lambda: _try_to_break_out(box, secret, os.getppid()))


def _box(tried: Abilities, *, folder: Path, policy: Policy) -> Box:
    code, result = folder / "code", folder / f"result-{tried.level}"
    for each in (code, result):
        each.mkdir(exist_ok=True)
    spec = RunSpec(0, "probe", "probe", ("probe",), str(code), str(result), "", 1)
    return levels.box_for(spec, tried, policy=policy, fabric_home=str(code))


def _cuda_trouble(box: Box) -> list[str]:
    """What to say where this machine has GPUs and CUDA starts on it, but not in the box."""
    if not Path(enter.CUDA_DEVICE).exists() or _in_child(start_cuda):
        return []

    def inside() -> str:
        enter.enter(box)
        return start_cuda()

    problem = _in_child(inside)
    return [NO_CUDA.format(problem)] if problem else []


def start_cuda() -> str:
    """Why it does not start in this process, as its driver's library says; empty if it does."""
    try:
        code = ctypes.CDLL(_CUDA).cuInit(0)
    except OSError as error:
        return str(error)
    return f"cuInit says {code}" if code else ""


def _try_to_break_out(box: Box, secret: Path, parent: int) -> str:
    enter.enter(box)
    Path(box.write, "own").write_text("mine")
    Path(os.__file__).read_bytes()
    next(Path(sys.base_prefix).iterdir())
    if _works(secret.read_bytes):
        return "a closed file could be read"
    if _works(lambda: secret.with_name("intruder").write_text("x")):
        return "a file could be written outside the run's folder"
    if (box.uid is not None or kernel.landlock_abi() >= 6) and _works(lambda: os.kill(parent, 0)):
        return "the host could be signalled"
    return ""


def _try_refused_calls() -> str:
    """Why system calls cannot be filtered here; empty if they can."""
    try:
        kernel.set_no_new_privileges()
        seccomp.install()
    except OSError as error:
        return error.strerror or str(error)
    try:
        socket.socket(socket.AF_INET).close()
        kernel.join_namespace(-1)
    except OSError as error:
        if error.errno == errno.EPERM:
            return ""
    return "the kernel took the filter and does not heed it"


def _own_namespaces() -> None:
    def enter() -> str:
        kernel.private_namespaces()
        rootfs.enter(rootfs.layout([("/usr", "read")]), temporary=False)
        return "what is not shown can be seen" if Path("/etc").exists() else ""

    if problem := _in_child(enter):
        raise OSError(problem)


def _processes_hidden() -> None:
    def hide() -> str:
        kernel.private_namespaces()
        kernel.mount_proc_without_others(rootfs.PROCESSES)
        return ""

    if problem := _in_child(hide):
        raise OSError(problem)


def _works(action: Callable[[], object]) -> bool:
    try:
        action()
    except OSError:
        return False
    return True


MOST_TEXT = 4000


def _in_child(action: Callable[[], str]) -> str:
    """The text that `action` returns in a forked child, or what it raised."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            signal.set_wakeup_fd(-1)
            text = action()
        except BaseException as error:  # the child must never run the parent's code
            text = f"{type(error).__name__}: {error}"
        os.write(writer, json.dumps(text[:MOST_TEXT]).encode())  # no more than a pipe takes at once
        os._exit(0)
    os.close(writer)
    with open(reader, "rb") as pipe:
        answer = pipe.read()
    os.waitpid(child, 0)
    return str(json.loads(answer)) if answer else "the trial ended without an answer"
