"""The kernel and its knobs: rights back, namespaces, devices, control groups, the clock."""

from __future__ import annotations

import ctypes
import os
import resource
import shutil
import socket
import stat
import subprocess
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from processes import call

from training_runtime.host.sandbox import seccomp  # every run may read the runtime: here, for the numbers of system calls

Try = tuple[str, str, Callable[[], object]]
libc = ctypes.CDLL(None, use_errno=True)
NEW_USER, NEW_MOUNTS, NEW_NETWORK = 0x10000000, 0x00020000, 0x40000000
KNOBS = ("kernel/core_pattern", "kernel/modprobe", "vm/overcommit_memory", "fs/protected_hardlinks", "kernel/unprivileged_userns_clone")
OF_GROUPS = (
    *("cgroup.procs", "tasks", "release_agent", "memory.max", "memory.limit_in_bytes", "pids.max"),
    *("cpu.weight", "cpu.shares", "io.weight", "blkio.bfq.weight"),
)
MOST_GROUP_FILES = 300


def by_name(name: str, *arguments: int) -> int:
    column = 1 if os.uname().machine == "aarch64" else 0
    number = (seccomp._ABSENT | seccomp._REFUSED)[name][column]
    assert number is not None
    return call(number, *arguments)


def checked(result: int, what: str) -> None:
    if result < 0:
        raise OSError(ctypes.get_errno(), what)


def unshare(what: int) -> None:
    """In a child, so that what is tried next is tried from where this run was put."""
    child = os.fork()
    if child == 0:
        ctypes.set_errno(0)
        libc.unshare(what)
        os._exit(min(ctypes.get_errno(), 255))
    _, status = os.waitpid(child, 0)
    if code := os.waitstatus_to_exitcode(status):
        raise OSError(code, "unshare")


def mount() -> None:
    checked(libc.mount(b"none", os.environ["TMPDIR"].encode(), b"tmpfs", 0, None), "mount")


def root_again() -> None:
    """Where all runs have the studio's user it is that already: then the rights of root are asked for."""
    if os.geteuid() == 0:
        os.chown(os.environ["RESULT_DIR"], 12345, -1)
    else:
        os.setresuid(0, 0, 0)


def set_user_id(program: str) -> str:
    """A program that becomes root for whoever starts it, asked to prove it."""
    words = {"su": ["-c", "id -u"], "sudo": ["-n", "id", "-u"], "pkexec": ["id", "-u"], "mount": ["-t", "tmpfs", "x", os.environ["TMPDIR"]]}
    path = shutil.which(program)
    if path is None:
        raise FileNotFoundError(2, program)
    done = subprocess.run([path, *words[program]], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=20, check=False)
    if done.returncode:
        raise PermissionError(1, done.stderr.strip()[:100])
    return done.stdout


def device(kind: int, major: int, minor: int) -> None:
    path = os.path.join(os.environ["RESULT_DIR"], "model", f"device-{major}-{minor}")
    os.mknod(path, kind | 0o600, os.makedev(major, minor))
    os.close(os.open(path, os.O_RDONLY))


def opened(path: str, how: int) -> None:
    os.close(os.open(path, how | os.O_NONBLOCK))


def group_files() -> Iterator[str]:
    count = 0
    for folder, _, names in os.walk("/sys/fs/cgroup"):
        for name in OF_GROUPS:
            if name in names and count < MOST_GROUP_FILES:
                count += 1
                yield os.path.join(folder, name)


def more_files() -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard + 1, hard + 1))
    except ValueError as error:  # which is how Python says EPERM here
        raise PermissionError(1, str(error)) from None


def unguarded() -> None:
    """Whether a program that is started may get more rights than this one."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    if status["NoNewPrivs"].strip() == "1":
        raise PermissionError(1, "no new privileges")


def tries(targets: dict[str, Any]) -> Iterator[Try]:
    yield "rights", "root again", root_again
    yield "rights", "another group", partial(os.setgroups, [0, 4, 42])
    yield "rights", "of programs", unguarded
    for program in ("su", "sudo", "pkexec", "mount"):
        yield "rights", program, partial(set_user_id, program)
    for name, what in (("users", NEW_USER), ("users and mounts", NEW_USER | NEW_MOUNTS), ("a network", NEW_NETWORK)):
        yield "namespace", name, partial(unshare, what)
    yield "call", "mount", mount
    yield "call", "chroot", lambda: checked(libc.chroot(os.environ["RESULT_DIR"].encode()), "chroot")
    ring, attribute = ctypes.create_string_buffer(256), ctypes.create_string_buffer(256)
    yield "call", "io_uring", partial(by_name, "io_uring_setup", 8, ctypes.addressof(ring))
    yield "call", "keyctl", partial(by_name, "keyctl", 0, -3 & 0xFFFFFFFF, 0)  # the session's keyring
    yield "call", "bpf", partial(by_name, "bpf", 0, ctypes.addressof(attribute), 72)
    yield "call", "perf", partial(by_name, "perf_event_open", ctypes.addressof(attribute), 0, -1, -1, 0)
    yield "call", "userfaultfd", partial(by_name, "userfaultfd", 1)
    yield "call", "inotify", partial(by_name, "inotify_init1", 0)
    yield "call", "fanotify", partial(by_name, "fanotify_init", 0, 0)
    yield "call", "the clock", lambda: time.clock_settime(time.CLOCK_REALTIME, time.time())
    yield "call", "the machine's name", lambda: socket.sethostname(socket.gethostname())
    yield "call", "real time", lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    yield "call", "more files", more_files
    for name, kind, number in (("memory", stat.S_IFCHR, (1, 1)), ("disk", stat.S_IFBLK, (8, 0)), ("disk 254", stat.S_IFBLK, (254, 0))):
        yield "device", name, partial(device, kind, *number)
    for path in targets["devices"]:
        yield "device", path, partial(opened, path, os.O_RDONLY)
    for name in KNOBS:
        yield "knob", name, partial(opened, f"/proc/sys/{name}", os.O_WRONLY)
    for path in ("/proc/sysrq-trigger", "/proc/self/oom_score_adj", "/proc/self/uid_map", "/sys/kernel/uevent_helper"):
        yield "knob", path, partial(opened, path, os.O_WRONLY)
    for path in group_files():
        yield "control group", path, partial(opened, path, os.O_WRONLY)
    yield "shared memory", "of others", lambda: Path(targets["shared memory"]).read_bytes()
