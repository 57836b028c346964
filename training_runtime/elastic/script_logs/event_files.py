"""TensorBoard's event files as they grow: what is in them. Pure: bytes in, findings out; standard library only, since the reader is the
run's driver, which has torch and nothing else.

A file is a sequence of TFRecords (length, checksum of the length, data, checksum of the data), each an `Event` in protobuf's wire format
(tensorboard/compat/proto/event.proto, summary.proto). Whatever a file holds, nothing is raised: what cannot be read is passed over and
counted. The work is linear in the bytes, and a record of more than MOST_EVENT_BYTES is not looked at.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass, field

from training_runtime.elastic.script_logs.summaries import histograms, hparams, tensors, wire
from training_runtime.elastic.script_logs.summaries.tensors import Piece
from training_runtime.media import MOST_PIECE_BYTES, MOST_PIECES, Histogram, Kind

HEAD_BYTES = 12  # length and its checksum
TAIL_BYTES = 4
MOST_EVENT_BYTES = MOST_PIECE_BYTES + 4096  # graphs and large pictures are larger
MOST_LENGTH = 1 << 40
_PICTURES = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff")
_TEXT_TAG = "/text_summary"  # what torch puts behind the name of a text
_PLUGINS = ("", "scalars", "images", "text", "histograms")


@dataclass(frozen=True)
class Scalar:
    """`t`: Unix seconds, 0.0 where the file does not say."""

    tag: str
    step: int
    value: float
    t: float


@dataclass(frozen=True)
class Medium:
    """A picture, a text or a histogram. `pieces`: offset in the file and size of each picture or text."""

    kind: Kind
    tag: str
    step: int
    t: float
    pieces: tuple[tuple[int, ...], ...] = ()
    histogram: Histogram | None = None


@dataclass(frozen=True)
class Chunk:
    """What was found, and the offset to read on from; it may lie beyond what was read, behind a large record. `needs`: bytes from there
    on that the next record has, 0 where that is not known. `broken`: what follows is no event file. `damaged`: records that could not be
    read; `too_large`: those that were not looked at."""

    scalars: tuple[Scalar, ...]
    offset: int
    broken: bool = False
    media: tuple[Medium, ...] = ()
    parameters: tuple[dict[str, str], ...] = ()
    needs: int = 0
    damaged: int = 0
    too_large: int = 0


@dataclass
class _ReadEvents:
    scalars: list[Scalar] = field(default_factory=list)
    media: list[Medium] = field(default_factory=list)
    parameters: list[dict[str, str]] = field(default_factory=list)


@dataclass
class _Value:
    """One value of a summary."""

    tag: str = ""
    simple: float | None = None
    picture: Piece | None = None
    histogram: Histogram | None = None
    tensor: tensors.Tensor | None = None
    plugin: str = ""
    content: bytes = b""


def read(data: bytes, offset: int) -> Chunk:
    """`data` is what the file has at `offset`, which is the beginning of a record. A record without an end waits for it."""
    found = _ReadEvents()
    at = needs = damaged = too_large = 0
    broken = False
    while at + HEAD_BYTES <= len(data):
        (length,) = struct.unpack_from("<Q", data, at)
        size = HEAD_BYTES + length + TAIL_BYTES
        if length > MOST_LENGTH:
            broken = True
            break
        if length > MOST_EVENT_BYTES:
            too_large += 1
            at += size
            continue
        if at + size > len(data):
            needs = size
            break
        try:
            _event(data[at + HEAD_BYTES : at + size - TAIL_BYTES], offset + at + HEAD_BYTES, found)
        except (ValueError, struct.error):
            damaged += 1
        at += size
    scalars, media, parameters = tuple(found.scalars), tuple(found.media), tuple(found.parameters)
    return Chunk(scalars, offset + at, broken, media, parameters, needs, damaged, too_large)


def _event(event: bytes, at: int, found: _ReadEvents) -> None:
    """What the event says, which begins at `at` in its file."""
    t, step, values = 0.0, 0, []
    for each in wire.fields(event):
        if (each.number, each.kind) == (1, wire.FIXED64):
            (t,) = struct.unpack("<d", each.data)
        elif (each.number, each.kind) == (2, wire.VARINT):
            step = wire.signed(each.whole)
        elif (each.number, each.kind) == (5, wire.BYTES):
            inside = [one for one in wire.fields(each.data) if (one.number, one.kind) == (1, wire.BYTES)]
            values += [_value(one.data, at + each.at + one.at) for one in inside]
    t = t if math.isfinite(t) else 0.0
    for value in values:
        _add_value(value, step, t, found)


def _value(message: bytes, at: int) -> _Value:
    value = _Value()
    for each in wire.fields(message):
        match each.number, each.kind:
            case (1, wire.BYTES):
                value.tag = wire.text(each.data)
            case (2, wire.FIXED32):
                (value.simple,) = struct.unpack("<f", each.data)
            case (4, wire.BYTES):
                encoded = [one for one in wire.fields(each.data) if (one.number, one.kind) == (4, wire.BYTES)]
                value.picture = Piece(encoded[-1].data, at + each.at + encoded[-1].at) if encoded else None
            case (5, wire.BYTES):
                value.histogram = histograms.of_proto(each.data)
            case (8, wire.BYTES):
                value.tensor = tensors.read(each.data, at + each.at)
            case (9, wire.BYTES):
                value.plugin, value.content = _plugin(each.data)
    return value


def _plugin(metadata: bytes) -> tuple[str, bytes]:
    """Which of TensorBoard's plugins the value is for, and what it is told."""
    name, content = "", b""
    for each in wire.fields(metadata):
        if (each.number, each.kind) == (1, wire.BYTES):
            for one in wire.fields(each.data):
                if (one.number, one.kind) == (1, wire.BYTES):
                    name = wire.text(one.data)
                elif (one.number, one.kind) == (2, wire.BYTES):
                    content = one.data
    return name, content


def _add_value(value: _Value, step: int, t: float, found: _ReadEvents) -> None:
    """A writer may name the plugin at a tag's first value only: then what it is shows by what is in it."""
    if not value.tag:
        return
    tensor = value.tensor or tensors.Tensor()
    if value.plugin == "hparams":
        found.parameters += [hparams.read(value.content)] if value.tag == hparams.TAG else []
    elif value.simple is not None or len(tensor.numbers) == 1:
        number = tensor.numbers[0] if len(tensor.numbers) == 1 else value.simple
        found.scalars.append(Scalar(value.tag, step, float(number or 0.0), t))
    elif value.plugin in _PLUGINS:
        medium = _medium(value, tensor, step, t)
        found.media += [medium] if medium is not None else []


def _medium(value: _Value, tensor: tensors.Tensor, step: int, t: float) -> Medium | None:
    pictures = [value.picture] if value.picture is not None else tensor.strings
    if shown := [each for each in pictures if each.data.startswith(_PICTURES)][:MOST_PIECES]:
        return Medium("image", value.tag, step, t, tuple((each.at, len(each.data)) for each in shown))
    histogram = value.histogram or histograms.of_tensor(tensor)
    if histogram is not None:
        return Medium("histogram", value.tag, step, t, histogram=histogram)
    if tensor.strings and value.plugin in ("", "text") and all(_is_text(each.data) for each in tensor.strings):
        places = tuple((each.at, len(each.data)) for each in tensor.strings[:MOST_PIECES])
        return Medium("text", value.tag.removesuffix(_TEXT_TAG), step, t, places)
    return None


def _is_text(data: bytes) -> bool:
    try:
        return "\0" not in data.decode()
    except UnicodeDecodeError:
        return False
