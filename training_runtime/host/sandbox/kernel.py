"""The Linux calls that the standard library lacks, by ctypes: prctl, capabilities, namespaces, mounts, Landlock, seccomp.

Thin wrappers that raise OSError; what they are used for is decided in `sandbox`. Linux only, no state.
"""

from __future__ import annotations

import ctypes
import fcntl
import functools
import os
import platform
import socket
import struct
from pathlib import Path

CAP_DAC_READ_SEARCH, CAP_NET_ADMIN, CAP_SYS_ADMIN = 2, 12, 21
LAST_CAPABILITY = 63

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_KEEPCAPS = 8
_PR_SET_NAME = 15
_PR_CAPBSET_DROP = 24
_PR_SET_SECUREBITS = 28
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38
_PR_CAP_AMBIENT = 47
_PR_CAP_AMBIENT_RAISE = 2
_SECBIT_NOROOT_LOCKED = 0b11

_CLONE_NEWNS = 0x00020000
_CLONE_NEWIPC = 0x08000000
_CLONE_NEWUSER = 0x10000000
_CLONE_NEWNET = 0x40000000
_MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_BIND, _MS_MOVE, _MS_REC, _MS_PRIVATE = 2, 4, 8, 4096, 8192, 16384, 1 << 18

_MOUNT_RDONLY, _MOUNT_NOSUID, _MOUNT_NODEV, _MOUNT_NOEXEC = 1, 2, 4, 8
# The same numbers on every architecture.
_OPEN_TREE, _MOVE_MOUNT, _MOUNT_SETATTR, _AT_RECURSIVE, _AT_EMPTY_PATH, _MNT_DETACH = 428, 429, 442, 0x8000, 0x1000, 2
_OPEN_TREE_CLONE, _MOVE_MOUNT_FROM_DESCRIPTOR = 1, 4

_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP, _NAME_BYTES = 0x8913, 0x8914, 1, 16

_CAPABILITY_VERSION_3 = 0x20080522

# The three Landlock calls have the same numbers on every architecture (they came after the tables were unified).
_LANDLOCK_CREATE, _LANDLOCK_ADD_RULE, _LANDLOCK_RESTRICT = 444, 445, 446
_LANDLOCK_RULE_PATH_BENEATH = 1

_SECCOMP_SET_MODE_FILTER = 1
_SECCOMP_FILTER_FLAG_SPEC_ALLOW = 1 << 2

FS_EXECUTE, FS_WRITE_FILE, FS_READ_FILE, FS_READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
FS_TRUNCATE, FS_IOCTL_DEV = 1 << 14, 1 << 15
FS_FILE_RIGHTS = FS_EXECUTE | FS_WRITE_FILE | FS_READ_FILE | FS_TRUNCATE | FS_IOCTL_DEV
FS_READ = FS_EXECUTE | FS_READ_FILE | FS_READ_DIR


class _CapabilityHeader(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]


class _CapabilityWord(ctypes.Structure):
    _fields_ = [("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32)]


class _RulesetAttribute(ctypes.Structure):
    _fields_ = [("handled_access_fs", ctypes.c_uint64), ("handled_access_net", ctypes.c_uint64), ("scoped", ctypes.c_uint64)]


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = [("allowed_access", ctypes.c_uint64), ("parent_fd", ctypes.c_int32)]


class _FilterProgram(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("instructions", ctypes.c_void_p)]


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def _prctl(option: int, *arguments: int) -> None:
    padded = [ctypes.c_ulong(a) for a in (*arguments, 0, 0, 0, 0)[:4]]
    _check(_libc().prctl(option, *padded), f"prctl({option})")


def become_subreaper() -> None:
    """Orphans among the descendants of this process become its children instead of init's."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def set_no_new_privileges() -> None:
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)


def die_with_the_parent() -> None:
    """SIGKILL when the parent's thread ends; a change of user before it would undo it."""
    _prctl(_PR_SET_PDEATHSIG, 9)


def set_dumpable() -> None:
    """After a change of uid the kernel gives /proc/self to root; this gives it back to the process itself."""
    _prctl(_PR_SET_DUMPABLE, 1)


SHIM_NAME = "edt-shim"
DRIVER_NAME = "edt-run-"  # and the run's number
SPARE_NAME = "edt-spare"


def set_name(name: str) -> None:
    """What `ps -o comm` shows; 15 bytes are kept."""
    buffer = ctypes.create_string_buffer(name.encode()[:15])
    _check(_libc().prctl(_PR_SET_NAME, buffer, 0, 0, 0), "prctl(PR_SET_NAME)")


def private_namespaces() -> None:
    """Own mount and IPC namespace, and nothing mounted in it is seen outside. Needs CAP_SYS_ADMIN."""
    _check(_libc().unshare(_CLONE_NEWNS | _CLONE_NEWIPC), "unshare")
    _mount(b"none", "/", None, _MS_REC | _MS_PRIVATE, None)


def own_mounts() -> None:
    """A mount namespace, and nothing mounted in it is seen outside. Needs CAP_SYS_ADMIN."""
    _check(_libc().unshare(_CLONE_NEWNS), "unshare")
    _mount(b"none", "/", None, _MS_REC | _MS_PRIVATE, None)


def own_network() -> None:
    """A network namespace with nothing but a loopback, which is up. Needs CAP_SYS_ADMIN."""
    _check(_libc().unshare(_CLONE_NEWNET), "unshare")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        flags = struct.unpack_from("h", fcntl.ioctl(any_socket, _SIOCGIFFLAGS, _flags_of("lo", 0)), _NAME_BYTES)[0]
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, _flags_of("lo", flags | _IFF_UP))


def _flags_of(interface: str, flags: int) -> bytes:
    """A struct ifreq; see netdevice(7)."""
    return struct.pack(f"{_NAME_BYTES}sh22x", interface.encode(), flags)


def bare_user_namespace() -> None:
    """A user namespace in which nobody has a number yet, with all capabilities over what else is made for it. One thread alone."""
    _check(_libc().unshare(_CLONE_NEWUSER), "unshare")


def copy_of_mounts() -> None:
    """A mount namespace that belongs to the user namespace of the process: what is mounted on the machine later is seen in it."""
    _check(_libc().unshare(_CLONE_NEWNS), "unshare")


def own_user_namespace() -> None:
    """The same user and group in a user namespace, with all capabilities over what else is made for it; see user_namespaces(7)."""
    uid, gid = os.geteuid(), os.getegid()
    _check(_libc().unshare(_CLONE_NEWUSER), "unshare")
    for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        Path(f"/proc/self/{name}").write_text(text)


def join_namespace(descriptor: int) -> None:
    """That which the descriptor stands for."""
    _check(_libc().setns(descriptor, 0), "setns")


def mount_private_shared_memory(folder: str) -> None:
    """Shared memory of its own; it is freed with the last process of the namespace."""
    _mount(b"tmpfs", folder, b"tmpfs", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC, b"mode=1777")


def mount_proc_without_others(folder: str) -> None:
    """A /proc that does not show processes of other users."""
    _mount(b"proc", folder, b"proc", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC, b"hidepid=2")


def mount_scratch(folder: str, *, size_bytes: int, uid: int) -> None:
    """In its place an empty folder of this user's, which holds so much and no more."""
    options = f"mode=0750,size={size_bytes},uid={uid},gid={uid}".encode()
    _mount(b"tmpfs", folder, b"tmpfs", _MS_NOSUID | _MS_NODEV, options)


def mount_empty(folder: str) -> None:
    """In its place a folder with nothing in it, which only root can change."""
    _mount(b"tmpfs", folder, b"tmpfs", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC, b"mode=0755,size=1m")


def bind_mount(what: int, target: str, *, whole: bool = False) -> None:
    """What is behind the descriptor appears at `target`, with all that is mounted below it where it is `whole`: no name is looked up, so
    nobody can put a link in its place."""
    _mount(f"/proc/self/fd/{what}".encode(), target, None, _MS_BIND | (_MS_REC if whole else 0), None)


def bound_mount(target: str, *, writable: bool, devices: bool) -> None:
    """What a mount and all below it allow here: never set-user-id programs. Linux 5.12 or later."""
    attributes = _allowed(writable=writable, devices=devices)
    result = _libc().syscall(_MOUNT_SETATTR, -1, os.fsencode(target), _AT_RECURSIVE, attributes, ctypes.sizeof(attributes))
    _check(result, f"mount_setattr {target}")


def copied_mount(what: int, *, writable: bool, devices: bool) -> int:
    """A copy of what is behind the descriptor, with all that is mounted below it, that is mounted nowhere yet (see `attach_mount`); what it
    allows is said as for `bound_mount`. Needs CAP_SYS_ADMIN."""
    flags = _OPEN_TREE_CLONE | os.O_CLOEXEC | _AT_EMPTY_PATH | (0 if devices else _AT_RECURSIVE)
    copy = _check(_libc().syscall(_OPEN_TREE, what, b"", flags), "open_tree")
    attributes = _allowed(writable=writable, devices=devices)
    result = _libc().syscall(_MOUNT_SETATTR, copy, b"", _AT_EMPTY_PATH | _AT_RECURSIVE, attributes, ctypes.sizeof(attributes))
    _check(result, "mount_setattr")
    return copy


def attach_mount(copy: int, target: str) -> None:
    """In the mount namespace of the calling process, which need not be the one that it was copied in. No link is followed at its end."""
    result = _libc().syscall(_MOVE_MOUNT, copy, b"", -100, os.fsencode(target), _MOVE_MOUNT_FROM_DESCRIPTOR)
    _check(result, f"move_mount {target}")


def _allowed(*, writable: bool, devices: bool) -> ctypes.Array[ctypes.c_uint64]:
    """A struct mount_attr; whatever is mounted there later on the machine does not come here."""
    allowed = _MOUNT_NOSUID | (0 if writable else _MOUNT_RDONLY) | (_MOUNT_NOEXEC if devices else _MOUNT_NODEV)
    return (ctypes.c_uint64 * 4)(allowed, 0, _MS_PRIVATE, 0)


def shift_mount(source: str, target: str) -> None:
    """What is mounted at `source` is at `target` from here on."""
    _mount(os.fsencode(source), target, None, _MS_MOVE, None)


def change_root(folder: str) -> None:
    """The mount at `folder` becomes the root of this mount namespace, and the one before it is gone; the process is in it."""
    os.chdir(folder)
    _check(_libc().pivot_root(b".", b"."), "pivot_root")
    _check(_libc().umount2(b".", _MNT_DETACH), "umount2")
    os.chdir("/")


def _mount(source: bytes, target: str, kind: bytes | None, flags: int, options: bytes | None) -> None:
    _check(_libc().mount(source, os.fsencode(target), kind, ctypes.c_ulong(flags), options), f"mount {target}")


def drop_bounding_set(*, keep: int) -> None:
    """No exec can ever gain a capability outside the bit mask `keep`."""
    for capability in range(LAST_CAPABILITY + 1):
        if not keep >> capability & 1:
            try:
                _prctl(_PR_CAPBSET_DROP, capability)
            except OSError as error:
                if error.errno != 22:  # EINVAL: the kernel knows no capability of that number
                    raise


def refuse_root_privileges() -> None:
    """Being uid 0 gives no capability any more, over exec too."""
    _prctl(_PR_SET_SECUREBITS, _SECBIT_NOROOT_LOCKED)


def keep_capabilities_over_setuid() -> None:
    _prctl(_PR_SET_KEEPCAPS, 1)


def set_capabilities(mask: int) -> None:
    """Exactly the capabilities of the bit mask `mask`: permitted, effective and inherited over exec (ambient)."""
    header = _CapabilityHeader(_CAPABILITY_VERSION_3, 0)
    words = (_CapabilityWord * 2)()
    for i in range(2):
        word = mask >> (32 * i) & 0xFFFFFFFF
        words[i] = _CapabilityWord(word, word, word)
    _check(_libc().capset(ctypes.byref(header), ctypes.byref(words)), "capset")
    for capability in range(LAST_CAPABILITY + 1):
        if mask >> capability & 1:
            _prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE, capability)


def landlock_abi() -> int:
    """The Landlock version of the running kernel; 0 where there is none or it is switched off."""
    if platform.system() != "Linux":
        return 0
    return max(0, int(_libc().syscall(_LANDLOCK_CREATE, None, 0, 1)))


def landlock_rights(abi: int) -> int:
    """Every file system right that this version knows."""
    count = {1: 13, 2: 14, 3: 15, 4: 15}.get(abi, 16)
    return (1 << count) - 1


def landlock_ruleset(abi: int) -> int:
    """A ruleset (fd) that forbids every file system access, and from version 6 on signals to and abstract sockets of processes outside."""
    attribute = _RulesetAttribute(landlock_rights(abi), 0, 0b11 if abi >= 6 else 0)
    size = 8 if abi < 4 else 16 if abi < 6 else 24
    return _check(_libc().syscall(_LANDLOCK_CREATE, ctypes.byref(attribute), ctypes.c_size_t(size), 0), "landlock_create_ruleset")


def landlock_allow(ruleset: int, path: Path, rights: int) -> None:
    """Allows `rights` at `path` and all that lies beneath it. Raises OSError where the path does not exist."""
    fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        if not path.is_dir():
            rights &= FS_FILE_RIGHTS
        rule = _PathBeneath(rights, fd)
        result = _libc().syscall(_LANDLOCK_ADD_RULE, ruleset, _LANDLOCK_RULE_PATH_BENEATH, ctypes.byref(rule), 0)
        _check(result, f"landlock_add_rule {path}")
    finally:
        os.close(fd)


def landlock_restrict(ruleset: int) -> None:
    """From now on this process and all its descendants can do only what the ruleset allows. Needs no_new_privs; there is no way back."""
    _check(_libc().syscall(_LANDLOCK_RESTRICT, ruleset, 0), "landlock_restrict_self")


def set_filter(number: int, program: ctypes.Array[ctypes.c_char], length: int) -> None:
    """From now on the kernel asks this BPF program of `length` instructions about every system call of this thread and of all that it
    starts. Needs no_new_privs; there is no way back. `number`: of seccomp(2) here.

    Until Linux 5.16 a filter switches off speculative stores as well, which guards code against code in its own process and makes
    interpreters some 10 to 50 % slower. Each process here is one person's, so that is left as it is for every other process.
    """
    described = _FilterProgram(length, ctypes.addressof(program))
    for flags in (_SECCOMP_FILTER_FLAG_SPEC_ALLOW, 0):  # the flag came with Linux 4.17
        done = _libc().syscall(number, _SECCOMP_SET_MODE_FILTER, flags, ctypes.byref(described))
        if done == 0 or ctypes.get_errno() != 22:
            break
    _check(done, "seccomp")
