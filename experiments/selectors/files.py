"""A run's own files for its page: listing, logs, downloads. User code writes there: no link is ever followed, no path leaves it."""

from __future__ import annotations

import datetime as dt
import os
import re
from dataclasses import dataclass
from typing import BinaryIO

from experiments.files import filetree, runfiles
from experiments.files.store import copies
from experiments.logs.following import whole_characters
from experiments.models import Slot, Tombstone, TrainingRun
from experiments.selectors import previews
from training_runtime import journal

EARLIEST, LATEST = (dt.datetime(year, 1, 1, tzinfo=dt.UTC).timestamp() for year in (1980, 2107))
MOST_PICTURES = 12
ON_THEIR_WAY = "The files of this run are missing here, and are being brought back from the object store."
MOST_PICTURE_BYTES = 2 << 20  # of one that is shown beside others


@dataclass(frozen=True)
class RunFile(filetree.File):
    """A regular file of the run. `role`: "model", "checkpoint", "log", "journal" or "other", by the folder that it is in alone."""

    role: str


@dataclass(frozen=True)
class LogTail:
    """Part of a log: its text, the byte offset where it begins and ends, and the size of the file. Ask again from `end` to go on."""

    text: str
    begin: int
    end: int
    size_bytes: int


@dataclass(frozen=True)
class Listed:
    """The files of a run as far as they can be listed; why some may be missing, in sentences."""

    files: list[RunFile]
    missing: list[str]


def listed(run: TrainingRun, *, limit: int = 1000) -> Listed:
    """Regular files below the run's folder, by path and number (2 before 10), at most `limit`. Empty while there is no folder."""
    found = runfiles.walk(run, limit=limit)
    if not found.files and copies.is_on() and not runfiles.folder(run).is_dir() and copies.has_begun(run):
        try:
            copies.missing(Tombstone.Kind.RUN, run.folder)
        except copies.NotHere:
            return Listed([], [ON_THEIR_WAY])
    named = [RunFile(one.path, filetree.kind_of(one.path), one.size_bytes, moment(one.modified), _role(one.path)) for one in found.files]
    missing = [f"Only {len(named):,} files are listed: there are more files or folders than a listing looks at."] if found.more else []
    if found.unnameable:
        missing.append(f"{found.unnameable:,} files have line breaks or control characters in their names, and are not listed.")
    return Listed(sorted(named, key=lambda one: _by_number(one.path)), missing)


def files(run: TrainingRun, *, limit: int = 1000) -> list[RunFile]:
    return listed(run, limit=limit).files


def open_file(run: TrainingRun, path: str) -> tuple[BinaryIO, int]:
    """(open file, size in bytes) for a path of `files`. Raises FileNotFoundError for anything else: links, devices, ways out."""
    file = os.fdopen(runfiles.open_regular(run, path), "rb")
    return file, os.fstat(file.fileno()).st_size


def pictures(run: TrainingRun, found: list[RunFile]) -> list[RunFile]:
    """Those of the files that are pictures and not large, the latest first, at most MOST_PICTURES."""
    named = [file for file in found if file.path.lower().endswith((".png", ".jpg", ".jpeg", ".gif", ".webp"))]
    latest = sorted((file for file in named if file.size_bytes <= MOST_PICTURE_BYTES), key=lambda file: file.modified_at, reverse=True)
    return [file for file in latest[: 2 * MOST_PICTURES] if _is_picture(run, file.path)][:MOST_PICTURES]


def log_names(run: TrainingRun) -> list[str]:
    """Names of the run's logs: "driver" first, then those of its remote agents on other machines, then "worker-0", ..."""
    return runfiles.log_names(run)


def log_places(run: TrainingRun) -> dict[str, str]:
    """On which machine each worker is or was that has a log, by the log's name; nothing where that was always the same one. A worker's log
    has its slot's number."""
    held = Slot.objects.filter(grants__run=run).distinct().values_list("pk", "node__name")
    found = {f"worker-{slot}": name for slot, name in held}
    return found if len(set(found.values())) > 1 else {}


def log_tail(run: TrainingRun, name: str, *, offset: int | None = None, lines: int = 200, limit_bytes: int = 256 * 1024) -> LogTail:
    """The last `lines` of a log, or what stands from `offset` on, at most `limit_bytes`, in whole characters: the rest of one is at `end`.
    A log that is not there yet is empty."""
    path = f"log/{name}/console.log"
    if offset is not None:
        data, size = runfiles.read(run, path, begin=max(0, offset), limit_bytes=limit_bytes)
        begin, data = min(max(0, offset), size), whole_characters(data) or data
        return LogTail(_text(data), begin, begin + len(data), size)
    _, size = runfiles.read(run, path, begin=0, limit_bytes=0)
    begin = max(0, size - limit_bytes)
    data, size = runfiles.read(run, path, begin=begin, limit_bytes=limit_bytes)
    data = whole_characters(data) or data
    end = begin + len(data)
    kept = data.split(b"\n")  # what stands behind the last end of a line is the last one, which may be empty
    kept = (kept[1:] if begin and len(kept) > 1 else kept)[-lines - (not kept[-1]) :] if lines > 0 else []  # the first may be cut in two
    shown = b"\n".join(kept)
    return LogTail(_text(shown), end - len(shown), end, size)


def moment(t: float) -> dt.datetime:
    """When a file was written, as its owner says: anything that the file system takes, brought to where zips and calendars agree."""
    return dt.datetime.fromtimestamp(min(max(t, EARLIEST), LATEST), dt.UTC)


def _by_number(path: str) -> tuple[str | int, ...]:
    """What to sort paths by: its text and its numbers, by turns."""
    return tuple(int(part) if place % 2 else part for place, part in enumerate(re.split("([0-9]+)", path)))


def _role(path: str) -> str:
    top, _, rest = path.partition("/")
    roles = {"model": "model", "checkpoint": "checkpoint", "log": "log"}
    return roles.get(top, "other") if rest else ("journal" if path == journal.FILE_NAME else "other")


def _text(data: bytes) -> str:
    return data.decode(errors="replace").replace("\0", "\N{REPLACEMENT CHARACTER}")


def _is_picture(run: TrainingRun, path: str) -> bool:
    return bool(previews.picture(runfiles.read(run, path, begin=0, limit_bytes=16)[0]))
