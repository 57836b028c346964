"""What the processes of a run know of each other's life and death: driver, fork server (the parent of workers), workers. Linux.

A process is named by its pid and its start time together, which is never given twice. Nothing here decides anything.
"""

from __future__ import annotations

import ctypes
import errno
import os
import select
import signal
from collections.abc import Container
from contextlib import suppress
from pathlib import Path

_SET_PARENT_DEATH_SIGNAL, _SET_CHILD_SUBREAPER = 1, 36


def die_with_parent(parent: int) -> None:
    """Ask the kernel to kill this process when its parent dies; exit now if that has happened already (`parent` is whom we expect)."""
    _prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def outlive_parent() -> None:
    """Take `die_with_parent` back: from now on this process has something to lose, and ends by itself."""
    _prctl(_SET_PARENT_DEATH_SIGNAL, 0)


def adopt_orphans(wanted: bool) -> None:
    """Whether descendants that lose their parent become children of this process, which can then reap them."""
    _prctl(_SET_CHILD_SUBREAPER, int(wanted))


def _prctl(option: int, value: int) -> None:
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    prctl.argtypes = [ctypes.c_int, *[ctypes.c_ulong] * 4]
    if prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


def has_ended(handle: int) -> bool:
    """Whether the process of this pidfd has ended. About a microsecond. Raises OSError where `handle` is none."""
    return wait(handle, 0)


def start_ticks(pid: int) -> int:
    """When a process started, in clock ticks since boot. 0 where /proc cannot be read."""
    fields = _stat(pid)
    return int(fields[19]) if len(fields) > 19 else 0


def is_stopped(pid: int) -> bool:
    """Whether a process is stopped by a signal (SIGSTOP, a freezer's or a person's). False where /proc cannot be read."""
    return _stat(pid)[:1] == ["T"]


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat after the name, from the state on; see proc(5)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def end(pid: int, ticks: int) -> None:
    """Kill exactly this process and reap it where it is a child of ours. Returns when it has ended; at once where it is gone."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        if start_ticks(pid) != ticks:
            return  # the number belongs to somebody else by now
        signal.pidfd_send_signal(handle, signal.SIGKILL)
        wait(handle, None)
        reap(pid)
    except ProcessLookupError:
        pass
    finally:
        os.close(handle)


def wait(handle: int, timeout_s: float | None) -> bool:
    """Until the process of this pidfd has ended; False after `timeout_s`. Raises OSError where `handle` is none: somebody may have closed
    it, which must not pass for an end."""
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    events = poll.poll(None if timeout_s is None else 1000 * timeout_s)
    if events and events[0][1] & select.POLLNVAL:
        raise OSError(errno.EBADF, "the pidfd is closed")
    return bool(events)


def reap(pid: int) -> None:
    """Take the exit status of a child that has ended; nothing where it is the child of another (who reaps it)."""
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return


def reap_others(children: Container[int]) -> None:
    """Of the children that have ended, those that are ours since their parents died; one of `children` is left to who waits for it."""
    with suppress(ChildProcessError):
        while (found := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) and found.si_pid not in children:
            os.waitpid(found.si_pid, 0)


def see_children_end() -> None:
    """From now on the end of a child is there for who waits for it, whatever the script has chosen. In the main thread."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
