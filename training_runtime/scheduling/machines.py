"""On which machine a run starts that trains on one machine only. Standard library only.

`shares` hands out slots one step at a time. A run that holds nothing, or whose machine is taken by those who go before it, chooses one at
its first step, and then grows there or nowhere. It goes where it can have all it wants without being in anybody's way, and of those
machines to the fullest (best fit); else to where most is left for it when everybody before it and beside it has taken all they can. Its own
machine, where its process already waits, goes before an equal one. Machines that share runs are one machine here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from heapq import heapify, heappop, heappush, heapreplace

from training_runtime.scheduling.demand import Demand

# (what the run may get there, negative; what nobody wants, negative; place by name; name): the smallest is the best.
Offer = tuple[int, int, int, str]


class Machines:
    """The machines with slots of one class while slots are shared out.

    `free`: slots that nobody has taken so far. `beside`: what is left for a newcomer once the runs of higher priority and its equals there
    have taken all they can; `alone`: the same with the lower ones counted too, so that a newcomer avoids suspending somebody.
    """

    def __init__(self, capacity: Mapping[str, int]) -> None:
        self.capacity = capacity
        self.free = dict(capacity)
        self.largest = max(capacity.values(), default=0)
        self.beside: dict[str, int] = {}
        self.alone: dict[str, int] = {}
        self._order = {name: place for place, name in enumerate(sorted(capacity))}
        self._offers: dict[int, list[Offer]] = {}
        self._by_alone: list[list[tuple[int, str]]] = []
        self._hopeless = math.inf

    def open(self, level: Iterable[Demand], below: Iterable[Demand]) -> None:
        """Begin to serve a level of priority: `level` are its runs, `below` those of lower levels."""
        self._offers, self._by_alone, self._hopeless = {}, [], math.inf
        self.beside = self._left(self.free, level)
        self.alone = self._left(self.beside, below)

    def _left(self, free: Mapping[str, int], demands: Iterable[Demand]) -> dict[str, int]:
        left = dict(free)
        for demand in demands:
            if demand.node is not None and not demand.size:
                left[demand.node] -= min(demand.most, self.capacity[demand.node])
        return left

    def choose(self, demand: Demand) -> str | None:
        """The machine on which the run starts; None when none has room for its least. What was chosen counts from now on."""
        if demand.least >= self._hopeless:
            return None
        most = min(demand.most, self.largest)
        if demand.domains is not None:
            name = self._among(demand.domains, demand.run.domain, demand.least, most)
            if name is not None:
                self._file(name, by=min(demand.most, self.capacity[name]))
            return name
        name = self._undisturbed(demand.run.domain, most) or self._most_left(demand.run.domain, demand.least, most)
        if name is None:
            self._hopeless = demand.least  # room only shrinks, so it stays that way
            return None
        self._file(name, by=min(demand.most, self.capacity[name]))
        return name

    def _file(self, name: str, *, by: int) -> None:
        self.beside[name] -= by
        self.alone[name] -= by
        if self._by_alone and self.alone[name] > 0:
            heappush(self._by_alone[self.alone[name]], (self._order[name], name))

    def _undisturbed(self, own: str | None, most: int) -> str | None:
        """The fullest machine where the run can have all it wants and nobody loses anything: its own if that will do."""
        if own is not None and self.alone.get(own, 0) >= most:
            return own
        if not self._by_alone:
            self._by_alone = [[] for _ in range(self.largest + 1)]
            for name, left in self.alone.items():
                if left > 0:
                    self._by_alone[left].append((self._order[name], name))
            for heap in self._by_alone:
                heapify(heap)
        for size in range(most, len(self._by_alone)):
            heap = self._by_alone[size]
            while heap:
                if self.alone[heap[0][1]] == size:
                    return heap[0][1]
                heappop(heap)  # filed anew where it belongs now
        return None

    def _among(self, domains: Iterable[str], own: str | None, least: int, most: int) -> str | None:
        """The same for a run that can be on these machines only."""
        able = [name for name in domains if self.free.get(name, 0) >= least]
        if not able:
            return None
        if own in able and self.alone[own] >= most:
            return own
        if undisturbed := [name for name in able if self.alone[name] >= most]:
            return min(undisturbed, key=lambda name: (self.alone[name], self._order[name]))
        best = min(able, key=lambda name: self._offer(name, most))
        return own if own in able and self._offer(own, most)[:2] <= self._offer(best, most)[:2] else best

    def _most_left(self, own: str | None, least: int, most: int) -> str | None:
        """The machine with room for the run's least where most is left for it."""
        heap = self._offers.get(most)
        if heap is None:
            heap = self._offers[most] = [self._offer(name, most) for name, free in self.free.items() if free > 0]
            heapify(heap)
        aside: list[Offer] = []
        found = None
        while heap:
            offer = heap[0]
            now = self._offer(offer[3], most)
            if now != offer:
                heapreplace(heap, now)  # offers only become worse, so the best one is found in this way
            elif self.free[offer[3]] >= least:
                found = offer
                break
            else:
                heappop(heap)
                if self.free[offer[3]]:
                    aside.append(offer)  # too little for this run, perhaps enough for another
        for offer in aside:
            heappush(heap, offer)
        if found is None:
            return None
        if own is not None and own in self.free and self.free[own] >= least and self._offer(own, most)[:2] <= found[:2]:
            return own
        return found[3]

    def _offer(self, name: str, most: int) -> Offer:
        return -min(self.beside[name], most), -self.alone[name], self._order[name], name
