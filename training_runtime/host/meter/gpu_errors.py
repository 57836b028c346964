"""Errors of GPUs, asked of NVIDIA's management library: uncorrected ECC errors, and Xids as events. Decides nothing."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

from training_runtime.gpu_health import HARDWARE_XIDS, GpuHealth
from training_runtime.host.meter.nvml import answer, is_same

log = logging.getLogger(__name__)
LOOK_S = 5.0
MOST_EVENTS = 100  # in one look


class GpuErrors:
    """`handles`: what the library calls the GPUs, by their numbers. What it cannot tell is left out."""

    def __init__(self, nvml: Any, handles: Mapping[int, Any], *, clock: Callable[[], float] = time.monotonic) -> None:
        self._nvml, self._handles, self._clock = nvml, handles, clock
        self._xids: dict[int, tuple[int, float]] = {}  # by the GPU's number: the last one, and when
        self._looked, self._errors = -LOOK_S, dict[int, int | None]()
        self._events = answer(nvml, "nvmlEventSetCreate") if handles else None
        for index, handle in handles.items() if self._events is not None else ():
            try:
                nvml.nvmlDeviceRegisterEvents(handle, nvml.nvmlEventTypeXidCriticalError, self._events)
            except nvml.NVMLError as error:
                log.info("Xids of GPU %d cannot be heard of: %s", index, error)

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

    def _uncorrected(self, handle: Any) -> int | None:
        """Since the driver was loaded."""
        kind, since = self._nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, self._nvml.NVML_VOLATILE_ECC
        count = answer(self._nvml, "nvmlDeviceGetTotalEccErrors", handle, kind, since)
        return None if count is None else int(count)

    def _poll(self, now: float) -> None:
        for _ in range(MOST_EVENTS if self._events is not None else 0):
            event = answer(self._nvml, "nvmlEventSetWait_v2", self._events, 0)
            if event is None:
                return  # none any more
            index = next((index for index, handle in self._handles.items() if is_same(handle, event.device)), None)
            if index is not None:
                log.warning("GPU %d: Xid %d", index, event.eventData)
                if event.eventData in HARDWARE_XIDS:
                    self._xids[index] = (int(event.eventData), now)
