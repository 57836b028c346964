"""Shared memory that a process reads at one address, while what is to be read there goes from one place to another.

Reading takes no memory of its own: the pages are those that all processes have in common. What a process writes there is its own and
nobody else's, a page at a time (mmap(2), MAP_PRIVATE), until it is shown something else. So code that knows nothing of this may write to
it, and tensors in it stay where they are.
"""

from __future__ import annotations

import ctypes
import mmap
from functools import lru_cache
from typing import Any

import torch

_FIXED, _NORESERVE = 0x10, 0x4000  # of mmap(2); on x86-64 and ARM alike
_NONE, _FAILED = 0, ctypes.c_void_p(-1).value
_POPULATE_READ = 22  # of madvise(2)
PAGE = mmap.PAGESIZE


@lru_cache(maxsize=2)
def _call(name: str, result: Any, *arguments: Any) -> Any:
    call = getattr(ctypes.CDLL(None, use_errno=True), name)
    call.restype, call.argtypes = result, arguments
    return call


def _map(address: int | None, size: int, protection: int, flags: int, fd: int, offset: int) -> int:
    numbers = ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int64
    call = _call("mmap", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, *numbers)
    found: int | None = call(address, size, protection, mmap.MAP_PRIVATE | flags, fd, offset)
    if found == _FAILED or found is None:
        raise OSError(ctypes.get_errno(), "mmap")
    return found


class PrivateView:
    """Room for up to `size` bytes of memfd `fd`, for as long as this process lives: tensors in it may outlive whoever made it. Nothing
    may be read there before `show`."""

    def __init__(self, fd: int, size: int) -> None:
        self._fd, self._size, self._shown = fd, size, 0
        self._address = _map(None, size, _NONE, mmap.MAP_ANONYMOUS | _NORESERVE, -1, 0)
        self._room = (ctypes.c_uint8 * size).from_address(self._address)

    def tensor(self, dtype: torch.dtype, count: int, offset: int) -> torch.Tensor:
        """A flat tensor at byte `offset`, with a storage of its own."""
        return torch.frombuffer(self._room, dtype=dtype, count=count, offset=offset) if count else torch.empty(0, dtype=dtype)

    def show(self, offset: int, length: int, *, read: bool = False) -> None:
        """From now on the first `length` bytes are those that the memfd has from `offset` on, both a whole number of pages. They may not
        change there while they are shown. `read`: all of it will be. OSError where the kernel has no room for it: then nothing has
        changed."""
        assert length <= self._size
        if length:
            _map(self._address, length, mmap.PROT_READ | mmap.PROT_WRITE, _FIXED, self._fd, offset)
        if length and read:  # at once, which takes two thirds of the time; a kernel before 5.14 does not know it, and maps what is read
            _call("madvise", ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)(self._address, length, _POPULATE_READ)
        self._shown = length

    def detach(self) -> None:
        """What is there is this process's own from now on, whatever becomes of the memfd."""
        if self._shown:
            a_byte_of_each = self.tensor(torch.uint8, self._shown, 0)[::PAGE]
            a_byte_of_each.copy_(a_byte_of_each.clone())
