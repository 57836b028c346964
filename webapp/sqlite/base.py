"""Django's own backend for SQLite, with one thing more: whoever wants to write waits in a queue before the database's lock, not at it.

SQLite lets one connection write at a time and has others look again after pauses that grow to 100 ms, asleep while nobody writes. With a
handful of writers most of the time nobody did: fifty machines that report waited 10 s for what takes milliseconds, and the planner with
them. In the queue one looks every millisecond. It is a lock on a file beside the database, which ends with its process; who has waited as
long as SQLite itself would goes on without it, so the queue decides who is next and never whether the database is whole.

And a full disk does not end all writing. Changes are appended to the write-ahead log until it has a thousand pages. Where there is no room
for one, what the log has is moved into the database, so that the next writer begins at its front again: what was refused is done when it
is tried again, a deletion say.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
import time
from collections.abc import Callable
from typing import Any

from django.db.backends.sqlite3 import base
from django.db.utils import Error

PAUSE_S = 0.001
PATIENCE_S = 20.0
CHANGES = ("INSERT", "UPDATE", "DELETE", "REPLACE")


class Queue:
    """The place of one connection. `path`: says which file it is now, which is made where it is not there."""

    def __init__(self, path: Callable[[], str]) -> None:
        self._path = path
        self._fd = -1
        self._pid = 0
        self.held = False

    def enter(self) -> None:
        """Returns when it is this connection's turn, or PATIENCE_S are over."""
        end = time.monotonic() + PATIENCE_S
        try:
            descriptor = self._descriptor()
            while not self.held and time.monotonic() < end:
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    self.held = True
                except BlockingIOError:
                    time.sleep(PAUSE_S)
        except OSError:
            return  # the folder cannot be written: SQLite says it better

    def leave(self) -> None:
        if self.held and self._pid == os.getpid():
            fcntl.flock(self._fd, fcntl.LOCK_UN)
        self.held = False

    def close(self) -> None:
        self.leave()
        if self._fd >= 0 and self._pid == os.getpid():
            os.close(self._fd)
        self._fd = -1

    def _descriptor(self) -> int:
        """Of this process alone: one that a fork has left here is its parent's."""
        if self._fd < 0 or self._pid != os.getpid():
            self._fd, self._pid, self.held = os.open(self._path(), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), os.getpid(), False
        return self._fd


class DatabaseWrapper(base.DatabaseWrapper):
    """`vendor` and all else as Django's own."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.queue = Queue(lambda: f"{self.settings_dict['NAME']}-queue")  # tests give a connection another database after it was made
        self.found_no_room = False  # for a change, since the last transaction began
        self.execute_wrappers.append(self._in_turn)

    def _start_transaction_under_autocommit(self) -> None:
        if not self.is_in_memory_db():
            self.queue.enter()
        try:
            super()._start_transaction_under_autocommit()  # type: ignore[misc]
        except BaseException:
            self.queue.leave()
            raise

    def _commit(self) -> None:
        try:
            super()._commit()  # type: ignore[misc]  # one that fails is rolled back
        except Error as error:
            self._note(error)
            raise
        self.queue.leave()

    def _rollback(self) -> None:
        try:
            super()._rollback()  # type: ignore[misc]
            self._reuse_log()
        finally:
            self.queue.leave()

    def _close(self) -> None:
        try:
            super()._close()  # type: ignore[misc]
        finally:
            self.queue.close()

    def _in_turn(self, execute: Callable[..., Any], sql: str, params: Any, many: bool, context: dict[str, Any]) -> Any:
        """A change outside a transaction, which is one by itself."""
        single = not (self.in_atomic_block or self.queue.held or self.is_in_memory_db()) and sql.lstrip()[:7].upper().startswith(CHANGES)
        if single:
            self.queue.enter()
        try:
            return execute(sql, params, many, context)
        except Error as error:
            self._note(error)
            raise
        finally:
            if single:
                self._reuse_log()
                self.queue.leave()

    def _note(self, error: Exception) -> None:
        self.found_no_room |= getattr(error.__cause__, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL

    def _reuse_log(self) -> None:
        """After a change that found no room, and outside of its transaction. Waits for nobody: others read on, and it is tried again."""
        if not self.found_no_room or self.connection is None:
            return
        self.found_no_room = False
        with contextlib.suppress(sqlite3.Error):  # the disk is full for the database's file, too
            self.connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
