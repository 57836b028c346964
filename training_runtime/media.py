"""Pictures, texts and histograms of a run: what its driver found in event files, listed in one small file below the results, and the kind
of journal line that says that the list has changed. Standard library only.

The list is in `FILE_NAME`, written by the driver and so by a process that runs user code: `parse` checks each field. It holds no picture
and no text, only where they stand in the event files ("pieces": offset and size), so nothing is stored twice. Histograms are in it.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import Literal

from training_runtime.errors import ProtocolError
from training_runtime.records import build

FILE_NAME = "log/media.json"
MOST_BYTES = 4 << 20  # of that file
MOST_TAGS = 100  # of a kind
MOST_ENTRIES = 10  # of a tag
MOST_PIECES = 4  # of an entry: a batch of pictures, a list of texts
MOST_PIECE_BYTES = 2 << 20
MOST_PATH = 255  # characters
BINS = 40
Kind = Literal["image", "text", "histogram"]


@dataclass(frozen=True)
class Histogram:
    """So many values in each of equal parts of `low` to `high`."""

    low: float
    high: float
    counts: tuple[float, ...]


@dataclass(frozen=True)
class Entry:
    """What a tag had at a step. `t`: Unix seconds, 0.0 where the file does not say. `file`: below the results."""

    step: int
    t: float
    file: str
    pieces: tuple[tuple[int, ...], ...] = ()
    histogram: Histogram | None = None


@dataclass(frozen=True)
class Tag:
    """Entries by step."""

    kind: Kind
    name: str
    entries: tuple[Entry, ...]


@dataclass(frozen=True)
class Listed:
    tags: tuple[Tag, ...] = ()


@dataclass(frozen=True)
class Media:
    """The list has so many tags now."""

    tags: int
    kind: Literal["media"] = "media"


def dump(tags: tuple[Tag, ...]) -> bytes:
    return json.dumps(dataclasses.asdict(Listed(tags)), separators=(",", ":"), ensure_ascii=False).encode(errors="replace")


def parse(raw: bytes) -> tuple[Tag, ...]:
    """Raises ProtocolError saying what is wrong with it."""
    try:
        found = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"not JSON: {error}") from None
    tags = build(Listed, found).tags
    if any(len(piece) != 2 for tag in tags for entry in tag.entries for piece in entry.pieces):
        raise ProtocolError("a piece is an offset and a size")
    return tags
