"""How a forked child enters its box (`levels`): it sees its own files, has limits, drops its rights and closes the rest by Landlock."""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from training_runtime.host.sandbox import kernel, network, own_folder, rootfs, seccomp
from training_runtime.host.sandbox.levels import ETC, Box
from training_runtime.host.sandbox.rootfs import SHARED_MEMORY, TEMPORARY

_KERNEL = (rootfs.PROCESSES, "/sys/devices", "/sys/class", "/sys/bus", "/sys/dev", "/sys/module", "/sys/fs/cgroup", "/sys/kernel/mm")
_DEVICES = ("null", "zero", "full", "random", "urandom", "nvidia*", "nvidia-caps/*", "dri/render*", "infiniband/*")
CUDA_DEVICE = "/dev/nvidia-uvm"
HARMLESS_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
SOCKETS = "/run"
_NO_DEVICE_NODES = ~((1 << 6) | (1 << 11))  # every right but making character and block devices


def enter(box: Box) -> None:
    """Lock the calling process in, for good. It must be single-threaded. Raises OSError or SandboxRefused, in which case it must exit."""
    os.umask(0o027)
    if box.level == "off":
        return
    _limit(box)
    network.enter(box.reach, opened=box.opened, closed=box.closed)  # who gives it a way out of the machine sees all of the machine
    with _opened_devices() as found:  # those that a spare process is shown later are in no root of its own yet
        if box.private:
            kernel.private_namespaces()
            rootfs.enter(rootfs.layout(_visible_paths(box)), temporary=box.own_tmp and not box.later)
        network.settle(box.reach, own_mounts=box.private)
        _settle_folders(box)
        ruleset = _ruleset(box, found) if box.landlock else None  # with the rights of before, so that closed ancestors do not matter
    _drop_privileges(box)
    kernel.set_no_new_privileges()
    if ruleset is not None:
        kernel.landlock_restrict(ruleset)
        os.close(ruleset)
    if box.filtered:
        seccomp.install()


@contextlib.contextmanager
def _opened_devices() -> Iterator[dict[str, Path]]:
    """By the name of each a path that leads there from any root."""
    with contextlib.ExitStack() as stack:
        found = {}
        for path in devices():
            with contextlib.suppress(OSError):  # it has gone since
                descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
                stack.callback(os.close, descriptor)
                found[path] = Path("/proc/self/fd", str(descriptor))
        yield found


def _settle_folders(box: Box) -> None:
    """Those that the box writes to."""
    if box.later and box.uid is not None:
        own_folder.prepare(box.later, uid=box.uid, own_tmp=box.own_tmp)
    elif box.uid is not None:
        own_folder.hand_over(Path(box.write), box.uid)
    if box.own_tmp and not box.later:
        own_folder.mount_tmp(Path(box.write))


def _visible_paths(box: Box) -> Iterator[tuple[str, rootfs.Use]]:
    """What there is in the box's own root, beside /proc and shared memory: what Landlock leaves open where there is Landlock."""
    services = (SOCKETS,) if box.services else ()
    for path in (*box.execute, *_KERNEL[1:], *(f"/etc/{name}" for name in ETC), *box.read, *services):
        yield path, "read"
    for path in devices():
        if not box.later or path in HARMLESS_DEVICES:
            yield path, "device"
    if not box.later:
        yield box.write, "write"


def _limit(box: Box) -> None:
    """Before the change of user: soft and hard limits at once, never above what the host itself was given."""
    wanted = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_NOFILE: box.max_files,
        resource.RLIMIT_FSIZE: box.max_file_bytes,
    }
    if box.uid is not None:  # counted per user: with a shared user it would hit the studio as well
        wanted[resource.RLIMIT_NPROC] = box.max_processes
    for limit, value in wanted.items():
        hard = resource.getrlimit(limit)[1]
        bounded = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(limit, (bounded, bounded))
    with contextlib.suppress(OSError):  # training is what the kernel should kill first when memory runs out
        Path("/proc/self/oom_score_adj").write_text("500")


def _drop_privileges(box: Box) -> None:
    if os.geteuid() != 0:
        return
    kept = 1 << kernel.CAP_DAC_READ_SEARCH if box.read_search else 0
    kernel.drop_bounding_set(keep=kept)
    if box.uid is None:
        kernel.refuse_root_privileges()
    else:
        kernel.keep_capabilities_over_setuid()
        os.setgroups([])
        os.setresgid(box.uid, box.uid, box.uid)
        os.setresuid(box.uid, box.uid, box.uid)
        kernel.set_dumpable()
    kernel.set_capabilities(kept)


def _ruleset(box: Box, found: Mapping[str, Path]) -> int:
    """`found`: the devices of the machine."""
    abi = kernel.landlock_abi()
    everything = kernel.landlock_rights(abi)
    device = (kernel.FS_READ_FILE | kernel.FS_WRITE_FILE | kernel.FS_READ_DIR | kernel.FS_TRUNCATE | kernel.FS_IOCTL_DEV) & everything
    ruleset = kernel.landlock_ruleset(abi)
    read_only = kernel.FS_READ_FILE | kernel.FS_READ_DIR
    _allow(ruleset, box.execute, kernel.FS_READ)
    _allow(ruleset, (*_KERNEL, *(f"/etc/{name}" for name in ETC), *box.read), read_only)
    for way in found.values():
        kernel.landlock_allow(ruleset, way, device)
    if CUDA_DEVICE in found and (box.uid is not None or os.geteuid() != 0):
        # CUDA names its threads in /proc/PID/task, and does not start where it cannot (error 304). Whose files there are is then for the
        # kernel's usual rules to say, by which root, without a single right, may still change the machine's settings.
        _allow(ruleset, (rootfs.PROCESSES,), (kernel.FS_WRITE_FILE | kernel.FS_TRUNCATE) & everything)
    writable = everything & _NO_DEVICE_NODES & ~kernel.FS_IOCTL_DEV
    _allow(ruleset, (SHARED_MEMORY,), writable & ~kernel.FS_EXECUTE)
    kernel.landlock_allow(ruleset, Path(box.write), writable)
    for path, use in box.later:
        kernel.landlock_allow(ruleset, Path(path), writable if use == "write" else kernel.FS_READ)
    if box.own_tmp and not box.later:
        kernel.landlock_allow(ruleset, Path(TEMPORARY), writable)
    return ruleset


def _allow(ruleset: int, paths: Iterable[str], rights: int) -> None:
    for path in dict.fromkeys(paths):
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            kernel.landlock_allow(ruleset, Path(path), rights)


def devices() -> tuple[str, ...]:
    return tuple(str(path) for pattern in _DEVICES for path in Path("/dev").glob(pattern))
