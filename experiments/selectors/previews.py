"""What is shown of a file, as a boxed child has looked into it (`experiments.boxed.previews`)."""

from __future__ import annotations

from typing import BinaryIO

from experiments.boxed import pool, previews
from experiments.boxed.previews import MOST_IMAGE_BYTES, Preview, picture
from training_runtime.errors import ProtocolError

__all__ = ["MOST_IMAGE_BYTES", "Preview", "picture", "preview"]

LIMITS = pool.Limits(cpu_s=5, memory_bytes=512 << 20)
WALL_S = 15.0
UNREADABLE = "This file could not be read: {}. Download it to look into it."


def preview(file: BinaryIO, size_bytes: int, *, name: str, as_text: bool = False) -> Preview:
    """Of an open file, which is read from its start. `as_text`: not laid out. What could not be read is said instead."""
    said = {"size_bytes": size_bytes, "name": name, "as_text": as_text}
    try:
        return previews.believed(pool.ask("preview", said, files=(file.fileno(),), limits=LIMITS, wall_s=WALL_S))
    except pool.Unreadable as problem:
        return Preview(size_bytes, instead=UNREADABLE.format(problem))
    except (ProtocolError, OSError):
        return Preview(size_bytes, instead=UNREADABLE.format(pool.BROKEN))
