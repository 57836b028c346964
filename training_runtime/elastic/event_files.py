"""TensorBoard's event files as they grow: the scalars in them. Pure: bytes in, scalars out; standard library only, since the reader is the
run's driver, which has torch and nothing else.

A file is a sequence of TFRecords (length, checksum of the length, data, checksum of the data), each an `Event` in protobuf's wire format
(tensorboard/compat/proto/event.proto, summary.proto). Whatever a file holds, nothing is raised: what cannot be read is passed over.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass

HEAD_BYTES = 12  # length and its checksum
TAIL_BYTES = 4
MOST_EVENT_BYTES = 64 << 10  # pictures, graphs and histograms are larger, or hold no scalar
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_FLOAT, _DOUBLE, _INT32, _INT64 = 1, 2, 3, 9  # of a tensor
_PACKED = {_FLOAT: "<f", _DOUBLE: "<d", _INT32: "<i", _INT64: "<q"}
_VALUES_OF = {5: _FLOAT, 6: _DOUBLE, 7: _INT32, 10: _INT64}  # a tensor's fields that hold values, and of which type
MOST_LENGTH = 1 << 40
Field = tuple[int, int, "int | bytes"]  # number, wire type, and a number or what lies in between


@dataclass(frozen=True)
class Scalar:
    """`t`: Unix seconds, 0.0 where the file does not say."""

    tag: str
    step: int
    value: float
    t: float


@dataclass(frozen=True)
class Chunk:
    """What was found, and the offset to read on from; it may lie beyond what was read, behind a large record. `broken`: what follows is no
    event file."""

    scalars: tuple[Scalar, ...]
    offset: int
    broken: bool = False


def read(data: bytes, offset: int) -> Chunk:
    """`data` is what the file has at `offset`, which is the beginning of a record. A record without an end waits for it."""
    found: list[Scalar] = []
    at = 0
    while at + HEAD_BYTES <= len(data):
        (length,) = struct.unpack_from("<Q", data, at)
        if length > MOST_LENGTH:
            return Chunk(tuple(found), offset + at, broken=True)
        end = at + HEAD_BYTES + length + TAIL_BYTES
        if length > MOST_EVENT_BYTES:
            at = end
            continue
        if end > len(data):
            break
        found += _scalars(data[at + HEAD_BYTES : end - TAIL_BYTES])
        at = end
    return Chunk(tuple(found), offset + at)


def _scalars(event: bytes) -> list[Scalar]:
    t, step, found = 0.0, 0, []
    try:
        for number, kind, value in _fields(event):
            if (number, kind) == (1, _FIXED64) and isinstance(value, bytes):
                (t,) = struct.unpack("<d", value)
            elif (number, kind) == (2, _VARINT) and isinstance(value, int):
                step = value - (1 << 64) if value >> 63 else value
            elif (number, kind) == (5, _BYTES) and isinstance(value, bytes):
                found += [_value(each) for one, _, each in _fields(value) if one == 1 and isinstance(each, bytes)]
    except (ValueError, struct.error):
        return []
    t = t if math.isfinite(t) else 0.0
    return [Scalar(tag, step, value, t) for tag, value in filter(None, found)]


def _value(summary: bytes) -> tuple[str, float] | None:
    """The name and number of one entry; None where it is no single number."""
    tag, number = "", None
    for field, kind, value in _fields(summary):
        if (field, kind) == (1, _BYTES) and isinstance(value, bytes):
            tag = value.decode(errors="replace")
        elif (field, kind) == (2, _FIXED32) and isinstance(value, bytes):
            (number,) = struct.unpack("<f", value)
        elif (field, kind) == (8, _BYTES) and isinstance(value, bytes):
            number = _single(value)
    return (tag, float(number)) if tag and number is not None else None


def _single(tensor: bytes) -> float | None:
    """The one number of a tensor, as TensorFlow 2 and Keras write scalars."""
    dtype, content, values = 0, b"", []
    for field, kind, value in _fields(tensor):
        if (field, kind) == (1, _VARINT) and isinstance(value, int):
            dtype = value
        elif (field, kind) == (4, _BYTES) and isinstance(value, bytes):
            content = value
        elif field in _VALUES_OF:
            values += _numbers(kind, value, _VALUES_OF[field])
    if content and dtype in _PACKED and len(content) == struct.calcsize(_PACKED[dtype]):
        values = [struct.unpack(_PACKED[dtype], content)[0]]
    return float(values[0]) if len(values) == 1 else None


def _numbers(kind: int, value: int | bytes, dtype: int) -> list[float]:
    """Of one field: a number by itself, or some packed one after the other."""
    if dtype in (_INT32, _INT64):
        found = [value] if isinstance(value, int) else list(_varints(value))
        return [float(each - (1 << 64) if each >> 63 else each) for each in found]
    if not isinstance(value, bytes) or kind not in (_BYTES, _FIXED32, _FIXED64):
        return []
    return [each for (each,) in struct.iter_unpack(_PACKED[dtype], value)]


def _fields(message: bytes) -> Iterator[Field]:
    """Raises ValueError where it is no message."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        number, kind = key >> 3, key & 7
        if kind == _VARINT:
            value, at = _varint(message, at)
            yield number, kind, value
            continue
        size = {_FIXED64: 8, _FIXED32: 4}.get(kind)
        if kind == _BYTES:
            size, at = _varint(message, at)
        if size is None or at + size > len(message):
            raise ValueError("no protobuf message")
        yield number, kind, message[at : at + size]
        at += size


def _varints(data: bytes) -> Iterator[int]:
    at = 0
    while at < len(data):
        value, at = _varint(data, at)
        yield value


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """The number, and where it ends."""
    value = shift = 0
    while at < len(data) and shift < 70:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & ((1 << 64) - 1), at
        shift += 7
    raise ValueError("no protobuf message")
