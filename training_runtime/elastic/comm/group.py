"""The members of one generation as a worker sees them, and the barriers between them.

A barrier costs two words and a ring to each peer; no lock, no collective. On arrival a worker writes the newest generation it has seen and
then its phase (generation, count). Whoever finds all peers at its own phase goes on, and all of them then read the same minimum of what was
seen: so they agree on a change of members without another exchange. A worker can be one barrier ahead of a peer, never two; so what it has
seen stands in one of two words, by the parity of the count. A death shows as a generation published with `abort`, which wakes everybody out
of any barrier.

Members on one machine can meet by themselves besides, behind a barrier of all and before the next one. Nobody agrees on anything there, and
other machines do not wait for it.
"""

from __future__ import annotations

import time

from training_runtime.elastic.comm.segment import ABORT, COMMITTED, LOCAL_PHASE, PAYLOADS, PHASE, SEEN, WANTED, GenerationRecord, Segment
from training_runtime.elastic.state import emergency_checkpoint
from training_runtime.elastic.worker.pull import Pull

SLICE_S = 0.5  # a waiting worker looks after this long whether anybody is left who could wake it


class Reconfigured(Exception):
    """The members change: go to `generation`. `abort`: a member died, what is in flight is void."""

    def __init__(self, generation: int, *, abort: bool) -> None:
        super().__init__(generation)
        self.generation, self.abort = generation, abort


class Group:
    """The generation `record`, seen from `worker_id`. While `entering`, visitors take part in the barriers. `driver` is its pidfd. `local`:
    the members on this machine, in rank order."""

    def __init__(self, segment: Segment, record: GenerationRecord, worker_id: int, driver: int) -> None:
        self.segment, self.record, self.worker_id, self.driver = segment, record, worker_id, driver
        self.number = record.number
        self.rank = record.members.index(worker_id) if worker_id in record.members else -1
        self.size = len(record.members)
        machine = segment.layout.machine
        self.local = tuple(member for member in record.members if machine(member) == machine(worker_id))
        self._count = 0
        self._entering = True
        self._peers = tuple(s for s in record.worker_ids if s != worker_id)

    def begin(self) -> None:
        """The generation has been entered: visitors are gone."""
        self._peers = tuple(s for s in self.record.members if s != self.worker_id)
        self._entering = False

    @property
    def parity(self) -> int:
        """Of the last barrier."""
        return self._count % 2

    @property
    def next_parity(self) -> int:
        return 1 - self.parity

    def barrier(self, waiting_for: Pull | None = None, *, payload: int = 0) -> int:
        """Wait for all; returns the newest generation that every one of them had seen. `multinode.payloads`: what this worker has made that
        other machines need past this barrier (see `multinode.payloads`). Raises Reconfigured when a member died, PullFailed when this is a
        wait for the state and took too long too often."""
        segment = self.segment
        self._count += 1
        seen = SEEN + self._count % 2
        segment.set(self.worker_id, seen, segment.words[WANTED])
        phase = self._phase
        if payload and segment.layout.machines > 1:
            # Entering has places of its own: what was left at the last barrier before it may not have been passed on yet.
            pair = PAYLOADS + 2 * (self._count % 2) + 4 * self._entering
            segment.set(self.worker_id, pair + 1, payload)
            segment.set(self.worker_id, pair, phase)
        segment.set(self.worker_id, PHASE, phase)
        for peer in self._peers:
            segment.bells[peer].ring()
        segment.stir()
        self._wait(self._peers, PHASE, waiting_for)
        return min([segment.get(peer, seen) for peer in self._peers] + [segment.get(self.worker_id, seen)])

    def local_barrier(self) -> None:
        """Wait for the members on this machine, at most once behind each barrier of all. Raises Reconfigured when any member died, Orphaned
        when the driver did."""
        peers = tuple(member for member in self.local if member != self.worker_id)
        self.segment.set(self.worker_id, LOCAL_PHASE, self._phase)
        for peer in peers:
            self.segment.bells[peer].ring()
        self._wait(peers, LOCAL_PHASE)

    @property
    def _phase(self) -> int:
        """Of the last barrier of all."""
        return self.number << 32 | self._count

    def _wait(self, waiting: tuple[int, ...], word: int, waiting_for: Pull | None = None) -> None:
        """Until `word` of each of these workers says that it has arrived."""
        bell = self.segment.bells[self.worker_id]
        bell.drain()
        while waiting := tuple(peer for peer in waiting if not self._arrived(peer, word)):
            # Peers first, abort second: a peer that died after it arrived has given its part, and the step can be finished without it.
            self.check_abort()
            emergency_checkpoint.check(self.segment)
            slice_s = SLICE_S if waiting_for is None else min(SLICE_S, waiting_for.left_s(time.monotonic()))
            if not bell.wait(slice_s):
                emergency_checkpoint.look(self.segment, self.driver)
            if waiting_for is not None:
                waiting_for.look(time.monotonic())

    def _arrived(self, peer: int, word: int) -> bool:
        """At this phase or past it. A peer seen in a later generation went there by agreement, past this barrier; or by an abort,
        which shows first."""
        phase = self.segment.get(peer, word)
        if phase >= self._phase and phase >> 32 != self.number:
            self.check_abort()
        return phase >= self._phase

    def check_abort(self) -> None:
        abort = self.segment.words[ABORT]
        if abort > self.number:
            raise Reconfigured(abort, abort=True)

    def look(self) -> None:
        """Raises Reconfigured or Orphaned where nothing is to be waited for any more."""
        self.check_abort()
        emergency_checkpoint.look(self.segment, self.driver)

    def is_ahead(self) -> bool:
        """Whether anybody else has done more units than this worker, which therefore waits for the state."""
        return max(self.committed().values()) > self.segment.get(self.worker_id, COMMITTED)

    def committed(self) -> dict[int, int]:
        """The position of every member and visitor; stable between the barriers of entering."""
        return {worker_id: self.segment.get(worker_id, COMMITTED) for worker_id in self.record.worker_ids}


def await_membership(segment: Segment, worker_id: int, *, driver: int, after: int, pull: Pull) -> int:
    """Wait until a generation newer than `after` has `worker_id` in it. Raises PullFailed when that took too long too often."""
    while True:
        segment.bells[worker_id].drain()
        wanted = int(segment.words[WANTED])
        if wanted > after:
            record = segment.generation(wanted)
            if worker_id in record.members or worker_id in record.visitors:
                return wanted
        emergency_checkpoint.look(segment, driver)
        pull.look(time.monotonic())
        segment.bells[worker_id].wait(min(SLICE_S, pull.left_s(time.monotonic())))
