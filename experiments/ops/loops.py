"""Threads that do one thing again and again in a Celery worker, whatever goes wrong. They know nothing of what is done.

Intervals are measured with the monotonic clock: a step of the wall clock neither stops nor hurries them.
"""

from __future__ import annotations

import abc
import logging
import threading
import time

from django.db import close_old_connections, connection
from django.db.utils import Error as DatabaseError

from training_runtime.errors import HostUnavailable

log = logging.getLogger(__name__)
LONGEST_PAUSE_S = 30.0
running: list[Loop] = []  # those of this process, for its watchdog
OUTAGES = (HostUnavailable, DatabaseError, OSError)  # a sentence says it all; anything else is logged with its traceback


class Loop(threading.Thread, abc.ABC):
    """Calls `turn` every `every_s` seconds until `end` is called, less often while it fails, and at once after `wake`.

    A failure is logged when it begins, when it becomes another and when it is over. `turned_at`: when a turn last ended, whatever came of
    it (monotonic); a watchdog reads it.
    """

    def __init__(self, name: str, *, every_s: float) -> None:
        super().__init__(name=name, daemon=True)
        self.every_s = every_s
        self.turned_at = time.monotonic()
        self._ending = False
        self._woken = threading.Event()
        self._failing = ""

    @abc.abstractmethod
    def turn(self) -> None:
        """One turn. May raise anything."""

    def wake(self) -> None:
        """The next turn comes at once. Safe from any thread."""
        self._woken.set()

    def end(self) -> None:
        """No further turn. Safe from any thread."""
        self._ending = True
        self._woken.set()

    def run(self) -> None:
        failures = 0
        self.turned_at = time.monotonic()
        running.append(self)
        while not self._ending:
            self._woken.clear()
            failures = 0 if self._try() else failures + 1
            self.turned_at = time.monotonic()
            self._woken.wait(min(LONGEST_PAUSE_S, self.every_s * 2.0 ** min(failures, 8)))
        running.remove(self)
        connection.close()

    def _try(self) -> bool:
        try:
            close_old_connections()
            self.turn()
        except OUTAGES as error:
            self._note(str(error).strip() or type(error).__name__)
        except Exception as error:  # the edge of the thread: a row nobody thought of
            if self._note(repr(error)):
                log.exception("%s failed and is tried again.", self.name)
        else:
            if self._failing:
                log.info("%s works again.", self.name)
            self._failing = ""
            return True
        finally:
            close_old_connections()
        return False

    def _note(self, problem: str) -> bool:
        """Whether this is news."""
        news = problem != self._failing
        if news:
            log.warning("%s: %s", self.name, problem)
        self._failing = problem
        return news
