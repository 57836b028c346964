"""Shares of the processors and of the disk by slots: what the kernel is told, and when it heeds that, with texts and folders that stand in
for it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from training_runtime.host.sandbox.cgroup_values import Controller, Disk, Version, unheeded, weights
from training_runtime.host.sandbox.disk_device import disk_of


@pytest.mark.parametrize(
    ("controller", "version", "name", "values"),
    [
        ("cpu", 2, "cpu.weight", ("25", "100", "300", "10000")),
        ("cpu", 1, "cpu.shares", ("256", "1024", "3072", "262144")),
        ("io", 2, "io.weight", ("25", "100", "300", "10000")),
        ("io", 2, "io.bfq.weight", ("2", "8", "24", "1000")),
        ("io", 1, "blkio.bfq.weight", ("2", "8", "24", "1000")),
        ("io", 1, "blkio.weight", ("10", "40", "120", "1000")),
    ],
)
def test_a_share_follows_the_slots_within_what_the_kernel_takes(
    controller: Controller, version: Version, name: str, values: tuple[str, ...]
) -> None:
    assert tuple(dict(weights(slots, controller, version))[name] for slots in (0, 1, 3, 5000)) == values


def test_memory_and_processes_have_no_share() -> None:
    assert weights(3, "memory", 1) == weights(3, "pids", 2) == ()


BFQ, COST = "blkio.bfq.weight", "io.weight"


@pytest.mark.parametrize(
    ("disk", "files", "problem"),
    [
        (Disk("bfq"), (BFQ,), ""),
        (Disk("bfq"), (COST, "io.bfq.weight"), ""),
        (Disk("none", cost=True), (COST,), ""),
        (Disk("cfq"), ("blkio.weight",), ""),
        (Disk("none", cost=True), (BFQ,), "its scheduler is none, which heeds no weights; bfq does"),
        (Disk("mq-deadline"), (BFQ, COST), "its scheduler is mq-deadline, which heeds no weights; bfq does"),
        (Disk("bfq"), (COST,), "its scheduler is bfq, for which this kernel has no weights of groups"),
        (Disk(), (BFQ,), "it is none whose scheduler the kernel tells"),
    ],
)
def test_weights_that_no_disk_heeds_are_said_to_change_nothing(disk: Disk, files: tuple[str, ...], problem: str) -> None:
    assert unheeded(disk, files) == problem


def a_disk(devices: Path, name: str, device: str, scheduler: str) -> Path:
    disk = devices / "disks" / name
    (disk / "queue").mkdir(parents=True)
    (disk / "queue/scheduler").write_text(scheduler)
    (disk / "dev").write_text(f"{device}\n")
    return disk


def test_the_disk_of_a_folder_is_found_behind_partitions_and_volumes(tmp_path: Path) -> None:
    number = tmp_path.stat().st_dev
    device = tmp_path / f"{os.major(number)}:{os.minor(number)}"
    mountinfo = f"36 31 {device.name} / / rw - btrfs /dev/none rw"
    assert disk_of(tmp_path, mountinfo, "", tmp_path) == Disk()  # of the network, or of memory
    slow = a_disk(tmp_path, "sda", "8:0", "none [mq-deadline] kyber bfq\n")
    fast = a_disk(tmp_path, "sdb", "8:16", "none mq-deadline kyber [bfq]\n")
    (slow / "sda1").mkdir()
    (slow / "sda1/partition").write_text("1\n")
    volume = a_disk(tmp_path, "dm-0", "252:0", "none\n")
    for target, costs, expected in (
        (slow, "", Disk("mq-deadline")),
        (fast, "", Disk("bfq")),
        (slow / "sda1", "8:16 enable=1 ctrl=auto\n8:0 enable=0 ctrl=auto\n", Disk("mq-deadline")),
        (slow / "sda1", "8:0 enable=1 ctrl=auto\n", Disk("mq-deadline", cost=True)),
    ):
        device.unlink(missing_ok=True)
        device.symlink_to(target)
        assert disk_of(tmp_path, mountinfo, costs, tmp_path) == expected
    device.unlink()
    device.symlink_to(volume)
    (volume / "slaves").mkdir()
    (volume / "slaves/sdb").symlink_to(fast)
    assert disk_of(tmp_path, mountinfo, "", tmp_path) == Disk("bfq")
    (volume / "slaves/sda1").symlink_to(slow / "sda1")
    assert disk_of(tmp_path, mountinfo, "", tmp_path) == Disk("mq-deadline")
