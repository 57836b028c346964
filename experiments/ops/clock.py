"""The one clock that stored times are compared with: the database's. Machines whose own clocks differ agree on it.

Whoever writes a time that another machine will compare with its own, or compares one, asks here. Durations within one process are measured
with the monotonic clock instead.

A clock may be wrong, and be put right. What would be lost for good if it were removed too early is removed only while `is_steady`.
"""

from __future__ import annotations

import datetime as dt
import logging
import threading
import time
from dataclasses import dataclass

from django.db import connection
from django.utils import timezone

log = logging.getLogger(__name__)
JUMP_S = 3600.0
WAIT_S = 24 * 3600.0  # in which somebody may notice, and put it right


def now() -> dt.datetime:
    """The time by the database's clock. SQLite is a file: its clock is this machine's, and every process of the studio is on it."""
    if connection.vendor == "sqlite":
        return timezone.now()
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        found: dt.datetime = cursor.fetchone()[0]
    return found


@dataclass
class Steadiness:
    """Of the clock beside the machine's own counter, which nobody puts forward or back and which goes on while the machine sleeps.
    `ahead_s`: by how much the clock is ahead of it; `jumped_at`: of the counter, while the clock is elsewhere than it was."""

    ahead_s: float
    jumped_at: float | None = None

    def holds(self, now: dt.datetime, counter: float) -> bool:
        """Not for a day after the clock was put forward or back by more than an hour, unless it is where it was again."""
        ahead_s = now.timestamp() - counter
        if abs(ahead_s - self.ahead_s) <= JUMP_S:
            self.ahead_s, self.jumped_at = ahead_s, None
            return True
        if self.jumped_at is None:
            self.jumped_at = counter
            log.warning("The clock was put to %s. Nothing is removed for its age for a day, or until it is put back.", now)
        if counter - self.jumped_at < WAIT_S:
            return False
        self.ahead_s, self.jumped_at = ahead_s, None
        return True


_lock = threading.Lock()
_seen: list[Steadiness] = []  # of this process, since it asked first


def is_steady(now: dt.datetime) -> bool:
    counter = time.clock_gettime(time.CLOCK_BOOTTIME)
    with _lock:
        if not _seen:
            _seen.append(Steadiness(now.timestamp() - counter))
        return _seen[0].holds(now, counter)
