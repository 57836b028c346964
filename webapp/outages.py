"""Keeps a database or broker that is away from flooding the logs: one line a minute and process, instead of a traceback for every request
and task that met it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from django.db.utils import InterfaceError, OperationalError
from kombu.exceptions import OperationalError as BrokerError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeout

EVERY_S = 60.0
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
        what = next((what for kind, what in AWAY.items() if isinstance(error, kind)), None)
        if what is None:
            return True
        now = self._clock()
        with self._lock:
            if now - self._said_at.get(what, -EVERY_S) < EVERY_S:
                self._left_out[what] = self._left_out.get(what, 0) + 1
                return False
            self._said_at[what] = now
            missed = self._left_out.pop(what, 0)
        why = str(error).strip().splitlines()
        more = f" ({missed} more like it were left out)" if missed else ""
        first = record.getMessage().strip().splitlines()
        record.msg = f"The {what} does not answer{more}: {why[0] if why else type(error).__name__} [{first[0] if first else ''}]"
        record.args, record.exc_info, record.exc_text = (), None, None
        return True
