"""Logs of Weights & Biases (`wandb/offline-run-*/run-ID.wandb`) as they grow: the numbers that a script logs, and its config. Pure: bytes
in, findings out; standard library only, as `event_files`.

A file is seven bytes of head and then blocks of 32 KiB with chunks in them (LevelDB's log format): a record is one chunk or several, and a
`Record` in protobuf's wire format (wandb/proto/wandb_internal.proto). Whatever a file holds, nothing is raised: what cannot be read is
passed over and counted.
"""

from __future__ import annotations

import json
import math
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

from training_runtime.elastic.script_logs.event_files import Chunk, Scalar
from training_runtime.elastic.script_logs.summaries import wire

HEAD = b":W&B"
HEAD_BYTES = 7
BLOCK_BYTES = 1 << 15
CHUNK_HEAD_BYTES = 7  # checksum, length, kind
MOST_RECORD_BYTES = 1 << 19  # tables and long texts are larger
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_HISTORY, _CONFIG, _RUN, _EXIT = 2, 5, 17, 18  # fields of a Record
_RUN_CONFIG, _RUN_TAGS, _RUN_STARTED = 4, 10, 17
_RUN_TEXTS = {1: "id", 3: "project", 8: "name", 9: "notes"}
FILE_NAME = re.compile(r"run-[A-Za-z0-9_-]+\.wandb")
_OWN = "_"  # what wandb's own names begin with
MOST_TEXT = 200
MOST_NAMES = 32  # of a value within others
MOST_DEPTH = 4  # of a config's values within values


@dataclass
class Run:
    """What a log says of its run, empty where it says nothing. `started_at`: Unix seconds; `exit_code`: None while it has no end."""

    id: str = ""
    name: str = ""
    project: str = ""
    notes: str = ""
    tags: list[str] = field(default_factory=list)
    started_at: float = 0.0
    exit_code: int | None = None


@dataclass
class _Findings:
    run: Run = field(default_factory=Run)
    scalars: list[Scalar] = field(default_factory=list)
    parameters: list[dict[str, str]] = field(default_factory=list)


@dataclass(frozen=True)
class _Item:
    """A value by its name; of a value within others the names of all of them. `json` as it was written."""

    names: tuple[str, ...]
    json: bytes


def read(data: bytes, offset: int) -> Chunk:
    """`data` is what the file has at `offset`, which is its beginning or that of a chunk. A record without an end waits for it."""
    return _read(data, offset, _Findings())


def read_whole(data: bytes) -> tuple[Run, Chunk]:
    """Of a file that has been written."""
    found = _Findings()
    chunk = _read(data, 0, found)
    return found.run, chunk


def _read(data: bytes, offset: int, found: _Findings) -> Chunk:
    if offset == 0 and len(data) < HEAD_BYTES:
        return Chunk((), 0)
    if offset == 0 and not data.startswith(HEAD):
        return Chunk((), 0, broken=True)
    damaged = too_large = 0
    at = end = HEAD_BYTES if offset == 0 else 0
    parts: list[bytes] = []
    broken = False
    while (piece := _piece(data, at, offset)) is not None:
        kind, content, at = piece
        if kind > _LAST:
            broken = True
            break
        parts = [content] if kind in (_FULL, _FIRST) else [*parts, content] if parts else []
        if sum(map(len, parts)) > MOST_RECORD_BYTES:  # what is left of it has no beginning, and is passed over
            too_large, parts = too_large + 1, []
        if kind in (_FULL, _LAST) and parts:
            try:
                _add_record(b"".join(parts), found)
            except ValueError:
                damaged += 1
            parts = []
        end = end if parts else at
    return Chunk(tuple(found.scalars), offset + end, broken, (), tuple(found.parameters), 0, damaged, too_large)


def _piece(data: bytes, at: int, offset: int) -> tuple[int, bytes, int] | None:
    """Kind, content and end of the chunk at `at`, or behind the padding that is there; None where it is not whole yet."""
    while True:
        left = BLOCK_BYTES - (offset + at) % BLOCK_BYTES
        if left < CHUNK_HEAD_BYTES:
            at += left
        if at + CHUNK_HEAD_BYTES > len(data):
            return None
        _, length, kind = struct.unpack_from("<IHB", data, at)
        if kind != 0:
            end = at + CHUNK_HEAD_BYTES + length
            return (kind, data[at + CHUNK_HEAD_BYTES : end], end) if end <= len(data) else None
        at += BLOCK_BYTES - (offset + at) % BLOCK_BYTES  # nothing more in this block


def _add_record(record: bytes, found: _Findings) -> None:
    for each in wire.fields(record):
        if each.kind != wire.BYTES:
            continue
        if each.number == _HISTORY:
            found.scalars += _scalars(each.data)
        elif each.number == _CONFIG:
            found.parameters += _parameters(each.data)
        elif each.number == _RUN:
            _add_run(each.data, found)
        elif each.number == _EXIT:
            codes = [inside.whole for inside in wire.fields(each.data) if (inside.number, inside.kind) == (1, wire.VARINT)]
            found.run.exit_code = codes[-1] if codes else 0


def _add_run(message: bytes, found: _Findings) -> None:
    run = found.run
    run.tags = []  # said anew each time
    for each in wire.fields(message):
        if each.kind != wire.BYTES:
            continue
        if each.number == _RUN_CONFIG:
            found.parameters += _parameters(each.data)
        elif each.number in _RUN_TEXTS:
            setattr(run, _RUN_TEXTS[each.number], wire.text(each.data))
        elif each.number == _RUN_TAGS:
            run.tags.append(wire.text(each.data))
        elif each.number == _RUN_STARTED:
            run.started_at = float(next((inside.whole for inside in wire.fields(each.data) if inside.number == 1), 0))


def _scalars(history: bytes) -> list[Scalar]:
    """What was logged at one step. Of what is no number, a histogram say, none of the numbers that describe it."""
    items = list(_items(history))
    about = {item.names[0]: _number(item.json) for item in items if item.names[0] in ("_step", "_timestamp")}
    described = {item.names[:-1] for item in items if item.names[-1] == "_type"}
    step, t = about.get("_step") or 0.0, about.get("_timestamp") or 0.0
    values = [
        (".".join(item.names), _number(item.json))
        for item in items
        if not item.names[0].startswith(_OWN) and not any(item.names[:length] in described for length in range(len(item.names)))
    ]
    at, t = int(step) if math.isfinite(step) else 0, t if math.isfinite(t) else 0.0
    return [Scalar(name, at, value, t) for name, value in values if value is not None]


def _parameters(config: bytes) -> list[dict[str, str]]:
    values: dict[str, str] = {}
    for item in _items(config):
        if item.names[0].startswith(_OWN):
            continue
        try:
            values |= _flat(".".join(item.names), json.loads(item.json), depth=0)
        except (ValueError, RecursionError):
            continue
    return [values] if values else []


def _flat(name: str, value: object, *, depth: int) -> dict[str, str]:
    """As the site shows them: optimizer.lr."""
    if isinstance(value, dict) and value and depth < MOST_DEPTH:
        found: dict[str, str] = {}
        for key, inside in value.items():
            found |= _flat(f"{name}.{key}", inside, depth=depth + 1)
        return found
    return {name: (value if isinstance(value, str) else json.dumps(value))[:MOST_TEXT]}


def _items(message: bytes) -> Iterator[_Item]:
    """Of a history or a config, whose items look alike: key (1), or the keys of a value within others (2), and the value as JSON (16)."""
    for each in wire.fields(message):
        if (each.number, each.kind) != (1, wire.BYTES):
            continue
        names: list[str] = []
        value = b""
        for one in wire.fields(each.data):
            if one.kind == wire.BYTES and one.number in (1, 2) and one.data:
                names.append(wire.text(one.data))
            elif one.kind == wire.BYTES and one.number == 16:
                value = one.data
        if 0 < len(names) <= MOST_NAMES:
            yield _Item(tuple(names), value)


def _number(value: bytes) -> float | None:
    try:
        found = json.loads(value)
    except (ValueError, RecursionError):
        return None
    if isinstance(found, bool) or not isinstance(found, int | float):
        return None
    try:
        return float(found)
    except OverflowError:
        return None
