"""Every process that is not the run's own: seen, signalled, traced, read, slowed down."""

from __future__ import annotations

import ctypes
import fcntl
import os
import resource
import struct
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

Try = tuple[str, str, Callable[[], object]]
libc = ctypes.CDLL(None, use_errno=True)
PROC = ("environ", "mem", "maps", "auxv", "fd", "cwd", "root")
PTRACE_SEIZE, PROCESS_VM_READV = 0x4206, 310
PIDFD_OPEN, PIDFD_GETFD, KCMP, PIDFD_GET_INFO = 434, 438, 312, 0xC040FF0B
if os.uname().machine == "aarch64":
    PROCESS_VM_READV, KCMP = 270, 272


def call(number: int, *arguments: int) -> int:
    ctypes.set_errno(0)
    found = libc.syscall(ctypes.c_long(number), *(ctypes.c_long(each) for each in (*arguments, 0, 0, 0, 0, 0, 0)[:6]))
    if found < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return int(found)


def trace(pid: int) -> None:
    ctypes.set_errno(0)
    if libc.ptrace(PTRACE_SEIZE, pid, None, None) < 0:
        raise OSError(ctypes.get_errno(), "ptrace")


def memory(pid: int) -> None:
    """A byte at a place where nothing is: with the right to look there it is a wrong address (EFAULT)."""
    byte = ctypes.create_string_buffer(1)
    here, there = (ctypes.c_size_t * 2)(ctypes.addressof(byte), 1), (ctypes.c_size_t * 2)(4096, 1)
    call(PROCESS_VM_READV, pid, ctypes.addressof(here), 1, ctypes.addressof(there), 1, 0)


def descriptor(pid: int) -> int:
    handle = call(PIDFD_OPEN, pid)
    try:
        return call(PIDFD_GETFD, handle, 1)
    finally:
        os.close(handle)


def computed(pid: int) -> float:
    """For how long, by the clock that the kernel has of each process."""
    return time.clock_gettime(~pid << 3 | 2)


def owner(pid: int) -> list[int]:
    """Whose it is, and its parent, by its handle (Linux 6.13)."""
    handle = call(PIDFD_OPEN, pid)
    try:
        told = bytearray(struct.pack("QQ", 0x3, 0) + bytes(48))
        fcntl.ioctl(handle, PIDFD_GET_INFO, told)
        return list(struct.unpack_from("13I", told, 12))
    finally:
        os.close(handle)


def look(pid: int, name: str) -> object:
    path = Path(f"/proc/{pid}/{name}")
    if name == "fd":  # which numbers there are is nobody's secret
        return [os.readlink(path / number) for number in os.listdir(path)]
    if name == "root":
        return os.listdir(f"{path}/")
    if name == "cwd":
        return os.readlink(path)
    with open(path, "rb") as file:
        return file.read(1)


def slower(pid: int) -> None:
    """To the priority that it has."""
    os.setpriority(os.PRIO_PROCESS, pid, os.getpriority(os.PRIO_PROCESS, pid))


def pinned(pid: int) -> None:
    """To the processors that it has."""
    os.sched_setaffinity(pid, os.sched_getaffinity(pid))


def limited(pid: int) -> None:
    """To the limit that it has: another would end it, or keep it from opening files."""
    resource.prlimit(pid, resource.RLIMIT_CORE, resource.prlimit(pid, resource.RLIMIT_CORE))


def mine() -> set[int]:
    """The processes of this run that are seen: its user's, or (where runs share one) its session's."""
    return {pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if _is_mine(pid)}


def _is_mine(pid: int) -> bool:
    try:
        return os.getsid(pid) == os.getsid(0)
    except OSError:
        return False


def strangers() -> list[str]:
    """What is to be seen of others in /proc."""
    own = mine()
    found = []
    for pid in sorted(map(int, filter(str.isdigit, os.listdir("/proc")))):
        if pid not in own:
            found.append(Path(f"/proc/{pid}/cmdline").read_bytes()[:60].decode(errors="replace"))
    if not found:
        raise FileNotFoundError(2, "none")
    return found


def tries(targets: dict[str, Any]) -> Iterator[Try]:
    yield "see", "processes of others", strangers
    for role, pid, _ in targets["processes"]:
        yield "signal", role, partial(os.kill, pid, 0)
        yield "trace", role, partial(trace, pid)
        yield "memory", role, partial(memory, pid)
        yield "descriptor", role, partial(descriptor, pid)
        yield "computed", role, partial(computed, pid)
        yield "owner", role, partial(owner, pid)
        for name in PROC:
            yield f"proc {name}", role, partial(look, pid, name)
        yield "priority", role, partial(slower, pid)
        yield "processors", role, partial(pinned, pid)
        yield "limits", role, partial(limited, pid)
