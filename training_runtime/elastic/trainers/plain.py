"""What objects of a script have in plain attributes, as JSON and arrays that come back as they were: numbers, texts, None, and lists,
tuples, dictionaries and numpy arrays of them. Nothing else is kept; nothing is pickled.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import numpy as np

MOST_BYTES = 16 << 20  # of one array of a data set: what is larger are the data themselves
MOST_ITEMS = 10_000  # of one of its lists, but for one of integers


class NotPlainError(TypeError):
    """It is more than numbers and texts."""


def encode(value: Any, arrays: list[Any], most_bytes: int | None = None) -> Any:
    """For json.dumps; its arrays are added to `arrays`. NotPlainError where it cannot be said so."""
    if value is None or type(value) in (bool, int, float, str):
        return value
    if type(value) is list:
        if most_bytes is not None and len(value) > MOST_ITEMS:
            arrays.append(_integers(value))
            return {"integers": len(arrays) - 1}
        return [encode(each, arrays, most_bytes) for each in value]
    if type(value) is tuple:
        return {"tuple": [encode(each, arrays, most_bytes) for each in value]}
    if type(value) is dict:
        return {"dict": [[encode(key, arrays, most_bytes), encode(each, arrays, most_bytes)] for key, each in value.items()]}
    is_array = isinstance(value, np.generic | np.ndarray) and value.dtype.kind in "biufcUS"
    if is_array and (most_bytes is None or value.nbytes <= most_bytes):
        arrays.append(np.asarray(value))
        return {"array" if isinstance(value, np.ndarray) else "number": len(arrays) - 1}
    raise NotPlainError(type(value).__name__)


def _integers(values: list[Any]) -> Any:
    """The order of samples, say, of which there may be millions."""
    if not all(type(each) is int and abs(each) < 1 << 62 for each in values):
        raise NotPlainError("list")
    return np.array(values, np.int64)


def decode(value: Any, arrays: list[Any]) -> Any:
    if isinstance(value, list):
        return [decode(each, arrays) for each in value]
    if not isinstance(value, dict):
        return value
    ((kind, inner),) = value.items()
    if kind == "dict":
        return {decode(key, arrays): decode(each, arrays) for key, each in inner}
    if kind == "tuple":
        return tuple(decode(each, arrays) for each in inner)
    if kind == "integers":
        return arrays[inner].tolist()
    return arrays[inner].copy() if kind == "array" else arrays[inner][()]


def digests(one: Any, most_bytes: int | None = None) -> dict[str, str]:
    """Of its plain attributes, by which a later look sees what has changed."""
    return {name: _digest(value, arrays) for name, (value, arrays) in _attributes(one, most_bytes).items()}


def changes(one: Any, before: Mapping[str, str], most_bytes: int | None = None) -> dict[str, Any]:
    """Copies of its plain attributes that are not as they were."""
    return {
        name: decode(value, arrays)
        for name, (value, arrays) in _attributes(one, most_bytes).items()
        if before.get(name) != _digest(value, arrays)
    }


def _attributes(one: Any, most_bytes: int | None) -> dict[str, tuple[Any, list[Any]]]:
    read = dict[str, tuple[Any, list[Any]]]()
    for name, value in list(getattr(one, "__dict__", {}).items()):
        arrays = list[Any]()
        with suppress(NotPlainError, RuntimeError, ValueError):
            read[name] = (encode(value, arrays, most_bytes), arrays)
    return read


def _digest(value: Any, arrays: list[Any]) -> str:
    digest = hashlib.blake2b(json.dumps(value).encode())
    for each in arrays:
        digest.update(f"{each.dtype} {each.shape}".encode())
        digest.update(each.tobytes())
    return digest.hexdigest()
