"""What /proc says about processes: who is alive, who belongs to a run, and how to kill without hitting a stranger.

A process is named by (pid, start ticks), never by its number alone. No policy: who is killed and when is decided in `reconcile`.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

_PROC = Path("/proc")


@dataclass(frozen=True)
class Process:
    """One line of the process table. `start_ticks`: clock ticks after boot. `uid` is the real one. `state` as in proc(5): R, S, D, Z,
    ..."""

    pid: int
    parent: int
    session: int
    uid: int
    start_ticks: int
    state: str


def look(pid: int) -> Process | None:
    """The process with this number, or None where there is none. A zombie is reported (state Z) unless other threads of it still run."""
    try:
        raw = (_PROC / str(pid) / "stat").read_bytes()
        uid = (_PROC / str(pid)).stat().st_uid
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    fields = raw[raw.rindex(b")") + 2 :].split()
    state = fields[0].decode()
    if state == "Z" and _other_threads(pid):
        state = "R"  # the main thread has ended, the process has not
    return Process(pid, int(fields[1]), int(fields[3]), _real_uid(pid, uid), int(fields[19]), state)


def holder(lock: Path) -> Process | None:
    """The process that holds this lock and has written its number into it. None where nobody holds it, or somebody whom nobody here sees,
    in another container or on another machine that has this folder: then the number may be anybody's."""
    with contextlib.suppress(OSError), open(lock) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            said = file.read().strip()
            process = look(int(said)) if said.isdecimal() else None
            return process if process is not None and _has_open(process.pid, os.fstat(file.fileno())) else None
    return None


def _has_open(pid: int, file: os.stat_result) -> bool:
    """Whether the process has this file open. It is believed of one that does not let us look: what is no other user's does."""
    try:
        entries = list((_PROC / str(pid) / "fd").iterdir())
    except PermissionError:
        return True
    except OSError:
        return False
    for entry in entries:
        with contextlib.suppress(OSError):  # closed meanwhile
            if os.path.samestat(entry.stat(), file):
                return True
    return False


def processor_s(pid: int, start_ticks: int) -> float | None:
    """Seconds that this very process has spent on processors, all its threads together, and those that its children had spent by their end;
    None where it is gone."""
    try:
        raw = (_PROC / str(pid) / "stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    fields = raw[raw.rindex(b")") + 2 :].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK") if int(fields[19]) == start_ticks else None


def age_s(start_ticks: int) -> float:
    """How long ago a process began, by what the kernel says of its start; 0 where it is not known."""
    return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - start_ticks / os.sysconf("SC_CLK_TCK")) if start_ticks else 0.0


def memory_bytes(pid: int) -> int | None:
    """What the process alone has of the machine's memory: its proportional set size, in which a page that n processes share counts an n-th.

    So the sum over a run's workers is what they take together. Their resident sizes would count the data that a driver loaded and its
    workers share copy-on-write once for each of them. The kernel walks the page table for it: some 25 ms for a gigabyte. None where the
    process is gone or this machine does not let us look (proc(5): PTRACE_MODE_READ).
    """
    try:
        lines = (_PROC / str(pid) / "smaps_rollup").read_bytes().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(b"Pss:")), None)


def _real_uid(pid: int, fallback: int) -> int:
    """From the status file: the owner of the /proc folder is root where a process is not dumpable."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in (_PROC / str(pid) / "status").read_bytes().splitlines():
            if line.startswith(b"Uid:"):
                return int(line.split()[1])
    return fallback


def _other_threads(pid: int) -> bool:
    try:
        return sum(1 for _ in (_PROC / str(pid) / "task").iterdir()) > 1
    except OSError:
        return False


def alive(pid: int, start_ticks: int) -> bool:
    """Whether this very process still runs; a zombie holds nothing any more and counts as gone."""
    process = look(pid)
    return process is not None and process.start_ticks == start_ticks and process.state not in "ZX"


def table() -> dict[int, Process]:
    """All processes, zombies included."""
    found = (look(int(entry.name)) for entry in _PROC.iterdir() if entry.name.isdigit())
    return {process.pid: process for process in found if process is not None}


@dataclass(frozen=True)
class Traces:
    """What the processes of a run have in common, however they were started.

    `shim` and its start ticks: an ancestor of all of them, exactly, as long as nobody kills it. Should that happen: `driver` leads their
    session, and `result_dir` stands in the environment of every program that the run has started by exec. (Their user does not tell: it may
    be that of a run of another studio on the same machine as well.) `driver_ticks`: 0 where they are not known.
    """

    shim: int
    shim_ticks: int
    driver: int
    result_dir: str
    driver_ticks: int = 0


def of_run(traces: Traces, processes: Mapping[int, Process]) -> tuple[Process, ...]:
    """The live processes of a run without its shim, zombies left out, the driver last."""
    shim = processes.get(traces.shim)
    if shim is not None and shim.start_ticks == traces.shim_ticks and shim.state not in "ZX":
        mine = descendants({shim.pid}, processes)
    else:
        leader = processes.get(traces.driver)
        is_theirs = leader is None or traces.driver_ticks in (0, leader.start_ticks)  # else a later session has got the number
        mine = {p.pid for p in processes.values() if (is_theirs and p.session == traces.driver) or _carries(p.pid, traces.result_dir)}
        mine |= descendants(mine, processes)
    members = [processes[pid] for pid in mine if processes[pid].state not in "ZX"]
    return tuple(sorted(members, key=lambda p: p.pid == traces.driver))


def descendants(roots: Iterable[int], processes: Mapping[int, Process]) -> set[int]:
    return _below(list(roots), _children(processes), apart=frozenset())


class Kin(NamedTuple):
    """As much of a process as says who has started whom."""

    pid: int
    parent: int
    start_ticks: int


def kin() -> dict[int, Kin]:
    """All processes, zombies included, in less than half of the time of `table`."""
    found: dict[int, Kin] = {}
    for entry in _PROC.iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):  # it has ended
                raw = (entry / "stat").read_bytes()
                fields = raw[raw.rindex(b")") + 2 :].split()
                found[int(entry.name)] = Kin(int(entry.name), int(fields[1]), int(fields[19]))
    return found


def families(roots: Collection[int], processes: Mapping[int, Kin]) -> dict[int, tuple[Kin, ...]]:
    """By root: its descendants, without other roots and theirs."""
    children, apart = _children(processes), frozenset(roots)
    return {root: tuple(processes[pid] for pid in _below([root], children, apart=apart)) for root in roots}


def _children(processes: Mapping[int, Process] | Mapping[int, Kin]) -> dict[int, list[int]]:
    children: dict[int, list[int]] = {}
    for process in processes.values():
        children.setdefault(process.parent, []).append(process.pid)
    return children


def _below(waiting: list[int], children: Mapping[int, list[int]], *, apart: frozenset[int]) -> set[int]:
    found: set[int] = set()
    while waiting:
        for child in children.get(waiting.pop(), ()):
            if child not in found and child not in apart:
                found.add(child)
                waiting.append(child)
    return found


def environment(pid: int) -> bytes:
    """As the process was started with; empty where it is gone or we may not look."""
    try:
        return (_PROC / str(pid) / "environ").read_bytes()
    except OSError:
        return b""


def _carries(pid: int, result_dir: str) -> bool:
    return b"RESULT_DIR=" + os.fsencode(result_dir) in environment(pid).split(b"\0")


def outputs(pid: int) -> list[Path]:
    """The files that its standard output and error go to, as far as there are any and we may look."""
    found = []
    for number in (1, 2):
        with contextlib.suppress(OSError):
            found.append((_PROC / str(pid) / "fd" / str(number)).readlink())
    return found


def name(pid: int) -> str:
    """As prctl(PR_SET_NAME) has set it; empty where it is gone."""
    try:
        return (_PROC / str(pid) / "comm").read_text().strip()
    except OSError:
        return ""


def open_handle(pid: int, start_ticks: int) -> int | None:
    """A pidfd of exactly this process (readable once it has ended), or None where it is gone already."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return None
    process = look(pid)
    if process is None or process.start_ticks != start_ticks:  # the number was given to another process in between
        os.close(fd)
        return None
    return fd


def send_signal(process: Process, number: int) -> None:
    """To this very process, or to nobody: the pidfd pins it before its start time is compared."""
    fd = open_handle(process.pid, process.start_ticks)
    if fd is None:
        return
    try:
        signal.pidfd_send_signal(fd, number)
    except (ProcessLookupError, PermissionError):
        pass
    finally:
        os.close(fd)


def boot_id() -> str:
    """Changes with every start of the machine: process numbers of another boot mean nothing."""
    return (_PROC / "sys/kernel/random/boot_id").read_text().strip()


def first_ticks() -> int:
    """When the first process began: of the machine, or of the container, in which numbers begin anew with it. 0 where it is not shown."""
    first = look(1)
    return first.start_ticks if first is not None else 0
