"""Looks at what a child answered before anybody believes it: each of these gives the value back, or raises ProtocolError. Pure.

Answers are bounded as a whole (`pool.MOST_ANSWER_BYTES`), so texts are here bounded only where a page counts on it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from typing import Any

from training_runtime.errors import ProtocolError

MOST_SENTENCES = 100


def fields(raw: object, like: type) -> dict[str, object]:
    """An object with the fields of that dataclass, and no others."""
    if not isinstance(raw, dict) or set(raw) != {each.name for each in dataclasses.fields(like)}:
        raise ProtocolError(f"it is no {like.__name__}")
    return raw


def items(raw: object, most: int, *, exactly: int | None = None) -> list[Any]:
    if not isinstance(raw, list) or len(raw) > most or (exactly is not None and len(raw) != exactly):
        raise ProtocolError("it is no list of so many")
    return raw


def texts(raw: object, *, exactly: int | None = None, most: int = MOST_SENTENCES) -> list[str]:
    found = items(raw, most if exactly is None else exactly, exactly=exactly)
    if not all(type(each) is str for each in found):
        raise ProtocolError("it is no list of texts")
    return found


def text(raw: object, *, most: int | None = None) -> str:
    if not isinstance(raw, str) or (most is not None and len(raw) > most):
        raise ProtocolError("it is no text, or too long a one")
    return raw


def one_of(raw: object, known: Collection[str]) -> str:
    if not isinstance(raw, str) or raw not in known:
        raise ProtocolError("it is none of those that are known")
    return raw


def whole(raw: object) -> int:
    """Not negative, and so large that a database could hold it."""
    if type(raw) is not int or not 0 <= raw < 1 << 63:
        raise ProtocolError("it is no whole number")
    return raw


def flag(raw: object) -> bool:
    if not isinstance(raw, bool):
        raise ProtocolError("it is neither true nor false")
    return raw
