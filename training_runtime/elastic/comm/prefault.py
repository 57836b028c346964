"""Brings gradient rows into a worker's page tables before it needs them.

A process that first writes into shared memory pays for every page of it: filling 68 MB took 359 ms then and 70 to 100 ms the next time. A
change of members gives a worker other engines, so other rows; without this it would pay in the first step, while everybody waits. A read of
one byte maps 16 pages that somebody has allocated already, so most of it can be done in passing, a little after each unit.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator

import torch

from training_runtime.elastic.comm.segment import SUM_ROW, Segment

_AROUND = 16 * 4096  # what the kernel maps at once (its default)
_PIECE = 2 << 20
_SHARE = 0.02  # of the time of a step
_AGAIN_S = 1.0


class Prefault:
    """One worker's view of the rows of `segment`."""

    def __init__(self, segment: Segment) -> None:
        self._segment, self._fd, self._first = segment, segment.fd, segment.layout.offsets["rows"]
        self._size = (segment.layout.engines + 1) * segment.layout.row_bytes
        self._memory = segment.tensor("rows", torch.uint8, self._size)
        self._walk: Iterator[None] = self._allocated()
        self._done_at = 0.0

    def some(self, step_s: float) -> None:
        """A little of it, after a step that took so long."""
        now = time.monotonic()
        if self._done_at and now < self._done_at + _AGAIN_S:
            return
        end = now + _SHARE * step_s
        while time.monotonic() < end:
            if next(self._walk, self) is self:
                self._walk, self._done_at = self._allocated(), time.monotonic()
                return
        self._done_at = 0.0

    def _allocated(self) -> Iterator[None]:
        """Map what others have allocated since the start of the walk, a piece each time."""
        at = 0
        while at < self._size:
            try:
                at = os.lseek(self._fd, self._first + at, os.SEEK_DATA) - self._first
            except OSError:  # nothing from here on
                return
            if at < self._size:
                self._memory[at : at + _PIECE : _AROUND].sum()
                at += _PIECE
                yield

    def allocate(self, rows: Iterable[int]) -> None:
        """All of some rows and of the sum, by a newcomer, before anybody waits for it."""
        for row in sorted({SUM_ROW, *rows}):
            for flat in self._segment.layout.flat_buffers:
                self._segment.flat_buffer(row, flat).view(torch.uint8)[::4096].sum()

    @staticmethod
    def warm_heap(parameters: Iterable[torch.Tensor]) -> None:
        """The memory in which the first backward pass will make its gradients: two large ones are there at a time."""
        largest = max((p.numel() * p.element_size() for p in parameters if p.device.type == "cpu"), default=0)
        rooms = [torch.empty(largest, dtype=torch.uint8) for _ in range(2)]
        for room in rooms:
            room.zero_()
