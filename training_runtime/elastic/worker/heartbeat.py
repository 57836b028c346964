"""The heartbeat of a worker: a word in shared memory that moves with every engine of a step, every batch of a validation and every piece of
state that is written or read. The driver looks at it (`hang_detector`), and whoever gives a worker time to write its state counts from its
last beat.

One a process, like the worker itself; in a process that is no worker nothing happens.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from typing import IO, Any

from training_runtime.elastic.comm.segment import BEAT, Segment

PIECE_BYTES = 16 << 20  # moved between two beats: a second's worth on a slow disk

_own: tuple[int, Segment, int] | None = None  # the process, and where its word is
_aside = threading.local()


def begin(segment: Segment, worker_id: int) -> None:
    """This process is the worker with this id."""
    global _own
    _own = os.getpid(), segment, worker_id


def beat() -> None:
    """Something has been done. What was forked from a worker (a loader) has no part in its heartbeat, and neither has a thread that does
    something aside."""
    if (moved := getattr(_aside, "moved", None)) is not None:
        moved()
    elif _own is not None and _own[0] == os.getpid():
        _, segment, worker_id = _own
        segment.set(worker_id, BEAT, segment.get(worker_id, BEAT) + 1)


def aside(moved: Callable[[], None]) -> None:
    """What this thread does is not what its worker is waited for: `moved` is called instead of a beat."""
    _aside.moved = moved


def pieces(data: memoryview) -> Iterator[memoryview]:
    """`data` in parts of PIECE_BYTES, with a beat after each has been used."""
    for at in range(0, len(data), PIECE_BYTES):
        yield data[at : at + PIECE_BYTES]
        beat()


class Beating:
    """A binary file for writing in which every PIECE_BYTES are a beat, when they are on the disk: what only waits in the page cache would
    all be written by the fsync at the end, which may take minutes and shows nothing."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self._unsynced = file, 0

    def write(self, data: Any) -> int:
        whole = memoryview(data).cast("B")
        for piece in pieces(whole):
            self._file.write(piece)
            self._unsynced += len(piece)
            if self._unsynced >= PIECE_BYTES:
                self._file.flush()
                os.fdatasync(self._file.fileno())
                self._unsynced = 0
        return len(whole)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)
