"""What of one segment has to be in that of another machine, and when: the view of one bridge, from `here` towards `there`.

A worker's phase says that it has arrived at a barrier, so everything that others read past that barrier has to be there before its phase
is: `outgoing` first has what was made (see `payloads`), then news of the driver's, then the words of the worker ids. Nothing is lost by
looking late, because nobody can make the next thing of a kind in the same place before the other side has passed the barrier of the last
one.

Phases are read before what was made, so what belongs to a phase is there when it is passed on. And who has died in between cannot leave
something behind that arrives later: whoever is in a newer generation went there after that death, so what the dead made is found in the
same look. Between two machines that are not the head node everything goes through the head node.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from training_runtime.elastic import tree
from training_runtime.elastic.comm.all_reduce import shard
from training_runtime.elastic.comm.segment import (
    ABORT,
    BEAT,
    CLOSED,
    DIGESTS,
    GENERATIONS,
    NOTE_BYTES,
    PAYLOADS,
    PHASE,
    RETIRED,
    RING,
    RING_HEAD,
    RING_READ,
    RING_WRITTEN,
    STATE_BYTES,
    SUM_ROW,
    WANTED,
    WORKER_WORDS,
    GenerationRecord,
    Segment,
)
from training_runtime.elastic.multinode import payloads
from training_runtime.elastic.state import transfer

HEAD_NODE = 0
RECENT = 4  # generations whose members are looked at; two are in use, and deaths may follow each other fast
_WORD = 8
_BEAT_S = 0.2

What = Literal["bytes", "words", "ring", "marks", "state"]


@dataclass(frozen=True)
class Piece:
    """Something to be sent. `at`: where it goes, for "ring" the last step. `data` is memory that others may write; for "state" it is None
    and `length` bytes of the memfd from `at` on are meant."""

    what: What
    at: int
    length: int = 0
    data: Any = None


@dataclass(frozen=True)
class Seen:
    """One look: the phase of each worker that matters, and words of the head."""

    phases: dict[int, int]
    head: dict[int, int]


class Replication:
    """`state_fd`: the memfd of the state on this machine. `wake_fd` wakes the driver where this is the head node."""

    def __init__(self, segment: Segment, *, here: int, there: int, state_fd: int, wake_fd: int) -> None:
        self.segment, self.layout, self.here, self.there = segment, segment.layout, here, there
        self._state_fd, self._wake_fd = state_fd, wake_fd
        self._own = self.layout.worker_ids_of(here)
        self._beyond = self.layout.worker_ids_of(there)  # of the other end; what stands there comes from it
        self._first = self.layout.offsets["workers"] // _WORD
        self._sent: dict[int, list[int]] = {}
        self._beaten: dict[int, float] = {}  # worker id -> when its heartbeat alone was last sent
        self._passed: dict[int, int] = {}  # worker id -> the last phase of which what was made has been sent
        self._awaited: set[int] = set()  # workers whose last phase that was sent is of a generation with members at the other end
        self._head = dict.fromkeys((WANTED, ABORT, RETIRED, CLOSED, RING_READ, STATE_BYTES), 0)
        self._ring = 0  # the last finished step that both ends know
        self._writers: dict[int, int] = {}
        self._records: dict[int, GenerationRecord] = {}

    # -- what goes out

    def look(self) -> Seen:
        """Where everybody is. What follows is done with what was seen here."""
        worker_ids = self._watched_workers()
        phases = {worker_id: self._words(worker_id)[PHASE] for worker_id in worker_ids}
        head = {word: self.segment.words[word] for word in (ABORT, RETIRED, CLOSED, RING_READ, STATE_BYTES, RING_WRITTEN)}
        head[WANTED] = self.segment.words[WANTED]  # after ABORT: never older
        return Seen(phases, head)

    def outgoing(self, seen: Seen) -> tuple[list[Piece], list[Piece]]:
        """All that is new, in the order in which it must arrive: what was made and finished; then who has arrived where. Between the two
        belongs what workers have said before they arrived."""
        now = {worker_id: [phase, *self._words(worker_id)[1:]] for worker_id, phase in seen.phases.items()}
        return [*self._made(now), *self._finished(seen.head)], [*self._news(seen.head), *self._arrivals(now)]

    def _words(self, worker_id: int) -> list[int]:
        at = self._first + worker_id * WORKER_WORDS
        return self.segment.words[at : at + WORKER_WORDS].tolist()

    def _watched_workers(self) -> list[int]:
        """Ids of workers whose words may have to be passed on."""
        if self.here != HEAD_NODE:
            return list(self._own)
        newest = self.segment.words[WANTED]
        recent = (self._record(number) for number in range(max(1, newest - RECENT + 1), newest + 1))
        return sorted({worker_id for record in recent if record for worker_id in record.worker_ids if worker_id not in self._beyond})

    def _record(self, number: int) -> GenerationRecord | None:
        """None where it has been overwritten, or was before this segment's time."""
        if number not in self._records:
            at = self.layout.offsets["table"] // _WORD + number % GENERATIONS * self.layout.generation_words
            if not number or self.segment.words[at] != number:
                return None
            self._records = {n: record for n, record in self._records.items() if n > number - GENERATIONS}
            self._records[number] = self.segment.generation(number)
        return self._records[number]

    def _concerns(self, record: GenerationRecord | None) -> bool:
        """Whether anybody at the other end, or reached through it, is in a generation."""
        if record is None:
            return False
        return any(self._is_reached(worker_id) for worker_id in record.worker_ids)

    def _is_reached(self, worker_id: int) -> bool:
        """At the other end or, from a machine that is not the head node, anywhere else."""
        return worker_id in self._beyond if self.here == HEAD_NODE else worker_id not in self._own

    def _made(self, now: dict[int, list[int]]) -> Iterator[Piece]:
        """What was made at barriers, in their order."""
        found = []
        for worker_id, words in now.items():
            last = self._passed.get(worker_id, 0)
            pairs = zip(words[PAYLOADS:DIGESTS:2], words[PAYLOADS + 1 : DIGESTS : 2], strict=True)
            found += [(phase, worker_id, word) for phase, word in pairs if phase > last]
        for phase, worker_id, word in sorted(found):
            self._passed[worker_id] = phase
            record = self._record(phase >> 32)
            if record is not None and worker_id in record.worker_ids and self._concerns(record):
                yield from self._payload(record, worker_id, phase, payloads.read(word))

    def _payload(self, record: GenerationRecord, worker_id: int, phase: int, made: payloads.Payload) -> Iterator[Piece]:
        if made.kind in (payloads.PARTS, payloads.FIGURES):
            yield from self._figures(record, worker_id, made.first, made.second)
            if made.kind == payloads.PARTS:
                yield from self._parts(record, worker_id, made.first)
        elif made.kind == payloads.SUM:
            for flat in self.layout.flat_buffers:
                mine = shard(flat, record.members.index(worker_id), len(record.members))
                yield from self._row(SUM_ROW, flat.offset + mine.start * flat.dtype.itemsize, len(mine) * flat.dtype.itemsize)
        elif made.kind == payloads.TEST:
            row = self.layout.columns * _WORD
            yield self._bytes("tests", made.first * row, row)
            yield self._bytes("tested", made.first * _WORD, _WORD)
        elif made.kind == payloads.MARKS and self.layout.test_batches:
            yield self._marks()
        elif made.kind == payloads.STATE and (self.here != HEAD_NODE or made.first >> self.there & 1):
            yield from self._state(phase, made.second)

    def _figures(self, record: GenerationRecord, worker_id: int, engines: int, parity: int) -> Iterator[Piece]:
        """What one worker's engines have made in a step, but for the gradients."""
        layout, workers = self.layout, len(record.members)
        mine = tree.share(record.members.index(worker_id), workers, engines)
        if not mine:
            return
        yield self._bytes("used", mine.start * layout.parameters, len(mine) * layout.parameters)
        row = layout.columns * _WORD
        yield self._bytes("metrics", (parity * layout.engines + mine.start) * row, len(mine) * row)
        if mine.start == 0:
            yield self._bytes("buffers", parity * layout.buffer_bytes, layout.buffer_bytes)

    def _parts(self, record: GenerationRecord, worker_id: int, engines: int) -> Iterator[Piece]:
        """Of the gradients, the shards that are added up at the other end or beyond it."""
        layout, workers = self.layout, len(record.members)
        mine = tree.share(record.members.index(worker_id), workers, engines)
        theirs = [rank for rank, member in enumerate(record.members) if self._is_reached(member)]
        rows = tree.rows(workers, engines)
        for row in [rows[place] for place in tree.parts(mine, engines)]:
            for flat in layout.flat_buffers:
                for wanted in joined(shard(flat, rank, workers) for rank in theirs):
                    yield from self._row(row, flat.offset + wanted.start * flat.parts.itemsize, len(wanted) * flat.parts.itemsize)

    def _row(self, row: int, at: int, length: int) -> Iterator[Piece]:
        if length:
            yield self._bytes("rows", row * self.layout.row_bytes + at, length)

    def _bytes(self, part: str, at: int, length: int) -> Piece:
        at += self.layout.offsets[part]
        return Piece("bytes", at, length, self.segment.memory(at, length))

    def _marks(self) -> Piece:
        count = self.layout.test_batches
        sizes = {"tested": count * _WORD, "tests": count * self.layout.columns * _WORD}
        data = b"".join(self.segment.memory(self.layout.offsets[part], size) for part, size in sizes.items())
        return Piece("marks", 0, len(data), data)

    def _state(self, phase: int, writers: int) -> Iterator[Piece]:
        """When all who write it have done so."""
        self._writers[phase] = self._writers.get(phase, 0) + 1
        if self._writers[phase] == writers:
            self._writers = {}
            yield Piece("state", 0, transfer.size_of(self._state_fd))

    def _finished(self, head: dict[int, int]) -> Iterator[Piece]:
        """Rows of steps that were finished."""
        written, row = head[RING_WRITTEN], (RING_HEAD + self.layout.columns) * _WORD
        first = max(self._ring, head[RING_READ]) + 1
        if written <= self._ring:
            return
        self._ring = written
        for steps in wrapped(first, written):
            yield self._bytes("ring", steps.start % RING * row, len(steps) * row)
        if (
            self.here == HEAD_NODE and head[RING_READ] != self._head[RING_READ]
        ):  # rows before it are not there, so it must be known before the rest
            self._head[RING_READ] = head[RING_READ]
            yield _words_piece([(RING_READ, head[RING_READ])])
        yield Piece("ring", written)

    def _news(self, head: dict[int, int]) -> Iterator[Piece]:
        """What the driver says; the size of the state, from whoever knows it."""
        words = (WANTED, ABORT, RETIRED, CLOSED, RING_READ, STATE_BYTES) if self.here == HEAD_NODE else (STATE_BYTES,)
        changed = {word: head[word] for word in words if head[word] != self._head[word]}
        if WANTED in changed:
            for number in range(max(1, self._head[WANTED] + 1, head[WANTED] - RECENT + 1), head[WANTED] + 1):
                if self._record(number) is not None:
                    yield self._bytes(
                        "table", number % GENERATIONS * self.layout.generation_words * _WORD, self.layout.generation_words * _WORD
                    )
                    yield self._bytes("notes", number % GENERATIONS * NOTE_BYTES, 16 + len(self.segment.noted(number)))
        self._head.update(changed)
        if changed:
            yield _words_piece([(word, changed[word]) for word in words if word in changed])

    def _is_known(self, worker_id: int, words: list[int]) -> bool:
        """Whether the other end has these words. A heartbeat alone is news for the driver only, and now and then: it moves all the time."""
        before = self._sent.get(worker_id)
        if before is None or [*words[:BEAT], *words[BEAT + 1 :]] != [*before[:BEAT], *before[BEAT + 1 :]]:
            return False
        now = time.monotonic()
        if self.here == HEAD_NODE or words == before or now < self._beaten.get(worker_id, 0.0) + _BEAT_S:
            return True
        self._beaten[worker_id] = now
        return False

    def _arrivals(self, now: dict[int, list[int]]) -> Iterator[Piece]:
        """The words of workers that show something new, each one's phase last. Who has gone on from a generation with members at the other
        end to one without is told of once more: they may still wait for its last arrival in the old one, which was not seen here."""
        told: list[tuple[int, int]] = []
        for worker_id, words in now.items():
            concerns = self.here != HEAD_NODE or self._concerns(self._record(words[PHASE] >> 32))
            if self._is_known(worker_id, words) or not (concerns or worker_id in self._awaited):
                continue
            self._sent[worker_id] = words
            (self._awaited.add if concerns else self._awaited.discard)(worker_id)
            at = self._first + worker_id * WORKER_WORDS
            told += [(at + i, words[i]) for i in (*range(1, WORKER_WORDS), PHASE)]
        if told:
            yield _words_piece(told)

    # -- what comes in

    def apply_words(self, told: bytes) -> None:
        """Words in their order, then everybody here looks at them."""
        values = memoryview(told).cast("q")
        for i in range(0, len(values), 2):
            self.segment.words[values[i]] = values[i + 1]
            if values[i] == STATE_BYTES:
                self._head[STATE_BYTES] = values[i + 1]
        for worker_id in self._own:
            self.segment.bells[worker_id].ring()
        self.segment.stir()

    def apply_ring(self, written: int) -> None:
        """The rows up to this step are there."""
        self._ring = max(self._ring, written)
        if written > self.segment.words[RING_WRITTEN]:
            self.segment.words[RING_WRITTEN] = written
            if self.here == HEAD_NODE:
                os.eventfd_write(self._wake_fd, 1)

    def apply_marks(self, data: bytes) -> None:
        """Test batches that were done elsewhere: whoever has marked one later knows better. Without torch, whose threads do not work in
        those of a forked process."""
        count, row = self.layout.test_batches, self.layout.columns * _WORD
        tests = self.segment.memory(self.layout.offsets["tests"], count * row)
        tested = self.segment.memory(self.layout.offsets["tested"], count * _WORD).cast("q")
        for batch, mark in enumerate(memoryview(data)[: count * _WORD].cast("q")):
            if mark > tested[batch]:
                at = count * _WORD + batch * row
                tests[batch * row : (batch + 1) * row] = data[at : at + row]
                tested[batch] = mark


def _words_piece(words: list[tuple[int, int]]) -> Piece:
    data = b"".join(index.to_bytes(_WORD, "little") + value.to_bytes(_WORD, "little", signed=True) for index, value in words)
    return Piece("words", 0, len(data), data)


def joined(ranges: Iterator[range]) -> list[range]:
    """Ranges in order, those that touch each other made one, empty ones left out."""
    found: list[range] = []
    for each in ranges:
        if found and each and found[-1].stop == each.start:
            found[-1] = range(found[-1].start, each.stop)
        elif each:
            found.append(each)
    return found


def wrapped(first: int, last: int) -> list[range]:
    """The steps from `first` to `last`, in pieces that lie together in the ring."""
    pieces = []
    while first <= last:
        stop = min(last + 1, first - first % RING + RING)
        pieces.append(range(first, stop))
        first = stop
    return pieces
