"""The one binary tree in which the gradients of all engines are summed, whoever computes them. Pure, standard library only.

Engine m is leaf m. The node of level k at m (a multiple of 2^(k+1)) adds the node at m + 2^k to the node at m; a missing right node is
skipped. The sum of a node stands where its first leaf stands. Nothing here knows about tensors: a merge is a pair of places.
"""

from __future__ import annotations

from functools import lru_cache

Merge = tuple[int, int]  # (place added to, place added)


@lru_cache(maxsize=256)
def merges(engines: int) -> tuple[Merge, ...]:
    """All additions of the tree over `engines` leaves, in an order in which each finds its operands finished."""
    found: list[Merge] = []
    width = 1
    while width < engines:
        found += [(m, m + width) for m in range(0, engines - width, 2 * width)]
        width *= 2
    return tuple(found)


def last_leaf(merge: Merge, engines: int) -> int:
    """The last engine below the node that `merge` makes."""
    left, right = merge
    return min(left + 2 * (right - left), engines) - 1


@lru_cache(maxsize=4096)
def share(rank: int, workers: int, engines: int) -> range:
    """The engines that `rank` of `workers` computes: contiguous, sizes differ by one at most."""
    return range(engines * rank // workers, engines * (rank + 1) // workers)


@lru_cache(maxsize=4096)
def own_merges(mine: range, engines: int) -> dict[int, tuple[Merge, ...]]:
    """For each engine of `mine`, the additions that can be made once it is computed, with no other worker's part."""
    ready: dict[int, list[Merge]] = {m: [] for m in mine}
    for merge in merges(engines):
        end = last_leaf(merge, engines)
        if merge[0] >= mine.start and end in ready:
            ready[end].append(merge)
    return {m: tuple(sorted(found, key=lambda merge: merge[1] - merge[0])) for m, found in ready.items()}


@lru_cache(maxsize=4096)
def parts(mine: range, engines: int) -> tuple[int, ...]:
    """The places where the sums stand that are left of the engines `mine` when their worker has made its own additions."""
    gone = {right for found in own_merges(mine, engines).values() for _, right in found}
    return tuple(m for m in mine if m not in gone)


@lru_cache(maxsize=1024)
def cross_rank_merges(workers: int, engines: int) -> tuple[Merge, ...]:
    """The additions left over when each of `workers` has made its own: those that join parts of different workers."""
    own = {merge for rank in range(workers) for found in own_merges(share(rank, workers, engines), engines).values() for merge in found}
    return tuple(merge for merge in merges(engines) if merge not in own)


@lru_cache(maxsize=256)
def rows(workers: int, engines: int) -> dict[int, int]:
    """Which row of memory each place has whose sum is kept in one, from 1 on. A worker uses a row again as soon as its sum has been added
    to another: it needs about log2 of its engines, not one for each. Rows of different workers are never the same."""
    found: dict[int, int] = {}
    first = 1
    for rank in range(workers):
        mine = share(rank, workers, engines)
        own, free, most = own_merges(mine, engines), list[int](), 0
        for m in mine:
            added = (m - 1, m) in own[m]  # its gradients go to its neighbour's row at once
            if not added:
                found[m] = free.pop() if free else first + most
                most = max(most, found[m] - first + 1)
            free += [found[right] for _, right in own[m] if not (added and right == m)]
            free.sort(reverse=True)
        first += most
    return found


def rows_needed(workers: int, engines: int) -> int:
    """How many rows that are: the highest of them, since they are counted from 1."""
    return max(rows(workers, engines).values(), default=0)


def first_rows(workers: int, engines: int) -> list[int]:
    """The row in which each worker's first sum stands."""
    return [rows(workers, engines)[mine.start] for rank in range(workers) if (mine := share(rank, workers, engines))]
