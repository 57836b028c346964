"""A run's own files for its page: listing, logs, downloads. Its folder is written by user code: no link is ever followed, no path leaves it."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import BinaryIO

from experiments.models import TrainingRun


@dataclass(frozen=True)
class RunFile:
    """A regular file of the run; `path` is relative to its folder, with slashes. `role`: "model", "checkpoint", "log", "journal", "other"."""

    path: str
    size_bytes: int
    modified_at: dt.datetime
    role: str


@dataclass(frozen=True)
class LogTail:
    """Part of a log: its text, the byte offset where it begins and ends, and the size of the file. Ask again from `end` to go on."""

    text: str
    begin: int
    end: int
    size_bytes: int


def files(run: TrainingRun, *, limit: int = 1000) -> list[RunFile]:
    """Regular files below the run's folder, by path, at most `limit`. Empty while there is no folder."""
    raise NotImplementedError


def open_file(run: TrainingRun, path: str) -> tuple[BinaryIO, int]:
    """(open file, size in bytes) for a path of `files`. Raises FileNotFoundError for anything else: links, devices, ways out."""
    raise NotImplementedError


def log_names(run: TrainingRun) -> list[str]:
    """Names of the run's logs: "driver" first, then "worker-0", ..."""
    raise NotImplementedError


def log_tail(run: TrainingRun, name: str, *, offset: int | None = None, lines: int = 200, limit_bytes: int = 256 * 1024) -> LogTail:
    """The last `lines` of a log, or what stands from `offset` on, at most `limit_bytes`. A log that is not there yet is empty."""
    raise NotImplementedError
