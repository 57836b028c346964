"""Whose memory of a GPU is: NVIDIA's library is one that stands in for it, the processes are real."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.studio import wait_until
from tests.host import nvml
from training_runtime.gpu_memory import GpuMemoryHolder, GpuProcess
from training_runtime.host import processes
from training_runtime.host.meter import gpu_processes
from training_runtime.host.meter.gpu_processes import holders_of, processes_on
from training_runtime.host.meter.utilization import GpuUse, Meter
from training_runtime.host.runs.live import LiveRun
from training_runtime.protocol import SlotRef, Worker

GIB = 1 << 30
HANDLE = nvml.handle_at(0x1000)


class Library:
    """`found`: (pid, bytes) on HANDLE. As the real one it says how many there are where they have no room, and gives none."""

    def __init__(self, *found: tuple[int, int], failure: int = nvml.OK) -> None:
        self._found, self._failure = found, failure

    def nvmlDeviceGetComputeRunningProcesses_v3(self, handle: Any, count: Any, infos: Any) -> int:
        assert handle is HANDLE
        room, count._obj.value = count._obj.value, len(self._found)
        if self._failure or room < len(self._found):
            return self._failure or nvml.INSUFFICIENT_SIZE
        for info, (pid, size) in zip(infos or (), self._found, strict=False):
            info.pid, info.usedGpuMemory = pid, size
        return nvml.OK


@pytest.mark.parametrize("count", [0, 2, 300])
def test_the_library_lists_processes_and_what_they_have_however_many_they_are(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    found = [(4711 + i, 3 * GIB if i else nvml.NOT_AVAILABLE) for i in range(count)]
    told = processes_on(nvml.bound(Library(*found), monkeypatch), HANDLE)
    assert told == tuple(GpuProcess(pid, None if size == nvml.NOT_AVAILABLE else size) for pid, size in found)


@pytest.mark.parametrize("library", [Library((1, 1), failure=nvml.NO_PERMISSION), object()], ids=["it refuses", "it is too old to tell"])
def test_a_library_that_does_not_tell_says_nothing(library: object, monkeypatch: pytest.MonkeyPatch) -> None:
    assert processes_on(nvml.bound(library, monkeypatch), HANDLE) == ()


@pytest.fixture
def gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that stands in for the device that processes of a GPU have open."""
    device = tmp_path / "nvidia0"
    device.touch()
    monkeypatch.setattr(gpu_processes, "DEVICES", str(tmp_path / "nvidia"))
    return device


Start = Callable[..., subprocess.Popen[bytes]]
CHILD = "import subprocess, sys; subprocess.run(['sleep', '60'], stdin=open(sys.argv[1]))"


@pytest.fixture
def start() -> Iterator[Start]:
    """`start(command...)`: in a session of its own; killed with its children at the end."""
    made: list[subprocess.Popen[bytes]] = []

    def start(*command: str, **named: Any) -> subprocess.Popen[bytes]:
        made.append(subprocess.Popen(command, start_new_session=True, **named))
        return made[-1]

    yield start
    for process in made:
        os.killpg(process.pid, 9)
        process.wait()


def child_of(parent: int, *, name: str) -> int:
    """Once it is the program of that name: it has its descriptors then."""

    def found() -> list[int]:
        children = [process.pid for process in processes.table().values() if process.parent == parent]
        return [pid for pid in children if processes.name(pid) == name]

    return wait_until(found, "its child")[0]


def test_memory_is_that_of_the_run_whose_process_has_it_and_a_stranger_has_a_name(gpu: Path, start: Start, tmp_path: Path) -> None:
    driver = start(sys.executable, "-c", CHILD, str(gpu))
    worker = child_of(driver.pid, name="sleep")
    with open(gpu) as device:
        stranger = start("sleep", "60", stdin=device)
    without = start("sleep", "60")
    run = LiveRun(7, 1, str(tmp_path / "run"), pid=driver.pid)
    waiting = LiveRun(8, 1, str(tmp_path / "other"))  # not begun: it has no process
    found = [GpuProcess(worker, 5 * GIB), GpuProcess(stranger.pid, 4 * GIB), GpuProcess(without.pid, 2 * GIB), GpuProcess(1 << 22, GIB)]
    assert holders_of(found, [waiting, run]) == (
        GpuMemoryHolder(5 * GIB, run=7),
        GpuMemoryHolder(4 * GIB, pid=stranger.pid, name="sleep"),
        GpuMemoryHolder(3 * GIB),
    ), "a number that the driver means is not that of the process here which has no GPU open"


def test_a_slot_says_who_has_its_gpu_and_a_run_that_fails_who_else_had_it(gpu: Path, start: Start, tmp_path: Path) -> None:
    with open(gpu) as device:
        worker, stranger = start("sleep", "60", stdin=device), start("sleep", "60", stdin=device)
    run = LiveRun(7, 1, str(tmp_path / "run"), pid=worker.pid, members=(SlotRef(3, "here", 0, "gpu"),))
    facts = processes.look(worker.pid)
    assert facts is not None
    run.workers[Worker(3, worker.pid, facts.start_ticks)] = -1
    both = (GpuProcess(worker.pid, GIB), GpuProcess(stranger.pid, 70 * GIB))
    run.crowding[2] = "Of a GPU that it has left."
    Meter({0: GpuUse(0.5, 71 * GIB, 80 * GIB, both)}.get).sample([run])
    (slot,) = run.observation().slots or ()
    assert slot.holders == (GpuMemoryHolder(70 * GIB, pid=stranger.pid, name="sleep"), GpuMemoryHolder(GIB, run=7))
    assert run.observation().crowding == ""
    run.workers.clear()
    run.phase, run.exit_code = "ended", 1
    words = f"Of the 80.0 GiB of GPU 0's memory sleep (process {stranger.pid}, no run's) had 70.0 GiB when last looked at."
    assert run.observation().crowding == words
    run.crowding[1] = ""  # nobody else had any of another
    assert run.observation().crowding == words
    run.exit_code = 0
    assert run.observation().crowding == ""
