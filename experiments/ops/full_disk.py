"""Whether something failed since a disk of the studio takes nothing more, and what whoever asked for it is told.

The disk is that of EDT_HOME or of the database, which may be the same: a file says so by OSError, SQLite and PostgreSQL in their own words.
Each interface asks here before it says that something broke (`experiments.api.problems`, `experiments.wmla.answers`,
`experiments.mlflow.views`, `experiments.views.errors`). No model is imported: the log's filter asks as well.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

from training_runtime import storage

STATUS = 507
FULL = "The studio's disk is full, so this was not done: delete data or runs that nobody needs, or ask an administrator. Then try again."
CLOSED = "The studio's disk cannot be written to at the moment, so this was not done: tell an administrator, and try again."
# https://www.sqlite.org/rescode.html; the lowest byte says which kind it is.
SQLITE_FULL = sqlite3.SQLITE_FULL
SQLITE_CLOSED = (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN)
POSTGRESQL_FULL, POSTGRESQL_IO_ERROR = "53100", "58030"


def says(error: BaseException | None) -> str:
    """The sentence for whoever asked for what has failed with `error`; empty where no disk is the cause."""
    return next(filter(None, map(_says, _chain(error))), "")


def status_of(refusal: BaseException) -> int:
    """Of HTTP, of what is refused with a sentence of its own: 507 where the disk is the cause, else 400."""
    return STATUS if says(refusal) else 400


def _says(error: BaseException) -> str:
    if isinstance(error, sqlite3.Error):
        kind = getattr(error, "sqlite_errorcode", 0) & 0xFF
        return FULL if kind == SQLITE_FULL else CLOSED if kind in SQLITE_CLOSED else ""
    if isinstance(error, OSError):
        return FULL if error.errno in storage.FULL else CLOSED if error.errno in storage.UNAVAILABLE else ""
    return {POSTGRESQL_FULL: FULL, POSTGRESQL_IO_ERROR: CLOSED}.get(str(getattr(error, "sqlstate", "")), "")


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """And what it comes from: Django raises an error of its own for each of the database's."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__
