"""A run's journal: the append-only event file `journal.jsonl` in its result folder, written by the run's driver alone.

One JSON object a line: {"v": 1, "run": 7, "seq": 12, "t": 1763650000.123, "kind": "train", ...fields of the kind}. `seq` counts from 1
without a gap, over restarts too. Readers follow the file by byte offset and take whole lines only. A process that runs user code writes the
file: whoever reads it treats every line as hostile (`parse` checks each field). Standard library only.

A file that was cut short (by a power loss, say) and has grown again is another one to a reader of the old: the `mark` tells, a digest of
the last bytes before an offset.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import os
import stat
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from training_runtime.crashes import Died as Died
from training_runtime.errors import JournalError, ProtocolError
from training_runtime.media import Media as Media
from training_runtime.noted import Noted as Noted
from training_runtime.noted import Setup as Setup
from training_runtime.progress import Progress as Progress
from training_runtime.records import build, words

VERSION, FILE_NAME = 1, "journal.jsonl"
MAX_LINE_BYTES, MARK_BYTES = 256 * 1024, 256


@dataclass(frozen=True)
class Started:
    """train() was called: the shape of the job. Written once per attempt. `engines` is V; `samples` of one epoch."""

    attempt: int
    engines: int
    batch_size: int
    epochs: int
    steps_per_epoch: int
    samples: int
    seed: int
    parameters: int
    state_bytes: int
    kind: Literal["started"] = "started"


@dataclass(frozen=True)
class Member:
    """A worker of a generation: its rank, the slot it holds (the studio's id), its process."""

    rank: int
    slot: int
    pid: int


@dataclass(frozen=True)
class Generation:
    """A numbered membership that begins before global step `step`. `pause_ms`: the longest step-to-step gap at the change minus a median
    step, 0 for the first; `redone`: steps in flight that were dropped and computed again; `workers_before` is 0 for the first."""

    generation: int
    step: int
    epoch: int
    members: tuple[Member, ...]
    workers_before: int
    reason: str
    pause_ms: float
    redone: int
    kind: Literal["generation"] = "generation"


@dataclass(frozen=True)
class Train:
    """Global step `step` (from 1, over all epochs) is done. `metrics` are exact means over the global batch; `epoch` counts from 1.
    `step_s` is its wall time; `samples` how many it used; `workers` how many computed it."""

    step: int
    epoch: int
    metrics: dict[str, float]
    samples: int
    workers: int
    step_s: float
    kind: Literal["train"] = "train"


@dataclass(frozen=True)
class Test:
    """Validation after `step`: exact means over all test samples. (Not a pytest class.)"""

    __test__ = False

    step: int
    epoch: int
    metrics: dict[str, float]
    samples: int
    kind: Literal["test"] = "test"


@dataclass(frozen=True)
class Logged:
    """Figures that the script has logged by itself, under a step of its own count."""

    group: Literal["train", "test"]
    step: int
    metrics: dict[str, float]
    kind: Literal["logged"] = "logged"


@dataclass(frozen=True)
class Digest:
    """Of the whole state after the last step of an epoch: 16 hexadecimal digits, the same whoever computed it."""

    step: int
    epoch: int
    digest: str
    kind: Literal["digest"] = "digest"


@dataclass(frozen=True)
class Checkpoint:
    """Files were written. `paths` are relative to the result folder; `role`: "model" for people, "engine" to resume from."""

    step: int
    epoch: int
    role: Literal["model", "engine"]
    paths: tuple[str, ...]
    size_bytes: int
    kind: Literal["checkpoint"] = "checkpoint"


@dataclass(frozen=True)
class Suspended:
    """The run holds no worker any more; its state is in an engine checkpoint at `step`."""

    step: int
    epoch: int
    reason: str
    kind: Literal["suspended"] = "suspended"


@dataclass(frozen=True)
class Resumed:
    """The state of `step` was read back (from a checkpoint, or the start where there is none); the step after it comes next."""

    step: int
    epoch: int
    reason: str
    kind: Literal["resumed"] = "resumed"


@dataclass(frozen=True)
class Exactness:
    """What was seen so far of whether the results depend on nothing but the script, its data and its seed: not promised where there are
    `reasons` (sentences without a full stop). `checked`: the first engine was computed twice and came out the same. `build`: what the
    driver's machine computes with. Written when it changes; the last one counts."""

    reasons: tuple[str, ...]
    checked: bool
    build: str
    kind: Literal["exactness"] = "exactness"


@dataclass(frozen=True)
class Warned:
    """Something a person should know; the run goes on."""

    message: str
    kind: Literal["warning"] = "warning"


@dataclass(frozen=True)
class Failed:
    """The run cannot go on. `traceback` is the user's, or empty; `where` names the process: "driver", "worker on slot 2"."""

    message: str
    traceback: str
    where: str
    kind: Literal["error"] = "error"


@dataclass(frozen=True)
class Trained:
    """All steps are done and the final model is written. What may follow, an export and the rest of the script, needs no slot."""

    step: int
    epoch: int
    kind: Literal["trained"] = "trained"


@dataclass(frozen=True)
class Finished:
    """The last line of an attempt. `metrics`: the final ones, named "train loss", "test accuracy", ..."""

    outcome: Literal["completed", "stopped", "failed"]
    step: int
    epoch: int
    metrics: dict[str, float]
    elapsed_s: float
    kind: Literal["finished"] = "finished"


Rare = Started | Generation | Checkpoint | Suspended | Resumed | Exactness | Warned | Died | Failed | Trained | Finished
Event = Train | Test | Logged | Noted | Setup | Media | Progress | Digest | Rare
KINDS: dict[str, type[Any]] = {str(c.__dataclass_fields__["kind"].default): c for c in typing.get_args(Event)}


@dataclass(frozen=True)
class Line:
    """A parsed line: its place, its time (Unix seconds) and what happened."""

    run: int
    seq: int
    t: float
    event: Event


@dataclass(frozen=True)
class _Position:
    run: int
    seq: int
    t: float


@dataclass(frozen=True)
class Batch:
    """Whole lines read from `offset` up to `end_offset`; lines that do not parse are in `rejected` with the reason. `before`, `after`: the
    marks of the two offsets, empty where the file does not reach that far."""

    offset: int
    end_offset: int
    lines: tuple[Line, ...]
    rejected: tuple[str, ...] = ()
    before: str = ""
    after: str = ""


def _plain(value: Any) -> Any:
    """JSON has no NaN: non-finite floats travel as the strings "nan", "inf", "-inf"."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    return [_plain(v) for v in value] if isinstance(value, (list, tuple)) else value


def _finite_back(raw: Any) -> Any:
    if isinstance(raw, dict) and isinstance(raw.get("metrics"), dict):
        return raw | {"metrics": {k: float(v) if v in ("nan", "inf", "-inf") else v for k, v in raw["metrics"].items()}}
    return raw


def format_line(run: int, seq: int, t: float, event: Event) -> bytes:
    record = {"v": VERSION, "run": run, "seq": seq, "t": t, **_plain(dataclasses.asdict(event))}
    return json.dumps(record, separators=(",", ":"), allow_nan=False).encode() + b"\n"


def parse(raw: bytes) -> Line:
    """The line's record. Raises JournalError saying what is wrong with it."""
    if len(raw) > MAX_LINE_BYTES:
        raise JournalError(f"a line of {len(raw)} bytes is longer than {MAX_LINE_BYTES}")
    try:
        record = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise JournalError(f"not JSON: {error}") from None
    if not isinstance(record, dict) or record.pop("v", None) != VERSION:
        raise JournalError("not a record of version 1")
    place = [record.pop(key, None) for key in ("run", "seq", "t")]
    kind = words(record.get("kind"))
    cls = KINDS.get(kind)
    if cls is None:
        raise JournalError(f"unknown kind {kind!r}")
    try:
        where = build(_Position, dict(zip(("run", "seq", "t"), place, strict=True)))
        return Line(where.run, where.seq, where.t, _event(cls, _finite_back(record)))
    except ProtocolError as error:
        raise JournalError(str(error)) from None


def _event(cls: type[Event], record: dict[str, Any]) -> Event:
    """Without the fields that are not known, which a newer driver has written: who reads for the first time reads for good."""
    try:
        return build(cls, record)
    except ProtocolError:
        return build(cls, record, lenient=True)  # looking for such fields in each line would cost more than reading it


def read(path: Path, offset: int, *, limit_bytes: int = 4 << 20, final: bool = False) -> Batch:
    """Whole lines from byte `offset` on, some `limit_bytes` of them at most. A missing file is empty; a torn last line waits.

    So does all from a zero byte on, unless this is the `final` look: over NFS the size of a file may arrive before what is in it.
    User code may have put something else in its place: a link or what is not a regular file is as good as missing.
    """
    first = max(0, offset - MARK_BYTES)
    try:
        # not blocking: a pipe without a writer would hold the reader for ever
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return Batch(offset, offset, ())
            file.seek(first)
            found = file.read(limit_bytes + offset - first)
    except OSError:
        return Batch(offset, offset, ())
    if len(found) < offset - first:  # shorter than it was
        return Batch(offset, offset, ())
    head, chunk = found[: offset - first], found[offset - first :]
    hole = -1 if final else chunk.find(b"\0")
    end = chunk.rfind(b"\n", 0, hole if hole >= 0 else len(chunk)) + 1
    lines, rejected = list[Line](), list[str]()
    if not end and hole < 0 and len(chunk) >= limit_bytes:  # a hostile line without an end: skip what was read of it
        end = len(chunk)
        rejected = [f"no line end within {limit_bytes} bytes"]
    else:
        for raw in chunk[:end].splitlines():
            try:
                lines.append(parse(raw))
            except JournalError as error:
                rejected.append(str(error))
    after = _mark((head + chunk[:end])[-MARK_BYTES:])
    return Batch(offset, offset + end, tuple(lines), tuple(rejected), before=_mark(head), after=after)


def _mark(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest() if content else ""


def mark_at(path: Path, offset: int) -> str:
    """The mark of that place; empty where the file does not reach that far."""
    return read(path, offset, limit_bytes=1).before


def follow(path: Path, offset: int = 0) -> Iterator[Line]:
    """Every line there is now, from byte `offset` on."""
    while (batch := read(path, offset, final=True)).end_offset > offset:
        yield from batch.lines
        offset = batch.end_offset
