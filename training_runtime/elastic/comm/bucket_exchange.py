"""Buckets of one generation on their way: a thread that sends this worker's parts, adds up its shard and takes in the sums, while the
backward pass goes on. `buckets` says what goes where, `process_groups` makes the group that it goes through.

Two ways, which give the same bits. `Collectives`: an all-to-all of the parts and an all-gather of the sums, for NCCL, which knows the
wires between GPUs. `Messages`: the same, sent from where it lies to where it belongs: for Gloo, whose collectives copy everything.
"""

from __future__ import annotations

import datetime as dt
import queue
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch

from training_runtime.elastic import tree
from training_runtime.elastic.comm import buckets, process_groups

ABORTED_S = 2.0  # within which the thread of an aborted group must have ended
AHEAD = 4  # buckets whose parts are under way at once
POLL_S = 50e-6
FAILED_S = 0.002  # how often it is looked whether the driver has said what follows, when the group has failed
_NEVER = dt.timedelta(seconds=process_groups.NEVER_S)

Sums = dict[int, torch.Tensor]


@dataclass(frozen=True, eq=False)
class Sent:
    """One bucket: flat tensors of its length, `parts` of `dtype` by the place in the tree, and `total` for the sum, rounded to its own.
    `number`: the same on all workers, below any that is not awaited yet. `ready`: an event of the device, after which the parts are
    there."""

    number: int
    parts: Mapping[int, torch.Tensor]
    dtype: torch.dtype
    total: torch.Tensor
    engines: int
    ready: Any = None


@dataclass
class Link:
    """This worker's place in a group. `store`: by which it was made, to live as long."""

    group: process_groups.Backend
    rank: int
    workers: int
    store: Any = None
    aborted: bool = False

    def add(self, parts: Sums, total: torch.Tensor, engines: int, scratch: Callable[[int], torch.Tensor], own: frozenset[int]) -> None:
        """Add up one piece in the order of the tree, into `total`. `parts` that are this worker's `own` stay as they are: they are read
        again where a gradient comes late."""
        merges = tree.cross_rank_merges(self.workers, engines)
        if not merges:
            total.copy_(parts[0])
            return
        for left, right in merges[:-1]:
            into = scratch(left) if left in own else parts[left]
            parts[left], own = torch.add(parts[left], parts[right], out=into), own - {left}
        left, right = merges[-1]
        torch.add(parts[left], parts[right], out=total)


class Way(ABC):
    """How one bucket travels. `post` begins it, `add` sees this worker's shard added up and on its way to the others; `finish` returns when
    the sum is there and the parts are not read any more."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self._room: dict[tuple[object, torch.dtype], torch.Tensor] = {}

    @abstractmethod
    def post(self, sent: Sent) -> Any: ...

    @abstractmethod
    def add(self, posted: Any) -> None: ...

    @abstractmethod
    def finish(self, posted: Any) -> None: ...

    def clear(self) -> None:
        self._room.clear()

    def _staging(self, name: object, size: int, sent: Sent, dtype: torch.dtype | None = None) -> torch.Tensor:
        """Memory that is used again for each bucket, of the dtype of its parts unless another is said."""
        dtype = dtype or sent.dtype
        held = self._room.get((name, dtype))
        if held is None or held.numel() < size:
            held = self._room[name, dtype] = torch.empty(size, dtype=dtype, device=sent.total.device)
        return held[:size]


class Collectives(Way):
    """On a GPU all of it is put on the thread's stream, and what is waited for is an event: so that an abort can be seen."""

    def post(self, sent: Sent) -> Any:
        self._exchange(sent)
        if not sent.total.is_cuda:
            return None
        done = torch.cuda.Event()  # type: ignore[no-untyped-call]
        done.record()
        return done

    def add(self, posted: Any) -> None:
        """It follows on the stream."""

    def finish(self, posted: Any) -> None:
        while posted is not None and not posted.query():
            if self.link.aborted:
                raise RuntimeError("the group was aborted")
            time.sleep(POLL_S)

    def _exchange(self, posted: Sent) -> None:
        link, total, places = self.link, posted.total, buckets.parts_of(self.link.workers, posted.engines)
        each = buckets.shard_size(total.numel(), link.workers)
        arrived = self._staging("arrived", each * sum(map(len, places)), posted)
        leaving = self._leaving(posted, each)
        counts = [each * len(held) for held in places]
        link.group.alltoall_base(arrived, leaving, counts, [each * len(places[link.rank])] * link.workers).wait()
        parts = {place: arrived[i * each : (i + 1) * each] for i, place in enumerate(place for held in places for place in held)}
        mine = self._staging("mine", each, posted, total.dtype)
        link.add(parts, mine, posted.engines, lambda _: mine, frozenset())
        sums = self._staging("sums", each * link.workers, posted, total.dtype)
        link.group._allgather_base(sums, mine).wait()
        total.copy_(sums[: total.numel()])

    def _leaving(self, sent: Sent, each: int) -> torch.Tensor:
        """For each worker, its shard of each of this worker's parts."""
        workers, parts = self.link.workers, list(sent.parts.values())
        whole = self._staging("leaving", each * len(parts) * workers, sent).view(workers, len(parts), each)
        for i, part in enumerate(parts):
            for shard, row in zip(buckets.shards(part.numel(), workers), whole[:, i], strict=True):
                row[: len(shard)].copy_(part[shard.start : shard.stop])
        return whole.view(-1)


@dataclass(eq=False)
class Posted:
    """Messages of one bucket under way. `arriving`: for each piece of this worker's shard, what comes of it."""

    sent: Sent
    staged: Sums
    arriving: list[list[Any]]
    leaving: list[Any] = field(default_factory=list)
    sums: list[Any] = field(default_factory=list)


class Messages(Way):
    def __init__(self, link: Link, piece_bytes: int = buckets.PIECE_BYTES) -> None:
        super().__init__(link)
        self._piece_bytes = piece_bytes
        self._others = [(link.rank + i) % link.workers for i in range(1, link.workers)]
        self._turn = 0

    def post(self, sent: Sent) -> Posted:
        link, group, total = self.link, self.link.group, sent.total
        shards, places = buckets.shards(total.numel(), link.workers), buckets.parts_of(link.workers, sent.engines)
        mine, tag = shards[link.rank], 2 * sent.number
        self._turn = (self._turn + 1) % (AHEAD + 1)
        staged = {
            place: self._staging((self._turn, place), len(mine), sent) for other in self._others for place in places[other] if len(mine)
        }
        posted = Posted(sent, staged, [])
        for piece in self._pieces(mine, sent):
            inside = slice(piece.start - mine.start, piece.stop - mine.start)
            posted.arriving.append([group.recv([staged[p][inside]], other, tag) for other in self._others for p in places[other]])
        for i in range(max(len(self._pieces(shard, sent)) for shard in shards)):
            for other in self._others:
                for piece in self._pieces(shards[other], sent)[i : i + 1]:
                    posted.sums.append(group.recv([total[piece.start : piece.stop]], other, tag + 1))
                    for part in sent.parts.values():
                        posted.leaving.append(group.send([part[piece.start : piece.stop]], other, tag))
        return posted

    def _pieces(self, shard: range, sent: Sent) -> tuple[range, ...]:
        return buckets.pieces(shard, max(buckets.LINE, self._piece_bytes // sent.dtype.itemsize))

    def add(self, posted: Posted) -> None:
        link, sent, total = self.link, posted.sent, posted.sent.total
        mine = buckets.shards(total.numel(), link.workers)[link.rank]
        for piece, works in zip(self._pieces(mine, sent), posted.arriving, strict=True):
            for work in works:
                work.wait(_NEVER)
            inside = slice(piece.start - mine.start, piece.stop - mine.start)
            parts = {place: part[piece.start : piece.stop] for place, part in sent.parts.items()}
            parts |= {place: part[inside] for place, part in posted.staged.items()}
            link.add(parts, total[piece.start : piece.stop], sent.engines, self._scratch(len(piece), sent), frozenset(sent.parts))
            posted.leaving += [link.group.send([total[piece.start : piece.stop]], other, 2 * sent.number + 1) for other in self._others]

    def finish(self, posted: Posted) -> None:
        for work in (*posted.sums, *posted.leaving):
            work.wait(_NEVER)

    def _scratch(self, size: int, sent: Sent) -> Callable[[int], torch.Tensor]:
        return lambda place: self._staging(("scratch", place), size, sent)


class BucketExchange:
    """The thread. Another one gives it buckets, in an order that is the same on all workers, and waits for all of them."""

    def __init__(self, link: Link, way: type[Way] | None = None) -> None:
        self.link = link
        self._way = (way or (Messages if link.group.name() == "gloo" else Collectives))(link)
        self._given: queue.SimpleQueue[Sent | None] = queue.SimpleQueue()  # None: what was given is waited for
        self._finished = threading.Semaphore(0)
        self._under_way = False
        self._error: BaseException | None = None
        self.moves = 0  # grows as long as something arrives
        self._thread = threading.Thread(target=self._run, name="bucket-exchange", daemon=True)
        self._thread.start()

    def send(self, sent: Sent) -> None:
        """From now on its memory is the exchange's, until `wait` has returned."""
        self._under_way = True
        self._given.put(sent)

    def wait(self, look: Callable[[], None], slice_s: float = 0.05) -> None:
        """Until all that was given is there. `look` is called every `slice_s` while it is not, also when the group has failed, and says by
        an exception what follows: nobody waits here without a deadline of its own or the driver's."""
        if not self._under_way:
            return
        self._given.put(None)
        while not self._finished.acquire(timeout=slice_s if self._error is None else FAILED_S):
            look()
        self._under_way = False

    @property
    def error(self) -> BaseException | None:
        """Why nothing more will come: a member has died, or the group was aborted."""
        return self._error

    def abort(self) -> bool:
        """Give the group up. False where the thread could not be released: then the memory of what was under way must not be used again."""
        self.link.aborted = True
        self._given.put(None)
        if self._under_way:
            process_groups.abort(self.link.group, rank=self.link.rank, workers=self.link.workers)
        self._thread.join(ABORTED_S)
        ended = not self._thread.is_alive()
        if ended:
            self.link.group = None  # with the last reference its connections are closed, which the others notice
        return ended

    def _run(self) -> None:
        try:
            with _stream(self.link.group):
                while self._serve():
                    self._finished.release()
        except Exception as error:  # raised by what waits, when it was aborted or another member is gone
            self._error = error
        finally:
            self._way.clear()

    def _serve(self) -> bool:
        """What is given until it is waited for. While parts of one bucket are awaited, those of a few more are on their way. False where
        the group was given up."""
        posted, added, waited_for = deque[Any](), list[Any](), False
        while not (waited_for and not posted):
            if not waited_for and len(posted) < AHEAD:
                try:
                    sent = self._given.get(block=not posted)
                except queue.Empty:
                    pass
                else:
                    if self.link.aborted:
                        return False
                    if sent is None:
                        waited_for = True
                    else:
                        if sent.ready is not None:
                            sent.ready.wait()
                        posted.append(self._way.post(sent))
                    continue
            self._way.add(posted[0])
            added.append(posted.popleft())
            self.moves += 1
        for each in added:
            self._way.finish(each)
            self.moves += 1
        return True


def _stream(group: process_groups.Backend) -> Any:
    """On a GPU what this thread starts runs beside the backward pass."""
    return nullcontext() if group.name() == "gloo" else torch.cuda.stream(torch.cuda.Stream())  # type: ignore[no-untyped-call]
