"""The root file system of a run: what it may see of the machine, at the paths that it has there, and nothing else.

As containers are given theirs (bubblewrap, runc): a small memory file system, the folders and files that are shown bound into it, and
pivot_root. What lies beside them has no name in there: no folder of another run, of the studio or of a person can be listed, looked at,
watched, connected to or changed, whatever its modes say. And a folder that is closed to the run's user can hold what the run must read,
since the run never goes through it.

What is shown to be read is read-only, but for the run's own folder; devices are shown one by one.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from training_runtime.host.sandbox import kernel

Use = Literal["read", "write", "device"]
SHARED_MEMORY = "/dev/shm"  # noqa: S108
TEMPORARY = "/tmp"  # noqa: S108
PROCESSES = "/proc"
_DEVICE_LINKS = {
    "/dev/fd": "/proc/self/fd",
    "/dev/stdin": "/proc/self/fd/0",
    "/dev/stdout": "/proc/self/fd/1",
    "/dev/stderr": "/proc/self/fd/2",
}
_MOST_LINKS = 40  # as many as the kernel follows in one path
_BASE = TEMPORARY  # where it is put together, in the namespace of the run; any folder that every machine has


@dataclass(frozen=True)
class Layout:
    """`links`: path and what it says. `mounts`: path and use, each after those that it lies below."""

    links: tuple[tuple[str, str], ...]
    mounts: tuple[tuple[str, Use], ...]


def layout(wanted: Iterable[tuple[str, Use]]) -> Layout:
    """What to make so that each of these paths leads to what it leads to now. One that leads nowhere is left out; what lies below another
    one of the same use is there with it."""
    links: dict[str, str | None] = {}  # None: of what is no link
    uses: dict[str, Use] = {}
    for path, use in wanted:
        found = _follow(path, links)
        if found is not None and (found not in uses or use != "read"):
            uses[found] = use
    mounts: dict[str, Use] = {}
    for path in sorted(uses, key=lambda path: (path.count("/"), path)):
        above = _above(path, mounts)
        if above is None or mounts[above] != uses[path]:
            mounts[path] = uses[path]
    made = tuple((path, to) for path, to in links.items() if to is not None and _above(path, mounts) is None)
    return Layout(made, tuple(mounts.items()))


def _above(path: str, mounts: dict[str, Use]) -> str | None:
    """The nearest of them that this path lies below."""
    while path != "/":
        path = _parent(path)
        if path in mounts:
            return path
    return None


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]


def _parent(path: str) -> str:
    return path.rpartition("/")[0] or "/"


def _follow(path: str, links: dict[str, str | None]) -> str | None:
    """The path without links; what is on the way is noted. None where it leads nowhere."""
    at, rest, followed = "/", _parts(path), 0
    while rest:
        name = rest.pop(0)
        if name == "..":
            at = _parent(at)  # no link is left in it
            continue
        here = f"{at.rstrip('/')}/{name}"
        if here not in links:
            links[here] = _link(here)
        target = links[here]
        if target is None:
            at = here
            continue
        followed += 1
        if followed > _MOST_LINKS:
            return None
        at, rest = ("/" if target.startswith("/") else at), _parts(target) + rest
    return at if os.path.lexists(at) else None


def _link(path: str) -> str | None:
    try:
        return os.readlink(path)  # noqa: PTH115 - some hundred of them, before a run's first line
    except OSError:
        return None


def enter(plan: Layout, *, temporary: bool) -> None:
    """The calling process, alone in its mount namespace, has this root from here on, and is in it. Raises OSError. Needs CAP_SYS_ADMIN.
    `temporary`: there is an empty /tmp, to mount something on."""
    mask = os.umask(0o022)
    try:
        _build(plan, temporary=temporary)
    finally:
        os.umask(mask)
    kernel.change_root(_BASE)


def _build(plan: Layout, *, temporary: bool) -> None:
    with contextlib.ExitStack() as stack:
        sources = [(path, use, stack.enter_context(opened(path))) for path, use in plan.mounts]  # before the base hides any of them
        kernel.mount_empty(_BASE)
        for path, use, source in sources:
            _show(path, use, source)
    for path, target in (*plan.links, *_DEVICE_LINKS.items()):
        with contextlib.suppress(FileExistsError):
            _path_in_root(path).parent.mkdir(parents=True, exist_ok=True)
            _path_in_root(path).symlink_to(target)
    for folder in (SHARED_MEMORY, PROCESSES, *((TEMPORARY,) if temporary else ())):
        _path_in_root(folder).mkdir(parents=True, exist_ok=True)
    kernel.mount_private_shared_memory(str(_path_in_root(SHARED_MEMORY)))
    try:
        kernel.mount_proc_without_others(str(_path_in_root(PROCESSES)))
    except OSError:  # some containers allow none; noted by the probe
        with opened(PROCESSES) as source:
            kernel.bind_mount(source, str(_path_in_root(PROCESSES)), whole=True)
        kernel.bound_mount(str(_path_in_root(PROCESSES)), writable=True, devices=False)


@contextlib.contextmanager
def opened(path: str) -> Iterator[int]:
    fd = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


def _path_in_root(path: str) -> Path:
    return Path(_BASE, path.lstrip("/"))


def _show(path: str, use: Use, source: int) -> None:
    place = _path_in_root(path)
    if not place.exists():
        if Path(f"/proc/self/fd/{source}").is_dir():
            place.mkdir(parents=True)
        else:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.touch()
    kernel.bind_mount(source, str(place), whole=use != "device")
    kernel.bound_mount(str(place), writable=use != "read", devices=use == "device")
