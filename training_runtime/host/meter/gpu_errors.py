"""Errors of GPUs, asked of NVIDIA's management library (NVML): uncorrected ECC errors, and Xids as events. Decides nothing.

Names and numbers are those of nvml.h. It was not seen on a GPU yet.
"""

from __future__ import annotations

import ctypes
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

from training_runtime.gpu_health import HARDWARE_XIDS, GpuHealth

log = logging.getLogger(__name__)
LOOK_S = 5.0
MOST_EVENTS = 100  # in one look
_UNCORRECTED, _VOLATILE = 1, 0  # NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_VOLATILE_ECC: since the driver was loaded
_XID = 0x8  # nvmlEventTypeXidCriticalError


class Event(ctypes.Structure):
    """nvmlEventData_t. `data` is the Xid."""

    _fields_ = [
        ("device", ctypes.c_void_p),
        ("type", ctypes.c_ulonglong),
        ("data", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    ]


class GpuErrors:
    """`handles`: of the library's devices, by the GPU's number. What the library cannot tell is left out."""

    def __init__(self, library: Any, handles: Mapping[int, ctypes.c_void_p], *, clock: Callable[[], float] = time.monotonic) -> None:
        self._library, self._handles, self._clock = library, handles, clock
        self._xids: dict[int, tuple[int, float]] = {}  # by the GPU's number: the last one, and when
        self._looked, self._errors = -LOOK_S, dict[int, int | None]()
        self._events = ctypes.c_void_p()
        self._listens = bool(handles) and not library.nvmlEventSetCreate(ctypes.byref(self._events))
        for index, handle in handles.items():
            if self._listens and library.nvmlDeviceRegisterEvents(handle, ctypes.c_ulonglong(_XID), self._events):
                log.info("Xids of GPU %d cannot be heard of", index)

    def look(self) -> tuple[GpuHealth, ...]:
        """Those that the library says something of. Waits for nothing."""
        now = self._clock()
        if now >= self._looked + LOOK_S:
            self._looked = now
            self._errors = {index: self._uncorrected(handle) for index, handle in self._handles.items()}
            self._poll(now)
        found = []
        for index, errors in self._errors.items():
            xid, at = self._xids.get(index, (0, now))
            if errors is not None or xid:
                found.append(GpuHealth(index, errors, xid, round(now - at, 1)))
        return tuple(found)

    def _uncorrected(self, handle: ctypes.c_void_p) -> int | None:
        count = ctypes.c_ulonglong()
        failed = self._library.nvmlDeviceGetTotalEccErrors(handle, _UNCORRECTED, _VOLATILE, ctypes.byref(count))
        return None if failed else int(count.value)

    def _poll(self, now: float) -> None:
        for _ in range(MOST_EVENTS if self._listens else 0):
            event = Event()
            if self._library.nvmlEventSetWait_v2(self._events, ctypes.byref(event), 0):
                return  # none any more
            index = next((index for index, handle in self._handles.items() if handle.value == event.device), None)
            if index is not None:
                log.warning("GPU %d: Xid %d", index, event.data)
                if event.data in HARDWARE_XIDS:
                    self._xids[index] = (int(event.data), now)
