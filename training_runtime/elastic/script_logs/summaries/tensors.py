"""A tensor of an event file (tensorboard/compat/proto/tensor.proto): its numbers, or its strings and where they stand. Pure."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from training_runtime.elastic.script_logs.summaries import wire
from training_runtime.elastic.script_logs.summaries.wire import Field

_FLOAT, _DOUBLE, _INT32, _STRING, _INT64 = 1, 2, 3, 7, 9
_PACKED = {_FLOAT: "<f", _DOUBLE: "<d", _INT32: "<i", _INT64: "<q"}
_VALUES_OF = {5: _FLOAT, 6: _DOUBLE, 7: _INT32, 10: _INT64}  # the fields that hold numbers, and of which type
_STRINGS, _CONTENT, _SHAPE, _DTYPE = 8, 4, 2, 1
MOST_NUMBERS_BYTES = 64 << 10  # a histogram of some 2,500 buckets
MOST_STRINGS = 64


@dataclass(frozen=True)
class Piece:
    """A string, and where it begins in what was read."""

    data: bytes
    at: int


@dataclass
class Tensor:
    shape: list[int] = field(default_factory=list)
    numbers: list[float] = field(default_factory=list)
    strings: list[Piece] = field(default_factory=list)


def read(message: bytes, at: int) -> Tensor:
    """Of a tensor that begins at `at`; one of too many numbers or strings has none."""
    dtype, content, found = 0, b"", Tensor()
    for each in wire.fields(message):
        if (each.number, each.kind) == (_DTYPE, wire.VARINT):
            dtype = each.whole
        elif (each.number, each.kind) == (_SHAPE, wire.BYTES):
            found.shape = _shape(each.data)
        elif (each.number, each.kind) == (_CONTENT, wire.BYTES):
            content = each.data
        elif (each.number, each.kind) == (_STRINGS, wire.BYTES) and len(found.strings) < MOST_STRINGS:
            found.strings.append(Piece(each.data, at + each.at))
        elif each.number in _VALUES_OF and len(each.data) <= MOST_NUMBERS_BYTES:
            found.numbers += _numbers(each, _VALUES_OF[each.number])
    if dtype in _PACKED and 0 < len(content) <= MOST_NUMBERS_BYTES and len(content) % struct.calcsize(_PACKED[dtype]) == 0:
        found.numbers = [value for (value,) in struct.iter_unpack(_PACKED[dtype], content)]
    return found


def _shape(message: bytes) -> list[int]:
    """The sizes of its dimensions."""
    found = []
    for each in wire.fields(message):
        if (each.number, each.kind) == (2, wire.BYTES):
            found += [wire.signed(one.whole) for one in wire.fields(each.data) if (one.number, one.kind) == (1, wire.VARINT)]
    return found


def _numbers(each: Field, dtype: int) -> list[float]:
    """Of one field: a number by itself, or some packed one after the other."""
    if dtype in (_INT32, _INT64):
        whole = [each.whole] if each.kind == wire.VARINT else list(wire.varints(each.data))
        return [float(wire.signed(one)) for one in whole]
    if each.kind == wire.VARINT:
        return []
    return [value for (value,) in struct.iter_unpack(_PACKED[dtype], each.data)]
