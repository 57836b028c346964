"""NVIDIA's binding of its management library, with a library that stands in for the driver's: an object whose methods have the names of
nvml.h, and fill in the binding's own structures."""

from __future__ import annotations

import ctypes
from typing import Any

import pynvml
import pytest

OK, NO_SUPPORT, NO_PERMISSION, INSUFFICIENT_SIZE, TIMEOUT = 0, 3, 4, 7, 10  # nvmlReturn_t
NOT_AVAILABLE = 2**64 - 1


def handle_at(address: int) -> Any:
    """As the library gives them out."""
    return ctypes.cast(address, pynvml.c_nvmlDevice_t)


def address_of(handle: Any) -> int | None:
    return ctypes.cast(handle, ctypes.c_void_p).value


def bound(library: object, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The binding, for one test."""
    monkeypatch.setattr(pynvml, "nvmlLib", library)
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    return pynvml
