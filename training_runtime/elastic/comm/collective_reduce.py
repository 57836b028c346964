"""Gradients through a torch.distributed group, summed in the one fixed tree, while the backward pass goes on.

As `all_reduce`, with rows of the worker's own on its device. In the backward pass of a worker's last engine each bucket whose gradients are
all there is added to what the worker has already, and sent (see `bucket_exchange`). What comes back is the sum over all engines: the same
bits as through shared memory, whoever computes which engine.

A parameter may get another gradient when its bucket is under way already: where a loss runs a second backward pass, for example. Nothing
is lost: the parts are still there. The bucket is sent a second time, by all, and from then on not before the engine has ended.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import torch

from training_runtime.elastic import tree
from training_runtime.elastic.comm import buckets
from training_runtime.elastic.comm.all_reduce import Exchange, Members, Row, padded
from training_runtime.elastic.comm.bucket_exchange import BucketExchange, Sent, Way
from training_runtime.elastic.comm.meeting import Meeting
from training_runtime.elastic.comm.segment import LATE, FlatBuffer, GenerationRecord, Segment
from training_runtime.elastic.worker import heartbeat
from training_runtime.errors import RuntimeFailure

LATE_BITS = 62  # of a word; buckets share them where there are more
ANSWER_S = 120.0  # within which the next bucket must have come when all have arrived; the driver finds the stopped and the dead sooner
NO_ANSWER = "nothing came of the other workers' gradients within {:g} s, though all of them are there: {}"


class CollectiveReduce(Exchange):
    """One worker's side. While it is not in a group of several it adds up what it computes alone, as the only worker. `address`: under
    which the other workers reach this process."""

    through_segment = False

    def __init__(
        self,
        segment: Segment,
        parameters: Sequence[torch.Tensor],
        device: torch.device,
        *,
        others: Sequence[torch.Tensor] = (),
        own_step: bool = False,
        address: str = "127.0.0.1",
        bucket_bytes: int = buckets.BUCKET_BYTES,
        way: type[Way] | None = None,
    ) -> None:
        super().__init__(segment, parameters, device, on_device=True, others=others, own_step=own_step)
        self.buckets = buckets.plan(parameter_spans(parameters, segment.layout.flat_buffers), bucket_bytes)
        self._address, self._way = address, way
        self._meeting: Meeting | None = None
        self._peers: BucketExchange | None = None
        self._bucket_of = {i: b for b, bucket in enumerate(self.buckets) for i in bucket.parameters}
        self._waits = set(range(len(self.buckets))) if own_step else set[int]()  # buckets that are not sent before the engine has ended
        self._late: set[int] = set()
        self._begin_sending(range(0), 0)

    # -- a step

    def meet(self, record: GenerationRecord, worker_id: int) -> None:
        """Have the group of these members made in the background."""
        if self._meeting is not None and self._meeting.number != record.number:
            self._meeting.end()
            self._meeting = None
        if self._meeting is None and worker_id in record.members and len(record.members) > 1:
            self._meeting = Meeting(self._segment, record, worker_id, device=self._device, address=self._address, way=self._way)

    def join(self, group: Members) -> None:
        """The members of `group` are there: so is their group, or nearly. Raises Reconfigured where one of them has died, NoGroup where
        they cannot be connected."""
        super().join(group)
        self.leave()
        self.meet(group.record, group.worker_id)
        meeting, self._meeting = self._meeting, None
        if meeting is not None:
            try:
                self._peers, self._group = meeting.forming.result(group.look), group
            except BaseException:
                meeting.end()
                raise

    def leave(self) -> None:
        """Whatever is under way is void, and there is no group any more."""
        peers, self._peers = self._peers, None
        if peers is not None and not peers.abort():
            self._held, self._spare = {}, {}  # something may still be written there

    def begin(self, engine: int, mine: range, engines: int) -> None:
        """From now on gradients are those of `engine`."""
        super().begin(engine, mine, engines)
        self._begin_sending(range(0), engines)
        if self._peers is not None and engine == mine[-1]:
            self._begin_sending(mine, engines)
            self._adding = False  # into a row of its own, so that what it is added to stays as it is
            self._target = self._row(engine).views

    def _begin_sending(self, mine: range, engines: int) -> None:
        """`mine`: of whom the last engine is computed now; empty: not yet."""
        self._mine, self._engines_now = mine, engines
        self._next, self._late = 0, set()
        trained = [p.requires_grad for p in self._parameters] if mine else []
        self._lacks = [sum(trained[i] for i in bucket.parameters) for bucket in self.buckets] if mine else []

    def _on_grad_ready(self, p: torch.Tensor) -> None:
        i = self._where[id(p)]
        before = self._times[i]
        super()._on_grad_ready(p)
        if not self._mine or self._times[i] == before:
            return
        b = self._bucket_of[i]
        if before == 0:
            self._lacks[b] -= 1
            self._send_ready()
        elif b < self._next:
            self._late.add(b)
        else:
            self._waits.add(b)

    def _send_ready(self) -> None:
        while self._next < len(self.buckets) and not self._lacks[self._next] and self._next not in self._waits:
            self._send(self._next)
            self._next += 1

    def end(self, engine: int, mine: range, engines: int, *, scale: float | None = None) -> None:
        """`engine` is computed. After the last one all buckets are under way."""
        if not self._mine:
            return super().end(engine, mine, engines, scale=scale)
        self._take_rest(engine, scale)
        for b in range(self._next, len(self.buckets)):
            self._send(b)
        self._next = len(self.buckets)
        self._waits |= self._late
        return None

    def _send(self, b: int, *, again: bool = False) -> None:
        """What this worker has of a bucket, added up as far as it can be alone."""
        assert self._peers is not None
        bucket, engines, parts = self.buckets[b], self._engines_now, dict[int, torch.Tensor]()
        if self._mine:
            newest = self._cut(self._row(self._mine[-1]), bucket)
            chain = buckets.chain(self._mine, engines)
            for i, left in enumerate(chain):
                summed = self._cut(self._own_row(-1), bucket)  # -1: for no place, but for what the last engine completes
                torch.add(self._cut(self._row(left), bucket), summed if i else newest, out=summed)
            parts = {place: self._cut(self._row(place), bucket) for place in tree.parts(self._mine, engines)}
            if chain:
                parts[chain[-1]] = self._cut(self._own_row(-1), bucket)
        ready = torch.cuda.current_stream(self._device).record_event() if self._device.type == "cuda" else None
        number, dtype = b + again * len(self.buckets), self._segment.layout.flat_buffers[bucket.flat_buffer].parts
        self._peers.send(Sent(number, parts, dtype, self._cut(self._own_row(self._engines), bucket), engines, ready))

    def _cut(self, row: Row, bucket: buckets.Bucket) -> torch.Tensor:
        return row.flats[bucket.flat_buffer][bucket.start : bucket.stop]

    def stage_parts(self, engines: int) -> None:
        """All is under way already, but for who has no engine: it adds up its shards of what others send. The others have to know which
        buckets are sent again."""
        if not self._next:
            self._begin_sending(range(0), engines)
            for b in range(len(self.buckets)):
                self._send(b)
        self._group.segment.set(self._group.worker_id, LATE, sum({1 << b % LATE_BITS for b in self._late}))

    def _add_shard(self, _rank: int, _workers: int, _engines: int) -> None:
        """Wait for the sums. Raises Reconfigured where a member has died, RuntimeFailure where all live and nothing comes."""
        group = self._group
        late = [group.segment.get(worker_id, LATE) for worker_id in group.record.members]
        self._wait()
        for b in range(len(self.buckets)):
            if any(word >> b % LATE_BITS & 1 for word in late):
                self._send(b, again=True)
        self._wait()

    def _wait(self) -> None:
        peers, moves, end = self._peers, -1, 0.0
        assert peers is not None

        def look() -> None:
            nonlocal moves, end
            self._group.look()
            heartbeat.beat()  # it is the others who are late
            if peers.moves != moves:
                moves, end = peers.moves, time.monotonic() + ANSWER_S
            if time.monotonic() > end:
                raise RuntimeFailure(NO_ANSWER.format(ANSWER_S, peers.error or "nobody has ended"))

        peers.wait(look)

    def check(self) -> None:
        """Each worker has a sum of its own."""

    def _sum(self, _optimizer: torch.optim.Optimizer) -> Row:
        return self._own_row(self._engines)

    def drop(self) -> None:
        """As there. Where a step is dropped, not before `leave`."""
        super().drop()
        self._begin_sending(range(0), 0)


def parameter_spans(parameters: Sequence[torch.Tensor], flat_buffers: Sequence[FlatBuffer]) -> list[buckets.ParameterSpan]:
    """Where each parameter lies in a row of these flat buffers."""
    number: Mapping[torch.dtype, int] = {flat.dtype: i for i, flat in enumerate(flat_buffers)}
    ends, found = [0] * len(flat_buffers), []
    for p in parameters:
        flat_buffer, size = number[p.dtype], padded(p)
        found.append(buckets.ParameterSpan(flat_buffer, ends[flat_buffer], size, flat_buffers[flat_buffer].parts.itemsize))
        ends[flat_buffer] += size
    return found
