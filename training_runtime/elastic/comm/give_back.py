"""Gives memory of the run's memfds back to the kernel that nothing needs any more: as holes, a piece after each unit, because freeing
137 MB at once takes 10 ms, in which everybody would wait at the next barrier.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from training_runtime.elastic import tree
from training_runtime.elastic.comm.segment import FIRST_ROW, STATE_ROOM, Segment

_KEEP_SIZE, _PUNCH_HOLE = 1, 2  # of fallocate(2)
_PAGE = 4096
_PIECE = 2 << 20
_SHARE = 0.02  # of the time of a step
ROWS_REST_S = 60.0


@dataclass(frozen=True)
class _Owed:
    """Bytes `start` to `stop` of memfd `fd`, not before `after` (of a clock that only goes forward)."""

    fd: int
    start: int
    stop: int
    after: float


@lru_cache(maxsize=1)
def _fallocate() -> Any:
    call = ctypes.CDLL(None, use_errno=True).fallocate
    call.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    return call


def punch(fd: int, start: int, length: int) -> None:
    """What is there reads as zeros from now on, and takes no memory."""
    if _fallocate()(fd, _KEEP_SIZE | _PUNCH_HOLE, start, length) != 0:
        raise OSError(ctypes.get_errno(), "fallocate")


class GiveBack:
    """What the worker `worker_id` is to give back, as one of its machine's. `state_fd`: the memfd that a state went through. `engines`: the
    numbers of engines that steps of this run may have."""

    def __init__(self, segment: Segment, worker_id: int, state_fd: int, engines: Collection[int]) -> None:
        self._segment, self._worker_id, self._state_fd, self._engines = segment, worker_id, state_fd, engines
        self._owed: deque[_Owed] = deque()
        self._number = 0

    def begin(self, number: int, members: Sequence[int]) -> None:
        """Their generation `number` has begun, and all of them have what was handed over. The first of each machine gives back; rows, and
        banks of an optimizer, only after a while, because who has left may soon come back."""
        self._number, layout = number, self._segment.layout
        local = [worker_id for worker_id in members if layout.machine(worker_id) == layout.machine(self._worker_id)]
        if self._worker_id == min(local):
            first = FIRST_ROW + max(tree.rows_needed(len(members), engines) for engines in self._engines)
            start = layout.offsets["rows"] + first * layout.row_bytes
            held = -(-os.fstat(self._state_fd).st_size // _PAGE) * _PAGE  # of a page that is not given back as a whole all stays
            self._owed.append(_Owed(self._state_fd, 0, held, 0.0))
            after = time.monotonic() + ROWS_REST_S
            self._owed.append(_Owed(self._segment.fd, start, layout.offsets["end"], after))
            if len(local) == 1:  # no step is shared out
                self._owed.append(_Owed(self._segment.fd, layout.offsets["state"], layout.offsets["rows"], after))

    def forget(self) -> None:
        """Somebody may need it again."""
        self._owed.clear()

    def some(self, step_s: float) -> None:
        """A little of it, after a step that took so long."""
        now = time.monotonic()
        if self._segment.words[STATE_ROOM] == self._number:  # a newcomer needs the same pages again
            self._owed = deque(owed for owed in self._owed if owed.fd != self._state_fd)
        while self._owed and self._owed[0].after <= now:
            owed = self._owed.popleft()
            if (rest := _first_piece(owed)) is not None:
                self._owed.appendleft(rest)
            if time.monotonic() > now + _SHARE * step_s:
                return


def _first_piece(owed: _Owed) -> _Owed | None:
    """Give it back; what is left."""
    try:
        start = max(owed.start, os.lseek(owed.fd, owed.start, os.SEEK_DATA))
    except OSError:  # nothing from here on
        return None
    if start >= owed.stop:
        return None
    stop = min(start + _PIECE, owed.stop)
    punch(owed.fd, start, stop - start)
    return replace(owed, start=stop)
