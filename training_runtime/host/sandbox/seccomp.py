"""A filter of system calls for user code: what no training needs and what the kernel's worst bugs have been found in is refused.

Promise: after `install`, neither the process nor anything that it ever starts can make one of the calls in the tables below, whatever
rights it gets, by whichever of the processor's entries; there is no way back. Where it comes from: seccomp(2) in filter mode (Linux 3.17)
with no_new_privs, so it takes no right. The kernel looks at numbers and at arguments that are no pointers; all else is for the other parts
of the box. It is a list of what is refused, not of what is allowed: a call that the kernel gets tomorrow is open until it stands here.

Refused with ENOSYS, as by a kernel without it, where programs then go another way by themselves, and else with EPERM:
  io_uring, clone3     ENOSYS. The flags of clone3 lie in memory, where no filter sees them; the C library then calls clone
  inotify              ENOSYS. Landlock has no rule for it: it tells the names of files in folders that may not even be listed
  namespaces, mounts   a user namespace would give every right over kernel code that is otherwise root's
  sockets              other families than Unix, IP and netlink would load protocols that nobody here speaks
  prlimit              of a process that is named: where runs share a user, one could give the host no processor time, and end it
  clocks               of a process that is named: the kernel tells whoever asks how long it has computed, to the nanosecond
  ioctl                ENOTTY, as before Linux 6.13, for the one by which a pidfd tells of whose process it is, and of its parent
And for a process that is `alone`, which reads what it is given and answers (see `file_box`), more with EPERM: to start or trace processes,
to signal them, to speak to any, and to make links, devices and pipes.
Open on purpose: process_vm_readv and pidfd_getfd, which MPI's and CUDA's exchange between processes of one run needs, and which the
kernel gives to the run's own processes alone; its own fields of /proc would open the same.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import platform
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from training_runtime.host.sandbox import kernel

Instruction = tuple[int, int, int, int]  # code, jump if true, jump if false, constant; see bpf(4) and linux/filter.h

_LOAD, _AND, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x54, 0x15, 0x35, 0x45, 0x06
_ALLOW, _ERROR = 0x7FFF0000, 0x00050000
_NUMBER_AT, _ARCHITECTURE_AT, _FIRST_ARGUMENT_AT, _SECOND_ARGUMENT_AT = (
    0,
    4,
    16,
    24,
)  # in struct seccomp_data; the low half of an argument comes first
_X32 = 0x40000000  # the bit in numbers of the x32 entries
_FARTHEST = 255

_NAMESPACES = 0x7E020000 | 0x80  # CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET, NEWTIME
_CLONE_NAMESPACES = 0x7E020000  # in clone the bit of NEWTIME is part of the signal's number
_FAMILIES = (1, 2, 10, 16)  # AF_UNIX, AF_INET, AF_INET6, AF_NETLINK
_CLOCKS = ("clock_gettime", "clock_getres", "clock_nanosleep", "timer_create")
_OF_PROCESSES, _OF_THE_CALLER, _OF_A_THREAD = 1 << 31, 0xFFFFFFF8, 4  # numbers of clocks: ~PID << 3, and a bit; of threads its own alone
_PIDFD_GET_INFO = 0xFF0B  # without what says how long the answer may be

# By name: the numbers on x86_64 and aarch64, None where there is no such call.
_ABSENT: dict[str, tuple[int | None, int | None]] = {  # ENOSYS
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "clone3": (435, 435),
    "inotify_init": (253, None),
    "inotify_init1": (294, 26),
    "inotify_add_watch": (254, 27),
}
_REFUSED: dict[str, tuple[int | None, int | None]] = {  # EPERM
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "setns": (308, 268),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "open_tree_attr": (467, 467),
    "open_by_handle_at": (304, 265),
    "fanotify_init": (300, 262),
    "fanotify_mark": (301, 263),
    "perf_event_open": (298, 241),
    "bpf": (321, 280),
    "userfaultfd": (323, 282),
    "ptrace": (101, 117),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "create_module": (174, None),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "acct": (163, 89),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "reboot": (169, 142),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "syslog": (103, 116),
    "iopl": (172, None),
    "ioperm": (173, None),
    "modify_ldt": (154, None),
    "lookup_dcookie": (212, 18),
}
_BY_ARGUMENT: dict[str, tuple[int | None, int | None]] = {
    "clone": (56, 220),
    "unshare": (272, 97),
    "socket": (41, 198),
    "prlimit64": (302, 261),
    "clock_gettime": (228, 113),
    "clock_getres": (229, 114),
    "clock_nanosleep": (230, 115),
    "timer_create": (222, 107),
    "ioctl": (16, 29),
}
_ALONE: dict[str, tuple[int | None, int | None]] = {  # EPERM, beside all the above
    "clone": (56, 220),
    "fork": (57, None),
    "vfork": (58, None),
    "execve": (59, 221),
    "execveat": (322, 281),
    "kill": (62, 129),
    "tkill": (200, 130),
    "tgkill": (234, 131),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
    "pidfd_open": (434, 434),
    "pidfd_getfd": (438, 438),
    "pidfd_send_signal": (424, 424),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "kcmp": (312, 272),
    "prlimit64": (302, 261),
    "setpriority": (141, 140),
    "ioprio_set": (251, 30),
    "sched_setaffinity": (203, 122),
    "sched_setscheduler": (144, 119),
    "sched_setparam": (142, 118),
    "sched_setattr": (314, 274),
    "migrate_pages": (256, 238),
    "move_pages": (279, 239),
    "socket": (41, 198),
    "socketpair": (53, 199),
    "connect": (42, 203),
    "bind": (49, 200),
    "listen": (50, 201),
    "shmget": (29, 194),
    "semget": (64, 190),
    "msgget": (68, 186),
    "mq_open": (240, 180),
    "link": (86, None),
    "linkat": (265, 37),
    "symlink": (88, None),
    "symlinkat": (266, 36),
    "mknod": (133, None),
    "mknodat": (259, 33),
}


@dataclass(frozen=True)
class _Architecture:
    """`column`: in the tables above. `token`: AUDIT_ARCH of linux/audit.h, by which the kernel says through which entry a call came.
    `seccomp`: the number of the call itself."""

    column: Literal[0, 1]
    token: int
    seccomp: int


_ARCHITECTURES = {"x86_64": _Architecture(0, 0xC000003E, 317), "aarch64": _Architecture(1, 0xC00000B7, 277)}


class Unsupported(OSError):
    """There is no table of system calls for this processor."""


def install(*, alone: bool = False) -> None:
    """For this process, which must be single-threaded and have no_new_privs, and for all its descendants. Raises OSError where the kernel
    does not take a filter. `alone`: it needs no other process, from here on."""
    machine = platform.machine()
    filters = program(machine, alone=alone)
    buffer = ctypes.create_string_buffer(filters, len(filters))
    kernel.set_filter(_ARCHITECTURES[machine].seccomp, buffer, len(filters) // 8)


@functools.cache
def program(machine: str, *, alone: bool = False) -> bytes:
    """For seccomp(2): eight bytes an instruction. Raises Unsupported. Made once for all runs, in the process that they are forked from."""
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in instructions(machine, alone=alone))


def instructions(machine: str, *, alone: bool = False) -> list[Instruction]:
    """Found by halving, so a call that is allowed costs some seven comparisons; newer kernels remember that it is and make none."""
    here = _ARCHITECTURES.get(machine)
    if here is None:
        raise Unsupported(errno.ENOTSUP, f"there is no table of system calls for {machine}")
    bodies = {name: [_error(errno.ENOSYS)] for name in _ABSENT} | {name: [_error(errno.EPERM)] for name in _REFUSED} | _by_argument()
    tables = _ABSENT | _REFUSED | _BY_ARGUMENT
    if alone:
        bodies, tables = bodies | {name: [_error(errno.EPERM)] for name in _ALONE}, tables | _ALONE
    numbers = {name: both[here.column] for name, both in tables.items()}
    found = sorted((number, bodies[name]) for name, number in numbers.items() if number is not None)
    return [
        (_LOAD, 0, 0, _ARCHITECTURE_AT),
        (_EQUAL, 1, 0, here.token),
        _error(errno.ENOSYS),
        (_LOAD, 0, 0, _NUMBER_AT),
        *([(_AT_LEAST, 0, 1, _X32), _error(errno.ENOSYS)] if here.column == 0 else []),
        *_search(found),
    ]


def _by_argument() -> dict[str, list[Instruction]]:
    first = (_LOAD, 0, 0, _FIRST_ARGUMENT_AT)
    return {
        "clone": [first, (_ANY_BIT, 0, 1, _CLONE_NAMESPACES), _error(errno.EPERM), _allow()],
        "unshare": [first, (_ANY_BIT, 0, 1, _NAMESPACES), _error(errno.EPERM), _allow()],
        "socket": [
            first,
            *((_EQUAL, len(_FAMILIES) - place, 0, family) for place, family in enumerate(_FAMILIES)),
            _error(errno.EAFNOSUPPORT),
            _allow(),
        ],
        "prlimit64": [first, (_EQUAL, 1, 0, 0), _error(errno.EPERM), _allow()],
        "ioctl": [
            (_LOAD, 0, 0, _SECOND_ARGUMENT_AT),
            (_AND, 0, 0, 0xFFFF),
            (_EQUAL, 0, 1, _PIDFD_GET_INFO),
            _error(errno.ENOTTY),
            _allow(),
        ],
    } | dict.fromkeys(_CLOCKS, _own_clocks())


def _own_clocks() -> list[Instruction]:
    return [
        (_LOAD, 0, 0, _FIRST_ARGUMENT_AT),
        (_AT_LEAST, 0, 3, _OF_PROCESSES),
        (_AT_LEAST, 2, 0, _OF_THE_CALLER),
        (_ANY_BIT, 1, 0, _OF_A_THREAD),
        _error(errno.EPERM),  # as clock_getcpuclockid(3) says it
        _allow(),
    ]


def _search(found: Sequence[tuple[int, list[Instruction]]]) -> list[Instruction]:
    if len(found) == 1:
        number, body = found[0]
        return [(_EQUAL, 0, len(body), number), *body, _allow()]
    middle = len(found) // 2
    lower, upper = _search(found[:middle]), _search(found[middle:])
    assert len(lower) <= _FARTHEST, "a jump reaches 255 instructions: halve the table above once more"
    return [(_AT_LEAST, len(lower), 0, found[middle][0]), *lower, *upper]


def _allow() -> Instruction:
    return _RETURN, 0, 0, _ALLOW


def _error(number: int) -> Instruction:
    return _RETURN, 0, 0, _ERROR | number
