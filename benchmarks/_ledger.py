"""Keeps account of a replay: who held how many slots for how long, what they were entitled to, and what was lost to changes."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from benchmarks._workload import Job


def entitled(demands: Mapping[str, int], slots: int) -> dict[str, float]:
    """The fluid max-min shares: equal parts, what one cannot use is divided among the others."""
    shares: dict[str, float] = {}
    left, people = float(slots), len(demands)
    for name in sorted(demands, key=lambda each: (demands[each], each)):
        shares[name] = min(float(demands[name]), left / people)
        left -= shares[name]
        people -= 1
    return shares


@dataclass
class Ledger:
    """All in slot-seconds, but for `under_demand_s` and `span_s` in seconds.

    Under demand: the jobs that are there asked, together, for at least all slots. `received` and `due`, what each person held and was
    entitled to, count only while they want more than their equal part.
    """

    slots: int
    allocated: float = 0.0
    allocated_under_demand: float = 0.0
    lost: float = 0.0
    under_demand_s: float = 0.0
    span_s: float = 0.0
    received: Counter[str] = field(default_factory=Counter)
    due: Counter[str] = field(default_factory=Counter)
    contention: dict[int, float] = field(default_factory=lambda: defaultdict(float))
    timeline: list[tuple[float, int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._held: dict[int, int] = {}
        self._by_person: Counter[str] = Counter()
        self._demand: Counter[str] = Counter()
        self._shares: dict[str, float] = {}
        self._present = 0
        self._area = 0.0
        self._entered: dict[int, float] = {}
        self._busy = 0

    def came(self, job: Job) -> None:
        self._demand[job.person] += job.slots
        self._entered[job.id] = self._area
        self._present += 1

    def settle(self) -> None:
        """All who came or left at this moment have: work out what everybody is entitled to."""
        self._shares = entitled({person: slots for person, slots in self._demand.items() if slots}, self.slots)

    def holds(self, job: Job, slots: int) -> None:
        """The job holds so many slots from now on; none once it has ended or while it waits."""
        before = self._held.pop(job.id, 0)
        if slots:
            self._held[job.id] = slots
        self._busy += slots - before
        self._by_person[job.person] += slots - before

    def ended(self, job: Job) -> None:
        """The job leaves. Remember how crowded it was while it was there: present jobs, added up over its time."""
        self.holds(job, 0)
        self._demand[job.person] -= job.slots
        self._present -= 1
        self.contention[job.id] = self._area - self._entered.pop(job.id)

    def changed(self, lost: float) -> None:
        self.lost += lost

    def passes(self, seconds: float) -> None:
        """So much time passes with everything as it is."""
        if seconds <= 0:
            return
        self.timeline.append((self.span_s, self._busy, self._present - len(self._held)))
        self.span_s += seconds
        self._area += self._present * seconds
        self.allocated += self._busy * seconds
        if self._demand.total() >= self.slots:
            self.under_demand_s += seconds
            self.allocated_under_demand += self._busy * seconds
        for person, share in self._shares.items():
            if share < self._demand[person]:
                self.received[person] += self._by_person[person] * seconds
                self.due[person] += share * seconds
