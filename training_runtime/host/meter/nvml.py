"""NVIDIA's management library (NVML), which comes with the driver, through NVIDIA's own binding of it.

The binding is a module of functions with the names of nvml.h, here always called `nvml`; they raise NVMLError.
"""

from __future__ import annotations

import ctypes
from typing import Any


def open_library() -> tuple[Any, dict[int, Any]]:
    """The binding, and what it calls each GPU, by the GPU's minor number, as in `node_facts`. OSError where there is no library, or one
    that cannot speak to the driver."""
    try:
        import pynvml as nvml  # here: it is as large as all else that a host loads, and most machines have no GPU
    except ImportError as error:
        raise OSError(str(error)) from error
    try:
        nvml.nvmlInit()
        count = nvml.nvmlDeviceGetCount()
    except nvml.NVMLError as error:
        raise OSError(f"NVIDIA's management library: {error}") from error
    handles = [answer(nvml, "nvmlDeviceGetHandleByIndex", index) for index in range(count)]  # None for one that is lost
    numbers = [(answer(nvml, "nvmlDeviceGetMinorNumber", handle), handle) for handle in handles if handle is not None]
    return nvml, {int(number): handle for number, handle in numbers if number is not None}


def answer(nvml: Any, function: str, *arguments: Any) -> Any:
    """What the library says; None where it cannot tell, or is too old to know the question."""
    try:
        return getattr(nvml, function)(*arguments)
    except (nvml.NVMLError, nvml.NVMLLibraryMismatchError):
        return None


def is_same(one: Any, other: Any) -> bool:
    """Whether two handles are of one GPU."""
    return bool(ctypes.cast(one, ctypes.c_void_p).value == ctypes.cast(other, ctypes.c_void_p).value)
