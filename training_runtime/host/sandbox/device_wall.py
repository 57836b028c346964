"""The wall between a run and the GPUs on which it holds no slot: its control group lets its processes open no others.

What a process has open already stays open. The kernel asks when a device is opened, so a GPU is opened to the group before the driver is
told of the slot, and closed when nothing of the run is on it any more. In which words the kernel is told is in `device_values`.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Collection
from pathlib import Path

from training_runtime.host.sandbox import device_program, device_values
from training_runtime.host.sandbox.cgroup_values import Version

_OWN_LIST = "a group around this one has a list of devices of its own, in which single GPUs cannot be closed"


def build(leaf: Path, version: Version) -> None:
    """No GPU can be opened. Raises OSError, and then there is none."""
    if version == 1 and not _is_open(leaf):
        raise OSError(errno.ENOTSUP, _OWN_LIST, str(leaf / "devices.list"))
    change(leaf, version, None, frozenset())


def change(leaf: Path, version: Version, before: Collection[int] | None, opened: Collection[int]) -> None:
    """These minors can be opened, and no others; `before`: what could be until now, None where nobody knows. Raises OSError."""
    if version == 2:
        device_program.replace(leaf, device_values.program(opened))
        return
    for name, value in device_values.changes(before, opened):
        _write(leaf / name, value)


def stands(leaf: Path, version: Version) -> bool:
    """Whether a run's group, of an earlier host perhaps, was made with one."""
    try:
        return version == 1 or device_program.is_there(leaf)
    except OSError:
        return False


def tear_down(leaf: Path) -> None:
    """All devices can be opened. Raises OSError."""
    if (leaf / "devices.allow").exists():
        _write(leaf / "devices.allow", "a")
    else:
        device_program.remove(leaf)


def _is_open(leaf: Path) -> bool:
    return (leaf / "devices.list").read_text().startswith(device_values.EVERYTHING)


def _write(file: Path, value: str) -> None:
    descriptor = os.open(file, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, value.encode())
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(file)) from None
    finally:
        os.close(descriptor)
