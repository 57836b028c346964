"""The decision: who should hold which slots, and why. A pure function of the facts, with no clock, no I/O and no memory of its own.

`shares` says how many slots each run gets, `placement` which ones, `forecast` when waiting runs may start, `reasons` puts it into words.
A preview is the same function with changed facts; `changes.difference` tells two plans apart in sentences.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from operator import attrgetter

from training_runtime.scheduling.demands import Memory
from training_runtime.scheduling.facts import Plan, Rules, RunFacts, SlotFacts
from training_runtime.scheduling.forecast import forecast
from training_runtime.scheduling.placement import assign_slots
from training_runtime.scheduling.reasons import reasons
from training_runtime.scheduling.shares import Shares, share_out


def plan(slots: Sequence[SlotFacts], runs: Sequence[RunFacts], *, now: float, rules: Rules) -> Plan:
    """Decide who should hold which slots.

    `now` is on the clock of `RunFacts.submitted_at`. The answer is the same for the same facts in any order; asked again with its own
    answer applied it changes nothing. Ids must be unique within `slots` and within `runs`.
    """
    slots, runs = _ordered(slots, runs, now=now)
    shares, grants = _shared_and_placed(slots, runs, rules, now=now)
    forecasts = forecast(shares, rules=rules)
    return Plan(
        grants=grants,
        reasons=reasons(slots, shares, grants, forecasts, rules=rules),
        queue={run: found.waiting for run, found in forecasts.items()},
        favoured=_favoured(shares, grants),
    )


def allocate(
    slots: Sequence[SlotFacts], runs: Sequence[RunFacts], *, now: float, rules: Rules, memory: Memory | None = None
) -> tuple[Mapping[int, frozenset[int]], frozenset[int]]:
    """(grants, favoured) of `plan` without its words and queue, for who asks very often: a simulation, which passes its own `memory`."""
    slots, runs = _ordered(slots, runs, now=now)
    shares, grants = _shared_and_placed(slots, runs, rules, now=now, memory=memory)
    return grants, _favoured(shares, grants)


def _ordered(slots: Sequence[SlotFacts], runs: Sequence[RunFacts], *, now: float) -> tuple[list[SlotFacts], list[RunFacts]]:
    """Slots by number and runs oldest first, so that the order in which the caller names them cannot matter."""
    assert math.isfinite(now), "now is seconds on the clock of the runs' times"
    return sorted(slots, key=attrgetter("id")), sorted(runs, key=attrgetter("submitted_at", "id"))


def _favoured(shares: Shares, grants: Mapping[int, frozenset[int]]) -> frozenset[int]:
    return frozenset(run for run in shares.favoured if grants[run])


def _shared_and_placed(
    slots: Sequence[SlotFacts], runs: Sequence[RunFacts], rules: Rules, *, now: float, memory: Memory | None = None
) -> tuple[Shares, Mapping[int, frozenset[int]]]:
    """How many slots each run gets, and which.

    Among machines that share runs there are runs that cannot use all of them (`RunFacts.alone`, `avoids`). What such a run cannot have it
    is not given: it is decided anew, with that as the most it can use. Each time some run's most becomes smaller, so this ends.
    """
    caps: dict[int, int] = {}
    while True:
        shares = share_out(slots, runs, rules=rules, now=now, caps=caps, memory=memory)
        grants = assign_slots(slots, shares.demands.values(), one_domain=rules.one_machine)
        short = {
            demand.run.id: len(grants[demand.run.id]) for demand in shares.demands.values() if len(grants[demand.run.id]) < demand.size
        }
        if not short:
            return shares, grants
        caps |= short
