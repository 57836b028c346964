"""Who has the memory of a GPU: tables of what its driver says and what is told."""

from __future__ import annotations

import pytest

from training_runtime.gpu_memory import MOST_HOLDERS, GpuMemoryHolder, GpuProcess, crowding, holders

GIB = 1 << 30


@pytest.mark.parametrize(
    ("processes", "told"),
    [
        ([], []),
        ([GpuProcess(11, 2 * GIB), GpuProcess(12, 3 * GIB)], [GpuMemoryHolder(5 * GIB, run=7)]),
        ([GpuProcess(11, GIB), GpuProcess(21, 4 * GIB)], [GpuMemoryHolder(4 * GIB, run=8), GpuMemoryHolder(GIB, run=7)]),
        ([GpuProcess(31, GIB)], [GpuMemoryHolder(GIB, pid=31, name="python3")]),
        ([GpuProcess(90, GIB), GpuProcess(91, GIB)], [GpuMemoryHolder(2 * GIB)]),
        ([GpuProcess(11, None), GpuProcess(31, 0)], []),
    ],
    ids=["nobody", "a run's workers together", "two runs", "no run's", "not seen from here", "the driver does not say how much"],
)
def test_processes_are_told_as_runs_and_strangers_those_with_most_first(processes: list[GpuProcess], told: list[GpuMemoryHolder]) -> None:
    assert list(holders(processes, {11: 7, 12: 7, 21: 8}, {11: "pt_worker", 12: "pt_worker", 21: "python", 31: "python3"})) == told


def test_a_crowd_is_told_as_those_who_have_most() -> None:
    found = holders([GpuProcess(pid, pid * GIB) for pid in range(1, 40)], {}, {pid: "x" for pid in range(1, 40)})
    assert [each.pid for each in found] == list(range(39, 39 - MOST_HOLDERS, -1))


def test_who_else_has_memory_is_one_sentence_and_a_run_alone_has_none() -> None:
    found = (GpuMemoryHolder(40 * GIB, run=12), GpuMemoryHolder(22 * GIB, pid=4711, name="python3"), GpuMemoryHolder(GIB, run=7))
    assert crowding(3, found, own=7, device_bytes=80 * GIB) == (
        "Of the 80.0 GiB of GPU 3's memory run 12 had 40.0 GiB, python3 (process 4711, no run's) had 22.0 GiB when last looked at."
    )
    assert crowding(0, found[2:], own=7, device_bytes=80 * GIB) == ""
    unseen = "Of GPU 0's memory processes that this machine does not see had 1.0 GiB when last looked at."
    assert crowding(0, (GpuMemoryHolder(GIB),), own=7, device_bytes=None) == unseen
