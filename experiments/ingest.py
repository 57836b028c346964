"""Journal lines into the database, exactly once: rows and cursor in one transaction. The only writer of metrics, generations, events, progress.

Lines come from a process that runs user code; they have been parsed, but their content is still bounded here (lengths, number of curves).
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

from training_runtime.journal import Batch


@dataclass(frozen=True)
class Recorded:
    """Whether the batch was taken (False: its offset is not the cursor, somebody else was faster), and what was new in it."""

    taken: bool
    lines: int = 0
    points: int = 0


def record(run_id: int, batch: Batch, *, now: dt.datetime) -> Recorded:
    """Store a batch that begins where the cursor stands."""
    raise NotImplementedError


def catch_up(run_id: int, *, now: dt.datetime) -> int:
    """Read the run's journal from the cursor to its end; the number of lines taken. Harmless when two do it at once."""
    raise NotImplementedError


def catch_up_all(now: dt.datetime) -> int:
    """`catch_up` for each live run, and for those that ended a short time ago."""
    raise NotImplementedError
