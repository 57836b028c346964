"""Errors of GPUs as NVIDIA's library tells them, asked of one that stands in for it: functions of its names that fill in its structures."""

from __future__ import annotations

import ctypes
from collections import deque
from typing import Any

from tests import cast
from training_runtime.gpu_health import GpuHealth
from training_runtime.host.meter.gpu_errors import LOOK_S, GpuErrors
from training_runtime.protocol import Observation, decode, encode

NO_SUPPORT, TIMEOUT = 3, 10  # nvmlReturn_t
HANDLES = {0: ctypes.c_void_p(0x1000), 1: ctypes.c_void_p(0x2000)}


class Library:
    """`errors`: uncorrected, by handle; one that is missing does not count them. `xids`: (handle, Xid) that are still to be told."""

    def __init__(self, *, events: bool = True) -> None:
        self.errors: dict[int | None, int] = {}
        self.xids: deque[tuple[int, int]] = deque()
        self.registered: list[int | None] = []
        self.asked = 0
        self._events = events

    def nvmlDeviceGetTotalEccErrors(self, handle: ctypes.c_void_p, kind: int, counter: int, count: Any) -> int:
        assert (kind, counter) == (1, 0), "uncorrected, since the driver was loaded"
        self.asked += 1
        if handle.value not in self.errors:
            return NO_SUPPORT
        count._obj.value = self.errors[handle.value]
        return 0

    def nvmlEventSetCreate(self, events: Any) -> int:
        events._obj.value = 0x77
        return 0 if self._events else NO_SUPPORT

    def nvmlDeviceRegisterEvents(self, handle: ctypes.c_void_p, kinds: ctypes.c_ulonglong, events: ctypes.c_void_p) -> int:
        assert (kinds.value, events.value) == (8, 0x77)
        self.registered.append(handle.value)
        return 0

    def nvmlEventSetWait_v2(self, events: ctypes.c_void_p, event: Any, timeout_ms: int) -> int:
        assert (events.value, timeout_ms) == (0x77, 0), "the loop waits for nothing"
        if not self.xids:
            return TIMEOUT
        event._obj.device, event._obj.data = self.xids.popleft()
        return 0


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_errors_of_memory_and_xids_are_told_by_gpu() -> None:
    library, clock = Library(), Clock()
    errors = GpuErrors(library, HANDLES, clock=clock)
    assert library.registered == [0x1000, 0x2000]
    assert errors.look() == (), "it counts none, and has heard of none"
    library.errors[0x1000] = 2
    library.xids.extend([(0x2000, 31), (0x2000, 79), (0x9999, 79), (0x2000, 13)])
    assert errors.look() == (), "not so soon again"
    clock.now += LOOK_S
    assert errors.look() == (GpuHealth(0, 2), GpuHealth(1, None, 79, 0.0)), "31 and 13 come from programs"
    clock.now += LOOK_S
    assert errors.look()[1] == GpuHealth(1, None, 79, LOOK_S)


def test_a_driver_that_tells_of_no_events_still_tells_of_errors() -> None:
    library = Library(events=False)
    library.errors = {0x1000: 0, 0x2000: 1}
    library.xids.append((0x1000, 79))
    assert GpuErrors(library, HANDLES).look() == (GpuHealth(0, 0), GpuHealth(1, 1))
    assert library.registered == []


def test_a_machine_without_gpus_asks_nothing() -> None:
    library = Library()
    assert GpuErrors(library, {}).look() == ()
    assert library.asked == 0


def test_it_travels_with_what_the_host_sees() -> None:
    seen = Observation(revision=1, node=cast.facts(gpus=2), runs=(), gpus=(GpuHealth(1, 3, 79, 2.5),))
    assert decode(encode(seen)) == seen
