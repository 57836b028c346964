"""The memory that all processes of a run on one machine share: a memfd made by the driver before it forks, mapped by everybody.

It holds words (int64, each with one writer), semaphores, the table of generations and word of each, per-engine metrics, the ring of
finished steps, the results of test batches, buffers of engine 0, and the gradient rows: the sum, and those of `tree.rows`. Of the room
for rows only as much becomes memory as parts need. Nothing here
decides; `group`, `exchange` and `worker` say who writes what when. Words are read and written whole (aligned 8 bytes); their order is that
of x86-64 (see `check_order`), semaphores are barriers besides.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from dataclasses import dataclass
from functools import cached_property

import torch

from training_runtime.elastic.comm.semaphore import SEM_BYTES, Semaphore
from training_runtime.errors import UserError

GENERATIONS = 8  # descriptions kept; at most two are ever in use
NOTE_BYTES = 1 << 14  # of what a generation's line in the journal will say
RING = 4096  # steps that may be finished before the driver has read them
RING_GENERATION = 6  # column
RING_HEAD = 7  # step, epoch, samples, workers, step_s, time, generation
# Words of the head. ORPHANED: see `emergency_checkpoint`. RETIRED: all units are done and journaled. CLOSED: the final model is too.
# BRIDGED: machines, a bit each, that a bridge here has to be woken for (see `multinode.bridge`).
# SNAPSHOT: the position of the state on this machine that is still to be written (see `writer`), 0: none.
# STATE_ROOM: the generation in which a newcomer last began to make room for a state on this machine.
WANTED, ABORT, RING_WRITTEN, RING_READ, STATE_BYTES, ORPHANED, CLOSED, RETIRED, BRIDGED, STATE_ROOM, SNAPSHOT = range(11)
HEAD_WORDS = 16
# Words of a worker. BEAT: see `heartbeat`.
PHASE, SEEN, COMMITTED, STATE, BEAT, BUSY_POSITION, EXCUSED = 0, 1, 3, 4, 5, 6, 7
WAITS = 2  # of EXCUSED: for room on a disk, for as long as that takes
PAYLOADS = 8  # four pairs: at which phase, and what other machines need of it (see `multinode.payloads`)
DIGESTS = 16  # two sets of at most eight, by the parity of a barrier (see `digest.Replicas`)
LATE = 32  # of the step under way: which buckets are sent again (see `collective_reduce`)
STORE = 33  # three words: where members of a generation find the store of its first one (see `meeting`)
SHARES = 36  # two words, by the parity of a step: whether it can share the optimizer's step out (see `sharding`)
LOCAL_PHASE = 38  # behind which barrier of all it last arrived at one of its machine alone
WORKER_WORDS = 40
STATE_LEFT = 1
LINE = 64
STATE_BANKS = 2  # see `banks`
SUM_ROW, FIRST_ROW = 0, 1  # the sum of a step; the rows of its parts begin here


@dataclass(frozen=True)
class FlatBuffer:
    """All gradient elements of one dtype: `size` elements from byte `offset` of a row on. `parts`: the dtype of sums over some of the
    engines, which the sum over all of them is rounded from (see `half_precision`)."""

    dtype: torch.dtype
    size: int
    offset: int
    parts: torch.dtype

    def dtype_in(self, row: int) -> torch.dtype:
        return self.dtype if row == SUM_ROW else self.parts


@dataclass(frozen=True)
class Layout:
    """Sizes of everything in the segment. Every process of a run computes the same one. `max_workers`: of all `machines`, as many of
    each, in their order. `bank_bytes`: of each bank for the state of an optimizer whose step is shared out, whole pages, and how many rows
    there are for its parameters; 0 where it is not."""

    max_workers: int
    engines: int
    columns: int
    parameters: int
    test_batches: int
    buffer_bytes: int
    flat_buffers: tuple[FlatBuffer, ...]
    machines: int = 1
    bank_bytes: int = 0
    parameter_rows: int = 0

    @cached_property
    def offsets(self) -> dict[str, int]:
        """Where each part begins; "end" is the size of the whole."""
        sizes = {
            "head": HEAD_WORDS * 8,
            "table": GENERATIONS * self.generation_words * 8,
            "workers": self.max_workers * WORKER_WORDS * 8,
            "bells": (self.max_workers + self.machines) * SEM_BYTES,
            "metrics": 2 * self.engines * self.columns * 8,
            "used": self.engines * self.parameters,
            "ring": RING * (RING_HEAD + self.columns) * 8,
            "tests": self.test_batches * self.columns * 8,
            "tested": self.test_batches * 8,
            "buffers": 2 * self.buffer_bytes,
            "notes": GENERATIONS * NOTE_BYTES,
            "state": self.parameter_rows * self.row_bytes + STATE_BANKS * self.bank_bytes,
            "rows": (self.engines + 1) * self.row_bytes,
        }
        offsets, at = {}, 0
        for name, size in sizes.items():
            offsets[name] = at
            at = -(-(at + size) // 4096) * 4096
        return {**offsets, "end": at}

    def machine(self, worker_id: int) -> int:
        """On which machine a worker is; 0 is the driver's."""
        return worker_id * self.machines // self.max_workers

    def worker_ids_of(self, machine: int) -> range:
        return range(self.max_workers * machine // self.machines, self.max_workers * (machine + 1) // self.machines)

    @property
    def generation_words(self) -> int:
        return 3 + 2 * self.max_workers

    @property
    def row_bytes(self) -> int:
        last = self.flat_buffers[-1] if self.flat_buffers else None
        return 0 if last is None else -(-(last.offset + last.size * last.parts.itemsize) // 4096) * 4096


@dataclass(frozen=True)
class GenerationRecord:
    """A generation as published: `members` in rank order, `visitors` of the one before that hand their state over and leave."""

    number: int
    members: tuple[int, ...]
    visitors: tuple[int, ...]

    @property
    def worker_ids(self) -> tuple[int, ...]:
        return self.members + self.visitors


def check_order(machine: str, workers: int) -> None:
    """Raises UserError where several workers could not rely on what they read: `machine` (as `platform.machine()` says it) has to show the
    writes of one process to the others in their order, which only x86-64 promises without fences."""
    if workers > 1 and machine.lower() not in ("x86_64", "amd64"):
        raise UserError(
            f"several workers cannot train on this machine: its processor ({machine}) may show what one process writes to another in "
            "another order, and gradients could be wrong unnoticed. Use machines with x86-64 processors, or one slot (in the studio the "
            "most slots of the run, elsewhere EDT_SLOTS=1)"
        )


class Segment:
    """A process's view of the shared memory."""

    def __init__(self, fd: int, layout: Layout, *, create: bool = False) -> None:
        self.layout, self.fd = layout, fd
        at = layout.offsets
        if create:
            os.ftruncate(fd, at["end"])
        self._map = mmap.mmap(fd, at["end"])
        self.words = memoryview(self._map)[: at["bells"]].cast("q")
        self._workers, self._table = at["workers"] // 8, at["table"] // 8
        base = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        bells = [Semaphore(base + at["bells"] + i * SEM_BYTES) for i in range(layout.max_workers + layout.machines)]
        self.bells, self.bridge_bells = bells[: layout.max_workers], bells[layout.max_workers :]
        columns = layout.columns
        self.metrics = self.tensor("metrics", torch.float64, 2 * layout.engines * columns).view(2, layout.engines, columns)
        self.used = self.tensor("used", torch.uint8, layout.engines * layout.parameters).view(layout.engines, layout.parameters)
        self.ring = self.tensor("ring", torch.float64, RING * (RING_HEAD + columns)).view(RING, RING_HEAD + columns)
        self.tests = self.tensor("tests", torch.float64, layout.test_batches * columns).view(layout.test_batches, columns)
        self.tested = self.tensor("tested", torch.int64, layout.test_batches)
        if create:
            for bell in bells:
                bell.create()

    def tensor(self, part: str, dtype: torch.dtype, count: int, offset: int = 0) -> torch.Tensor:
        """A flat tensor that is the memory of `part` from byte `offset` on."""
        if not count:
            return torch.empty(0, dtype=dtype)
        return torch.frombuffer(self._map, dtype=dtype, count=count, offset=self.layout.offsets[part] + offset)

    def begin_ring(self, step: int) -> None:
        """All up to this step is in the journal already. Only while nobody writes steps."""
        if step > self.words[RING_WRITTEN]:
            self.words[RING_WRITTEN] = self.words[RING_READ] = step

    def is_filling(self) -> bool:
        """Whether finished steps should be read soon."""
        return self.words[RING_WRITTEN] - self.words[RING_READ] > RING // 2

    def memory(self, offset: int, length: int) -> memoryview:
        """Bytes of the segment themselves."""
        return memoryview(self._map)[offset : offset + length]

    def flat_buffer(self, row: int, flat_buffer: FlatBuffer) -> torch.Tensor:
        """One flat buffer of one gradient row."""
        return self.tensor("rows", flat_buffer.dtype_in(row), flat_buffer.size, row * self.layout.row_bytes + flat_buffer.offset)

    def note(self, number: int, text: bytes) -> None:
        """Leave word of a generation, for whoever must write its line where the driver could not. Before it is published; none that is
        too long."""
        if len(text) <= NOTE_BYTES - 16:
            at = self.layout.offsets["notes"] + number % GENERATIONS * NOTE_BYTES
            self._map[at : at + 16 + len(text)] = number.to_bytes(8, "little") + len(text).to_bytes(8, "little") + text

    def noted(self, number: int) -> bytes:
        """What was left of it, or nothing."""
        at = self.layout.offsets["notes"] + number % GENERATIONS * NOTE_BYTES
        whose, length = (int.from_bytes(self._map[at + i : at + i + 8], "little") for i in (0, 8))
        return self._map[at + 16 : at + 16 + length] if whose == number else b""

    def say(self, word: int) -> None:
        """Set a word of the head and wake everybody."""
        self.words[word] = 1
        self.wake()

    def wake(self) -> None:
        """Everybody on this machine, also who passes on to others what is new here."""
        for bell in self.bells:
            bell.ring()
        self.stir()

    def stir(self) -> None:
        """Wake who passes on to other machines what is new here."""
        if self.words[BRIDGED]:
            for machine, bell in enumerate(self.bridge_bells):
                if self.words[BRIDGED] >> machine & 1:
                    bell.ring()

    def get(self, worker_id: int, word: int) -> int:
        return self.words[self._workers + worker_id * WORKER_WORDS + word]

    def set(self, worker_id: int, word: int, value: int) -> None:
        self.words[self._workers + worker_id * WORKER_WORDS + word] = value

    def clear_worker(self, worker_id: int) -> None:
        """Clear a worker's words for a new process of this id. Only while none has it."""
        for word in range(WORKER_WORDS):
            self.set(worker_id, word, 0)
        self.set(worker_id, COMMITTED, -1)
        self.bells[worker_id].drain()

    def publish(self, record: GenerationRecord, *, abort: bool) -> None:
        """Announce a generation (the driver alone). The description is written before the word that points to it; then everybody is
        woken."""
        at = self._table + record.number % GENERATIONS * self.layout.generation_words
        self.words[at + 1], self.words[at + 2] = len(record.members), len(record.visitors)
        for i, worker_id in enumerate(record.members + record.visitors):
            self.words[at + 3 + i] = worker_id
        self.words[at] = record.number
        self.words[WANTED] = record.number
        if abort:
            self.words[ABORT] = record.number
        self.wake()

    def generation(self, number: int) -> GenerationRecord:
        at = self._table + number % GENERATIONS * self.layout.generation_words
        assert self.words[at] == number, f"generation {number} was overwritten by {self.words[at]}"
        members, visitors = self.words[at + 1], self.words[at + 2]
        worker_ids = tuple(self.words[at + 3 + i] for i in range(members + visitors))
        return GenerationRecord(number, worker_ids[:members], worker_ids[members:])
