"""Protobuf's wire format, as far as event files need it. Pure. Raises ValueError for what is no message, and for one of too many fields:
whatever the bytes say, the work is bounded by their number."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
MOST_FIELDS = 20_000  # of a message


@dataclass(frozen=True, slots=True)
class Field:
    """`number` of the field, `kind` on the wire; its value is `whole` for a VARINT, else `data`, which stands at `at` in the message."""

    number: int
    kind: int
    whole: int = 0
    data: bytes = b""
    at: int = 0


def fields(message: bytes) -> Iterator[Field]:
    at = count = 0
    while at < len(message):
        count += 1
        key, at = varint(message, at)
        number, kind = key >> 3, key & 7
        if kind == VARINT:
            whole, at = varint(message, at)
            yield Field(number, kind, whole=whole)
            continue
        size = {FIXED64: 8, FIXED32: 4}.get(kind)
        if kind == BYTES:
            size, at = varint(message, at)
        if size is None or at + size > len(message) or count > MOST_FIELDS:
            raise ValueError("no protobuf message")
        yield Field(number, kind, data=message[at : at + size], at=at)
        at += size


def varints(data: bytes) -> Iterator[int]:
    at = 0
    while at < len(data):
        value, at = varint(data, at)
        yield value


def varint(data: bytes, at: int) -> tuple[int, int]:
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


def signed(value: int) -> int:
    """A varint as the signed number that it stands for."""
    return value - (1 << 64) if value >> 63 else value


def text(data: bytes) -> str:
    return data.decode(errors="replace")
