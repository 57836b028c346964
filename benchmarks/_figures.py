"""What a replay comes to, in the figures that the papers report. Pure functions of outcomes.

Jain's index: (sum x)^2 / (n sum x^2), 1 when all x are equal (Jain, Chiu, Hawe 1984); x is what a person held against what equal parts
entitled them to, over the time in which they wanted more than their part. Finish-time fairness: the time a job took against the time it
would have taken on a cluster of its own of 1/N of the slots, N being how many jobs were there, on average, while it was (Mahajan et al.,
NSDI 2020).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks._profiles import Placement
from benchmarks._simulator import Outcome
from benchmarks._workload import Job


@dataclass(frozen=True)
class Figures:
    """Hours, and shares of one."""

    avg_jct_h: float
    p99_jct_h: float
    makespan_h: float
    busy_share: float
    jain: float
    ftf_under_2_share: float
    realloc_loss_share: float
    ftf_max: float


def figures(outcome: Outcome) -> Figures:
    jobs, ledger = outcome.workload.jobs, outcome.ledger
    taken = {job.id: outcome.ended_s[job.id] - job.submitted_s for job in jobs}
    rho = [taken[job.id] / isolated_s(job, outcome) for job in jobs]
    return Figures(
        avg_jct_h=sum(taken.values()) / len(jobs) / 3600,
        p99_jct_h=percentile(sorted(taken.values()), 0.99) / 3600,
        makespan_h=max(outcome.ended_s.values()) / 3600,
        busy_share=ledger.allocated_under_demand / (ledger.under_demand_s * ledger.slots) if ledger.under_demand_s else 1.0,
        jain=jain([ledger.received[person] / due for person, due in ledger.due.items()]),
        ftf_under_2_share=sum(each < 2 for each in rho) / len(rho),
        realloc_loss_share=ledger.lost / ledger.allocated,
        ftf_max=max(rho),
    )


def mean(several: Sequence[Figures]) -> Figures:
    """Each figure averaged over workloads, as the papers do."""
    return Figures(*(sum(column) / len(several) for column in zip(*(vars(each).values() for each in several), strict=True)))


def jain(shares: Sequence[float]) -> float:
    squares = sum(each * each for each in shares)
    return sum(shares) ** 2 / (len(shares) * squares) if squares else 1.0


def percentile(ordered: Sequence[float], part: float) -> float:
    """On a straight line between the two nearest ranks."""
    at = (len(ordered) - 1) * part
    low = math.floor(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)


def isolated_s(job: Job, outcome: Outcome) -> float:
    """How long the job would take on its own part of the cluster; a part of a slot counts as a slot for that part of the time."""
    duration = outcome.ended_s[job.id] - job.submitted_s
    crowd = max(1.0, outcome.ledger.contention[job.id] / duration)
    part = min(outcome.ledger.slots / crowd, float(job.slots))
    whole = math.floor(part)
    low = _alone(job, whole, outcome) if whole else 0.0
    high = _alone(job, whole + 1, outcome) if part > whole else low
    return job.work / (low + (high - low) * (part - whole))


def _alone(job: Job, slots: int, outcome: Outcome) -> float:
    return job.rate(_packed(slots, outcome.workload.slots_per_node))


def alone_s(job: Job, slots_per_node: int) -> float:
    """How long the job takes with all it asked for, on as few machines as can be."""
    return job.work / job.rate(_packed(job.slots, slots_per_node))


def _packed(slots: int, slots_per_node: int) -> Placement:
    full, rest = divmod(slots, slots_per_node)
    return (*([rest] if rest else []), *([slots_per_node] * full))
