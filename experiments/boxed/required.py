"""What code requires, as a boxed child has read it from its requirements.txt or pyproject.toml."""

from __future__ import annotations

import os
from pathlib import Path

from django.conf import settings

from experiments.boxed import pool, strict
from training_runtime.environments import requirements
from training_runtime.environments.requirements import Line, Refused
from training_runtime.errors import ProtocolError
from training_runtime.records import build

LIMITS = pool.Limits(cpu_s=5, memory_bytes=512 << 20)
WALL_S = 20.0
MOST_LINES = requirements.MOST_BYTES // 2
LONGEST_LINE, LONGEST_SENTENCE = 8000, 4000
UNREADABLE = "{} could not be read: {}. Name the packages that the script imports, a line each."


def read(path: str, *, folder: Path | None = None, text: str | None = None) -> tuple[Line, ...]:
    """The lines of the file at `path` in the folder of the code, or of `text`, which then goes by that name. Raises Refused."""
    said = {"path": path, "text": text, "addresses": settings.EDT_ENVIRONMENT_ADDRESSES}
    at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC) if folder is not None else None
    try:
        answer = pool.ask("requirements", said, limits=LIMITS, wall_s=WALL_S, folder=(at, "read") if at is not None else None)
        return _believed(answer)
    except pool.Unreadable as problem:
        raise Refused(UNREADABLE.format(path, problem)) from None
    except (ProtocolError, OSError):
        raise Refused(UNREADABLE.format(path, pool.BROKEN)) from None
    finally:
        if at is not None:
            os.close(at)


def _believed(answer: object) -> tuple[Line, ...]:
    said = answer if isinstance(answer, dict) else {}
    if refusal := strict.text(said.get("refused"), most=LONGEST_SENTENCE):
        raise Refused(refusal)
    lines = tuple(build(Line, each) for each in strict.items(said.get("lines"), MOST_LINES))
    for line in lines:  # each is stored as a line, and read as one again
        if len(line.text) > LONGEST_LINE or any(not each.isprintable() for each in (line.text, line.name, line.file)):
            raise ProtocolError("it is no line of a requirements file")
    return lines
