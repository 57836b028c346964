"""Has weights that torch.save wrote made into safetensors, by a boxed child (`experiments.boxed.statedict`): nothing is unpickled here."""

from __future__ import annotations

import os
from typing import BinaryIO

from experiments.boxed import pool, strict
from training_runtime.errors import ProtocolError

MEMORY_BYTES = 1 << 30  # of addresses; tensors pass through in pieces
MOST_BYTES = 200 << 30
LONGEST_SENTENCE = 2000
FEW = 100


class NotConverted(Exception):
    """The end of a sentence: why there is no safetensors of it."""


def as_safetensors(source: BinaryIO, into: BinaryIO) -> list[str]:
    """Writes it to an empty open file; the names (some of many) of what is no tensor and was left out. Raises NotConverted, and OSError for
    a full disk."""
    size = os.fstat(source.fileno()).st_size
    if size > MOST_BYTES:
        raise NotConverted("it is too large")
    cpu_s = 30 + size // (100 << 20)
    limits = pool.Limits(cpu_s=cpu_s, memory_bytes=MEMORY_BYTES, file_bytes=2 * size + (64 << 20))
    try:
        files = (source.fileno(), into.fileno())
        answer = pool.ask("safetensors", {}, limits=limits, wall_s=30.0 + 2 * cpu_s, lane=pool.UPLOADS, files=files)
        said = answer if isinstance(answer, dict) else {}
        if refused := strict.text(said.get("refused"), most=LONGEST_SENTENCE):
            raise NotConverted(refused)
        return strict.texts(said.get("left"), most=FEW)
    except pool.Unreadable as problem:
        raise NotConverted(str(problem)) from None
    except ProtocolError:
        raise NotConverted(pool.BROKEN) from None
