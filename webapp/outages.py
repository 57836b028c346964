"""Keeps a database or broker that is away, and a full disk, from flooding the logs: one line a minute and process, instead of a traceback
for every request and task that met it.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable
from typing import TextIO

from django.db.utils import InterfaceError, OperationalError
from kombu.exceptions import OperationalError as BrokerError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeout

from experiments.ops import full_disk

EVERY_S = 60.0
DISK = "disk"
AWAY = {
    InterfaceError: "database",
    OperationalError: "database",
    BrokerError: "broker",
    RedisConnectionError: "broker",
    RedisTimeout: "broker",
}


class Outages(logging.Filter):
    """Lets the first record of an outage through without its traceback, and the next a minute later with how many were left out."""

    def __init__(self, name: str = "", clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(name)
        self._clock = clock
        self._lock = threading.Lock()
        self._said_at: dict[str, float] = {}
        self._left_out: dict[str, int] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if isinstance(record.exc_info, tuple) else None
        if (what := _missing(record, error)) is None:
            return True
        now = self._clock()
        with self._lock:
            if now - self._said_at.get(what, -EVERY_S) < EVERY_S:
                self._left_out[what] = self._left_out.get(what, 0) + 1
                return False
            self._said_at[what] = now
            missed = self._left_out.pop(what, 0)
        why = str(error or "").strip().splitlines()
        more = f" ({missed} more like it were left out)" if missed else ""
        first = record.getMessage().strip().splitlines()
        problem = "takes nothing more" if what == DISK else "does not answer"
        cause = f"{why[0] if why else type(error).__name__} " if error is not None else ""
        record.msg = f"The {what} {problem}{more}: {cause}[{first[0] if first else ''}]"
        record.args, record.exc_info, record.exc_text = (), None, None
        return True


class Stderr(logging.StreamHandler[TextIO]):
    """To the process's log, which may lie on the disk that is full: there is nowhere to say so then."""

    def __init__(self) -> None:
        super().__init__(sys.stderr)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  (logging's own name)
        if not full_disk.says(sys.exception()):
            super().handleError(record)


def _missing(record: logging.LogRecord, error: BaseException | None) -> str | None:
    """What is not there; None for any other record. Django has a second one, without the error, for an answer that was given to it."""
    if full_disk.says(error) or getattr(record, "status_code", None) == full_disk.STATUS:
        return DISK
    return next((what for kind, what in AWAY.items() if isinstance(error, kind)), None)
