"""What may take longer than any step, and is no hang: a worker says so while it lasts (the word EXCUSED, which `hang_detector` reads)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TypeVar

from training_runtime import storage
from training_runtime.elastic.comm.segment import EXCUSED, WAITS, Segment
from training_runtime.elastic.worker import heartbeat

T = TypeVar("T")


@contextmanager
def excused(segment: Segment, worker_id: int, how: int = 1) -> Iterator[None]:
    """What happens inside may take longer than any step: no hang. `how`: WAITS where it may take as long as it likes."""
    segment.set(worker_id, EXCUSED, how)
    try:
        yield
    finally:
        segment.set(worker_id, EXCUSED, 0)


def until_written(write: Callable[[], T], *, excused: Callable[[int], AbstractContextManager[None]], say: Callable[[str], None]) -> T:
    """What `write` returns, tried again while the storage takes nothing: a full disk costs time and not the training. What it wrote
    before stays as it is, since files are replaced as a whole. Also while it tries again it counts as waiting: whoever looks once a
    second may see nothing but tries."""
    said = False
    while True:
        try:
            with excused(WAITS if said else 1):
                return write()
        except OSError as error:
            if error.errno not in storage.UNAVAILABLE:
                raise
            if not said:
                say(f"The state of the training cannot be written now ({error.strerror}): it waits and tries again by itself.")
            said = True
        with excused(WAITS):
            time.sleep(storage.RETRY_S)
            heartbeat.beat()  # it does what it can
