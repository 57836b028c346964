"""Which disk a folder lies on, and who orders what is asked of it: from what the kernel tells below /sys (its sysfs-block).

Nothing is tried: weights of control groups change the order of what waits for a disk, and nobody who only asks can see that.
"""

from __future__ import annotations

import os
from pathlib import Path

from training_runtime.host.sandbox.cgroup_values import Disk, mounted_from, scheduler, weighs_cost

_DEVICES = Path("/sys/dev/block")


def disk_of(folder: Path, mountinfo: str, costs: str, devices: Path = _DEVICES) -> Disk:
    """`mountinfo`: of this process; `costs`: io.cost.qos of the highest control group. An empty one for a file system of the network or of
    memory. Of several disks behind one, that which heeds least."""
    found = [_look(device, costs) for device in _disks(devices / _device(folder, mountinfo))]
    return min(found, key=lambda disk: (disk.cost, disk.scheduler == "bfq"), default=Disk())


def _device(folder: Path, mountinfo: str) -> str:
    number = folder.stat().st_dev
    if os.major(number):
        return _words(number)
    source = Path(mounted_from(mountinfo, _words(number)))  # of a file system such as btrfs, which has a number of its own
    return _words(source.stat().st_rdev) if source.is_block_device() else "none"


def _words(number: int) -> str:
    return f"{os.major(number)}:{os.minor(number)}"


def _disks(device: Path) -> list[Path]:
    if not device.exists():
        return []
    below = list((device / "slaves").glob("*"))
    if below:
        return [disk for entry in below for disk in _disks(entry.resolve())]
    device = device.resolve()
    return [device.parent if (device / "partition").exists() else device]


def _look(disk: Path, costs: str) -> Disk:
    return Disk(scheduler(_read(disk / "queue/scheduler")), weighs_cost(costs, _read(disk / "dev").strip()))


def _read(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:
        return ""
