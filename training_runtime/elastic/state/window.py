"""The memfd through which a state goes to newcomers, as memory of a process: mapped before anybody waits for it, so that a hand-over is a
copy within memory and no call of the kernel. What is not mapped is written and read as a file.

Such a file never becomes shorter: who touches a mapped page beyond its end dies. What it held is given back as a hole (see `give_back`).
"""

from __future__ import annotations

import ctypes
import mmap
import os
import time

import torch

from training_runtime.elastic.worker import heartbeat

_PAGE = 4096
_AROUND = 16 * _PAGE  # what the kernel maps at once (its default) of pages that somebody has written
_POPULATE_WRITE = 23  # MADV_POPULATE_WRITE
_PIECE = 4 << 20
_SHARE = 0.1  # of the time of a step, while a newcomer gets ready


class Window:
    """A process's view of memfd `fd`. `ready`: bytes from its beginning that can be used without a page fault."""

    def __init__(self, fd: int) -> None:
        self.fd, self.ready = fd, 0
        self._map: mmap.mmap | None = None
        self._memory = torch.empty(0, dtype=torch.uint8)

    def make(self, size: int) -> None:
        """Have so much room in the file, as pages that exist and are ready."""
        if os.fstat(self.fd).st_size < size:
            os.ftruncate(self.fd, size)
        self._map_file(size)
        while self.ready < size:
            stop = min(self.ready + _PIECE, size)
            self._allocate(self.ready, stop)
            self.ready = stop

    def _allocate(self, start: int, stop: int) -> None:
        assert self._map is not None
        try:
            self._map.madvise(_POPULATE_WRITE, start, stop - start)
        except OSError:  # a kernel before 5.14; or no memory, which the next line says without a SIGBUS
            os.posix_fallocate(self.fd, start, stop - start)
            self._memory[start:stop:_PAGE].sum()

    def some(self, size: int, step_s: float) -> None:
        """A little of that, after a step that took so long; nothing before somebody has made room in the file."""
        if self.ready >= size or os.fstat(self.fd).st_blocks * 512 < size:
            return
        self._map_file(size)
        end = time.monotonic() + _SHARE * step_s
        while self.ready < size and time.monotonic() < end:
            stop = min(self.ready + _PIECE, size)
            self._memory[self.ready : stop : _AROUND].sum()
            self.ready = stop

    def _map_file(self, size: int) -> None:
        """Its first `size` bytes, which it must have."""
        if len(self._memory) < size:
            self._memory = torch.empty(0, dtype=torch.uint8)  # of the mapping before
            self._map, self.ready = mmap.mmap(self.fd, size), 0
            self._memory = torch.frombuffer(self._map, dtype=torch.uint8)

    def forget(self) -> None:
        """What it showed is given back."""
        self.ready = 0

    def write(self, data: memoryview, offset: int) -> int:
        """As much of `data`, which is memory that could be written, as goes to where it is ready from byte `offset` on. Bytes written."""
        count = max(0, min(len(data), self.ready - offset))
        for piece in heartbeat.pieces(data[:count]):
            ctypes.memmove(self._memory.data_ptr() + offset, _address(piece), len(piece))
            offset += len(piece)
        return count

    def read(self, into: memoryview, offset: int) -> int:
        """Fill as much of `into` as is ready from byte `offset` on. Bytes read."""
        count = max(0, min(len(into), self.ready - offset))
        for piece in heartbeat.pieces(into[:count]):
            ctypes.memmove(_address(piece), self._memory.data_ptr() + offset, len(piece))
            offset += len(piece)
        return count


def _address(memory: memoryview) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))
