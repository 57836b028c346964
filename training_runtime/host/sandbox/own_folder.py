"""What a run has of its own in its box: its folder, and /tmp. A spare process (see `spares`) has none yet; where it would be there is a
small folder in memory, under a name that leads to the run's when the process is given to one.

So what packages remember of HOME, TMPDIR or the working folder when they are imported leads to the right place afterwards: `SCRATCH` is a
folder first, and then a link to the run's. What they wrote meanwhile is moved to `BEFORE`, from where the run takes it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

from training_runtime.errors import SandboxRefused
from training_runtime.host.sandbox import kernel, rootfs
from training_runtime.host.sandbox.rootfs import TEMPORARY

ROOM = "/.edt"
SCRATCH, SCRATCH_TMP, BEFORE = f"{ROOM}/run", f"{ROOM}/run/tmp", f"{ROOM}/before"
SCRATCH_BYTES = 64 << 20


def hand_over(folder: Path, uid: int) -> None:
    """Give the result folder to the run's user, readable by the studio's group. Entries only as long as no user code has run in there."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        owner = os.fstat(fd)
        if owner.st_uid == uid:
            return
        if owner.st_uid != os.geteuid():
            raise SandboxRefused(f"{folder} belongs to user {owner.st_uid}, neither to the studio nor to the run")
        for _, folders, files, inside in os.fwalk(".", dir_fd=fd, follow_symlinks=False):
            for name in (*folders, *files):
                os.chown(name, uid, owner.st_gid, dir_fd=inside, follow_symlinks=False)
        os.fchown(fd, uid, owner.st_gid)
        os.fchmod(fd, 0o2750)  # what is made inside keeps the studio's group
    finally:
        os.close(fd)


def mount_tmp(result: Path) -> None:
    """The result folder belongs to user code: a link in place of `tmp` must not be followed, it could name any folder of the machine."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    outer = os.open(result, flags)
    with contextlib.suppress(FileExistsError):
        os.mkdir("tmp", 0o750, dir_fd=outer)
    inner = os.open("tmp", flags, dir_fd=outer)
    if os.fstat(inner).st_uid == os.geteuid():
        owner = os.fstat(outer)
        os.fchown(inner, owner.st_uid, owner.st_gid)
    kernel.bind_mount(inner, TEMPORARY)
    os.close(inner)
    os.close(outer)


def prepare(later: Iterable[tuple[str, rootfs.Use]], *, uid: int, own_tmp: bool) -> None:
    """In the root of a spare process, before it gives up its rights."""
    mask = os.umask(0o022)
    try:
        for path, _ in (*later, (SCRATCH, "write")):
            Path(path).mkdir(parents=True, exist_ok=True)
        if own_tmp:
            Path(TEMPORARY).symlink_to(SCRATCH_TMP)
    finally:
        os.umask(mask)
    kernel.mount_scratch(SCRATCH, size_bytes=SCRATCH_BYTES, uid=uid)


def show(namespace: int, shown: Iterable[tuple[str, rootfs.Use]], *, result: str, uid: int) -> None:
    """Give a spare process the folder of its run, and show it these paths of the machine. `namespace`: its mount namespace. For a child of
    the host, with its rights, which ends after it. Raises OSError or SandboxRefused.

    Every folder that a name is looked up in belongs to root, in there too: user code can put no link in the way.
    """
    hand_over(Path(result), uid)
    copies = [(path, _copy(path, use)) for path, use in (*shown, (result, "write"))]
    kernel.join_namespace(namespace)
    os.umask(0o022)
    for path, (copy, is_folder) in copies:
        _make_place(Path(path), is_folder=is_folder)
        kernel.attach_mount(copy, path)
    Path(BEFORE).mkdir()
    kernel.shift_mount(SCRATCH, BEFORE)
    Path(SCRATCH).rmdir()
    Path(SCRATCH).symlink_to(result)


def _copy(path: str, use: rootfs.Use) -> tuple[int, bool]:
    """Of what is there, and whether it is a folder."""
    with rootfs.opened(path) as source:
        is_folder = Path(f"/proc/self/fd/{source}").is_dir()
        return kernel.copied_mount(source, writable=use != "read", devices=use == "device"), is_folder


def _make_place(place: Path, *, is_folder: bool) -> None:
    if os.path.lexists(place):
        return
    if is_folder:
        place.mkdir(parents=True)
    else:
        place.parent.mkdir(parents=True, exist_ok=True)
        place.touch()
