"""How the gradients of a step travel between workers: what lies in which bucket, who adds up which shard of it, and in which order. Pure,
standard library only.

A bucket is a run of neighbouring parameters of one flat buffer. Buckets are cut from the end of each flat buffer, because a backward pass
finishes the last parameters first, and are sent in that order. Of each bucket every worker owns one shard: it is sent the parts of all
others, adds them in the order of the tree (see `tree`), and sends the sum to everybody. So each worker sends and receives what it would in
a ring.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from training_runtime.elastic import tree

BUCKET_BYTES = 25 << 20  # as DistributedDataParallel's
PIECE_BYTES = 32 << 20  # of what is sent at once: a whole shard of a bucket. Smaller ones are added in the cache, and cost more in wake-ups
LINE = 16  # shards are whole multiples of so many elements


@dataclass(frozen=True, slots=True)
class ParameterSpan:
    """Where one parameter lies: `size` elements of `item_bytes` each, padding included, from element `start` of `flat_buffer` on."""

    flat_buffer: int
    start: int
    size: int
    item_bytes: int


@dataclass(frozen=True, slots=True)
class Bucket:
    """Elements `start` to `stop` of a flat buffer, and the parameters (their indices) that lie there."""

    flat_buffer: int
    start: int
    stop: int
    parameters: tuple[int, ...]


def plan(places: Sequence[ParameterSpan], bucket_bytes: int = BUCKET_BYTES) -> tuple[Bucket, ...]:
    """The buckets, in the order in which they are sent: by the first parameter in each, the last one first. A parameter is never cut, so
    one that is larger than `bucket_bytes` has a bucket of its own."""
    filling: dict[int, list[int]] = {}
    full: list[list[int]] = []
    for i in reversed(range(len(places))):
        flat_buffer, held = places[i].flat_buffer, filling.get(places[i].flat_buffer, [])
        if held and sum(places[j].size * places[j].item_bytes for j in (*held, i)) > bucket_bytes:
            full.append(held)
            held = []
        filling[flat_buffer] = [*held, i]
    full += [held for held in filling.values() if held]
    found = (Bucket(places[held[0]].flat_buffer, places[held[-1]].start, _end(places[held[0]]), tuple(reversed(held))) for held in full)
    return tuple(sorted(found, key=lambda bucket: -bucket.parameters[0]))


def _end(place: ParameterSpan) -> int:
    return place.start + place.size


def shard_size(size: int, workers: int) -> int:
    """Elements of the largest shard of a bucket of `size`."""
    return -(-size // (workers * LINE)) * LINE


@lru_cache(maxsize=4096)
def shards(size: int, workers: int) -> tuple[range, ...]:
    """The elements of a bucket of `size` that each worker adds up: equal ones but for the end, where some may be short or empty."""
    each = shard_size(size, workers)
    return tuple(range(min(size, rank * each), min(size, (rank + 1) * each)) for rank in range(workers))


@lru_cache(maxsize=4096)
def pieces(shard: range, length: int) -> tuple[range, ...]:
    """`shard` cut into pieces of at most `length` elements."""
    return tuple(range(start, min(start + length, shard.stop)) for start in range(shard.start, shard.stop, length))


@lru_cache(maxsize=1024)
def parts_of(workers: int, engines: int) -> tuple[tuple[int, ...], ...]:
    """For each worker, the places in the tree of the sums that it cannot add up any further alone."""
    return tuple(tree.parts(tree.share(rank, workers, engines), engines) for rank in range(workers))


@lru_cache(maxsize=4096)
def chain(mine: range, engines: int) -> tuple[int, ...]:
    """What is added when the last engine of `mine` is computed: to the sum at each of these places, in this order, all that has been added
    up so far is added, and the result stands there. Empty where that engine's gradients are a part of their own."""
    return tuple(left for left, _ in tree.own_merges(mine, engines)[mine[-1]]) if mine else ()


def sent_bytes(size_bytes: int, *, rank: int, workers: int, engines: int) -> int:
    """What `rank` sends of a bucket: of each of its parts the others' shards, and its own shard of the sum to each of them."""
    mine = len(shards(size_bytes, workers)[rank])
    return len(parts_of(workers, engines)[rank]) * (size_bytes - mine) + mine * (workers - 1)
