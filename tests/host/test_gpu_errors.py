"""Errors of GPUs, and how busy they are, as NVIDIA's library tells it: asked of one that stands in for it."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest

from tests import cast
from tests.host import nvml
from training_runtime.gpu_health import GpuHealth
from training_runtime.gpu_memory import GpuProcess
from training_runtime.host.meter.gpu_errors import LOOK_S, GpuErrors
from training_runtime.host.meter.utilization import GpuUse, nvidia
from training_runtime.protocol import Observation, decode, encode

HANDLES = {0: nvml.handle_at(0x1000), 1: nvml.handle_at(0x2000)}


class Library:
    """`errors`: uncorrected, by handle; one that is missing does not count them. `xids`: (handle, Xid) that are still to be told."""

    def __init__(self, *, events: bool = True) -> None:
        self.errors: dict[int | None, int] = {}
        self.xids: deque[tuple[int, int]] = deque()
        self.registered: list[int | None] = []
        self.asked = 0
        self._events = events

    def nvmlDeviceGetTotalEccErrors(self, handle: Any, kind: Any, counter: Any, count: Any) -> int:
        assert (kind.value, counter.value) == (1, 0), "uncorrected, since the driver was loaded"
        self.asked += 1
        if nvml.address_of(handle) not in self.errors:
            return nvml.NO_SUPPORT
        count._obj.value = self.errors[nvml.address_of(handle)]
        return nvml.OK

    def nvmlEventSetCreate(self, _events: Any) -> int:
        return nvml.OK if self._events else nvml.NO_SUPPORT

    def nvmlDeviceRegisterEvents(self, handle: Any, kinds: Any, _events: Any) -> int:
        assert kinds.value == 8
        self.registered.append(nvml.address_of(handle))
        return nvml.OK

    def nvmlEventSetWait_v2(self, _events: Any, event: Any, timeout_ms: Any) -> int:
        assert timeout_ms.value == 0, "the loop waits for nothing"
        if not self.xids:
            return nvml.TIMEOUT
        address, event._obj.eventData = self.xids.popleft()
        event._obj.device = nvml.handle_at(address)
        return nvml.OK


class Whole(Library):
    """Of a machine with two GPUs: that of minor number 3, and one that is lost."""

    def nvmlInitWithFlags(self, _flags: int) -> int:
        return nvml.OK

    def nvmlDeviceGetCount_v2(self, count: Any) -> int:
        count._obj.value = 2
        return nvml.OK

    def nvmlDeviceGetHandleByIndex_v2(self, index: Any, handle: Any) -> int:
        handle._obj.contents = HANDLES[0].contents
        return nvml.OK if index.value == 0 else nvml.NO_SUPPORT

    def nvmlDeviceGetMinorNumber(self, _handle: Any, number: Any) -> int:
        number._obj.value = 3
        return nvml.OK

    def nvmlDeviceGetUtilizationRates(self, _handle: Any, rates: Any) -> int:
        rates._obj.gpu = 40
        return nvml.OK

    def nvmlDeviceGetMemoryInfo(self, _handle: Any, memory: Any) -> int:
        memory._obj.total, memory._obj.used = 80, 60
        return nvml.OK

    def nvmlDeviceGetComputeRunningProcesses_v3(self, _handle: Any, count: Any, infos: Any) -> int:
        room, count._obj.value = count._obj.value, 1
        if room:
            infos[0].pid, infos[0].usedGpuMemory = 12, 50
        return nvml.OK if room else nvml.INSUFFICIENT_SIZE


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_errors_of_memory_and_xids_are_told_by_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    library, clock = Library(), Clock()
    errors = GpuErrors(nvml.bound(library, monkeypatch), HANDLES, clock=clock)
    assert library.registered == [0x1000, 0x2000]
    assert errors.look() == (), "it counts none, and has heard of none"
    library.errors[0x1000] = 2
    library.xids.extend([(0x2000, 31), (0x2000, 79), (0x9999, 79), (0x2000, 13)])
    assert errors.look() == (), "not so soon again"
    clock.now += LOOK_S
    assert errors.look() == (GpuHealth(0, 2), GpuHealth(1, None, 79, 0.0)), "31 and 13 come from programs"
    clock.now += LOOK_S
    assert errors.look()[1] == GpuHealth(1, None, 79, LOOK_S)


def test_a_driver_that_tells_of_no_events_still_tells_of_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    library = Library(events=False)
    library.errors = {0x1000: 0, 0x2000: 1}
    library.xids.append((0x1000, 79))
    assert GpuErrors(nvml.bound(library, monkeypatch), HANDLES).look() == (GpuHealth(0, 0), GpuHealth(1, 1))
    assert library.registered == []


def test_a_machine_without_gpus_asks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    library = Library()
    assert GpuErrors(nvml.bound(library, monkeypatch), {}).look() == ()
    assert library.asked == 0


def test_gpus_are_known_by_their_minor_numbers_and_one_that_is_lost_takes_no_other_along(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml.bound(Whole(), monkeypatch)
    use, health = nvidia()
    assert use(3) == GpuUse(0.4, 60, 80, (GpuProcess(12, 50),))
    assert use(0) is None
    assert health() == ()


def test_a_machine_without_a_driver_tells_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_library(name: str) -> None:
        raise OSError(name)

    monkeypatch.setattr(nvml.bound(None, monkeypatch), "CDLL", no_library)
    use, health = nvidia()
    assert use(0) is None
    assert health() == ()


def test_it_travels_with_what_the_host_sees() -> None:
    seen = Observation(revision=1, node=cast.facts(gpus=2), runs=(), gpus=(GpuHealth(1, 3, 79, 2.5),))
    assert decode(encode(seen)) == seen
