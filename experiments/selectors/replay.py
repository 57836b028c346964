"""The last days once more under other rules: who would have had slots when, and when each run would have ended. Reads only.

What each run did is known from what it held and for how long; slots are given out anew by the planner, to runs as they were submitted.
Beside the other rules today's are replayed too, so that one sees how far such a replay agrees with what was.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import mean
from typing import NamedTuple, cast

from django.db.models import Q

from experiments.cluster import machine_pools, snapshot
from experiments.models import ClusterRules, Grant, Slot, TrainingRun
from experiments.models.runs import ENDED
from experiments.selectors.sharing import sharers
from experiments.selectors.speeds import rates
from training_runtime.protocol import Device
from training_runtime.scheduling.facts import Policy, RunFacts, SlotFacts
from training_runtime.scheduling.simulation import Course, Job, Scene, Work, rate_on, simulate

MOST_RUNS = 300
MOST_GRANTS = 50_000
GAP_S = 30.0
UNIT = {1: 1.0}  # of a run whose speed was not measured: what one slot does in a second
ASSUMED = (
    "Each run did as much as the slots that it held can do: as fast as it was measured on that many, on other numbers in proportion.",
    "Runs are submitted when they were. Those that held slots before the first day begin with it, and nobody holds anything before.",
    "The machines are those that there were, without drains and outages; nobody pauses or stops a run, and nobody's priority changes.",
    "A run that has not ended yet, or waits, stays to the end.",
    f"Slots are given anew at most every {GAP_S:.0f} seconds.",
)


class Span(NamedTuple):
    """A grant, cut to the window: Unix seconds."""

    slot: int
    begin: float
    end: float


@dataclass(frozen=True)
class Fate:
    """What became of a run: seconds from its submission to its first slot and to its end (None: not in the window), and the slot-seconds
    that it held."""

    wait_s: float | None
    end_s: float | None
    slot_s: float


@dataclass(frozen=True)
class RunReplayed:
    """As it was, replayed under today's rules, and under the others. `name`: nothing where whoever asked may not know it."""

    run: int
    name: str
    person: str
    was: Fate
    same: Fate
    other: Fate

    @property
    def difference_s(self) -> float | None:
        """How much later it would have ended than in the replay under today's rules."""
        return None if self.other.end_s is None or self.same.end_s is None else self.other.end_s - self.same.end_s


@dataclass(frozen=True)
class Means:
    """Of a person's runs: means in seconds (None: of none), slot-seconds in all, and how many have not ended in the window."""

    wait_s: float | None
    end_s: float | None
    slot_s: float
    unended: int


@dataclass(frozen=True)
class PersonReplayed:
    """`runs`: how many of theirs; the means to the end are of those that ended in all three."""

    person: str
    runs: int
    was: Means
    same: Means
    other: Means


@dataclass(frozen=True)
class Replay:
    """The window and what came of it. `left_out`: older runs of the days asked for that are not replayed, which `begin` is after."""

    begin: dt.datetime
    end: dt.datetime
    people: list[PersonReplayed]
    runs: list[RunReplayed]
    left_out: int
    cut: bool
    assumed: tuple[str, ...] = ASSUMED


def replay(
    *,
    policy: Policy | None,
    person_weights: Mapping[str, float],
    days: int,
    now: dt.datetime,
    named: Callable[[Collection[int]], Collection[int]],
) -> Replay:
    """The last days under `policy` and with these weights (of those whose weight changes). `named`: which of these runs whoever asks may
    know by name."""
    spans, begin, left_out = _history(now - dt.timedelta(days=days), now)
    waiting = Q(submitted_at__gte=begin) & ~Q(state__in=ENDED) & Q(paused=False, outside=False)
    found = TrainingRun.objects.filter(Q(pk__in=list(spans)) | waiting).select_related("version", "submitted_by", "experiment")
    runs = {run.pk: run for run in found.order_by("-submitted_at", "-id")[: 2 * MOST_RUNS]}
    stored = ClusterRules.current()
    rules = replace(snapshot.planner_rules(stored, runs), person_weights=sharers())
    scene = Scene(_slots(spans, stored), tuple(_jobs(runs, spans, stored, begin)), rules)
    wished = replace(rules, policy=policy or rules.policy, person_weights={**rules.person_weights, **person_weights})
    at, until = begin.timestamp(), now.timestamp()
    same = simulate(scene, now=at, until=until, gap_s=GAP_S)
    other = same if wished == rules else simulate(replace(scene, rules=wished), now=at, until=until, gap_s=GAP_S)
    known = frozenset(named(runs.keys()))
    rows = [
        RunReplayed(
            run=pk,
            name=run.name if pk in known else "",
            person=run.submitted_by.username,
            was=_was(run, spans.get(pk, ()), at),
            same=_fate(run, same, at, until),
            other=_fate(run, other, at, until),
        )
        for pk, run in runs.items()
    ]
    rows.sort(key=lambda row: (-abs(row.difference_s or 0.0), row.run))
    return Replay(begin, now, _people(rows), rows, left_out, same.cut or other.cut)


def _history(begin: dt.datetime, now: dt.datetime) -> tuple[dict[int, list[Span]], dt.datetime, int]:
    """(grants by run, the moment from which on all are there, runs that are left out): of the newest MOST_RUNS runs."""
    in_window = Grant.objects.filter(granted_at__lte=now).filter(Q(released_at__isnull=True) | Q(released_at__gt=begin))
    rows = in_window.filter(run__outside=False).order_by("-granted_at", "-id").values_list("run", "slot", "granted_at", "released_at")
    found: defaultdict[int, list[Span]] = defaultdict(list)
    left_out: set[int] = set()
    at = begin.timestamp()
    for run, slot, since, until in rows[:MOST_GRANTS]:
        if run not in found and len(found) >= MOST_RUNS:
            left_out.add(run)
            at = max(at, (until or now).timestamp())
            continue
        found[run].append(Span(slot, since.timestamp(), (until or now).timestamp()))
    cut = {run: [span._replace(begin=max(at, span.begin)) for span in of if span.end > at] for run, of in found.items()}
    return {run: of for run, of in cut.items() if of}, dt.datetime.fromtimestamp(at, dt.UTC), len(left_out)


def _slots(spans: Mapping[int, Sequence[Span]], rules: ClusterRules) -> tuple[SlotFacts, ...]:
    """Those that there are, and those that held something and are no more."""
    used = {span.slot for of in spans.values() for span in of}
    slots = list(Slot.objects.filter(Q(retired=False) | Q(pk__in=used)).select_related("node"))
    pools = machine_pools.pools({slot.node_id: slot.node for slot in slots}.values()) if rules.several_machines else {}
    return tuple(SlotFacts(slot.pk, slot.node.name, cast(Device, slot.device), pool=pools.get(slot.node_id, "")) for slot in slots)


def _jobs(runs: Mapping[int, TrainingRun], spans: Mapping[int, Sequence[Span]], rules: ClusterRules, begin: dt.datetime) -> Iterable[Job]:
    measured = rates(runs)
    for pk, run in runs.items():
        speeds = measured[pk] or UNIT
        left = _done(spans.get(pk, ()), Work(rates=speeds), run.engines) if run.state in ENDED else None
        device = run.version.device
        facts = RunFacts(
            id=pk,
            name="",
            person=run.submitted_by.username,
            project=str(run.experiment.project_id),
            submitted_at=max(run.submitted_at, begin).timestamp(),
            min_slots=run.min_slots,
            max_slots=run.max_slots,
            engines=run.engines,
            priority=run.counted_priority(rules.priority_ceiling),
            device=cast(Device, device) if device in ("cpu", "gpu") else None,
            prologue_s=0.0,  # it is among what the run held
        )
        yield Job(facts, Work(left, speeds))


def _done(spans: Sequence[Span], work: Work, engines: int | None) -> float:
    """How much the run has done on what it held, in its unit."""
    steps: Counter[float] = Counter()
    for span in spans:
        steps[span.begin] += 1
        steps[span.end] -= 1
    held, total = 0, 0.0
    for begin, end in pairwise(sorted(steps)):
        held += steps[begin]
        total += (end - begin) * rate_on(held, work, engines=engines)
    return total


def _was(run: TrainingRun, spans: Sequence[Span], begin: float) -> Fate:
    came = max(run.submitted_at.timestamp(), begin)
    first = min((span.begin for span in spans), default=None)
    last = max((span.end for span in spans), default=None) if run.state in ENDED else None
    return Fate(
        wait_s=None if first is None else max(0.0, first - came),
        end_s=None if last is None else max(0.0, last - came),
        slot_s=sum(span.end - span.begin for span in spans),
    )


def _fate(run: TrainingRun, course: Course, begin: float, until: float) -> Fate:
    came = max(run.submitted_at.timestamp(), begin)
    first, last = course.begins.get(run.pk), course.ends.get(run.pk)
    return Fate(
        wait_s=None if first is None else first - came,
        end_s=None if last is None else last - came,
        slot_s=sum((until if bar.end is None else bar.end) - bar.begin for bar in course.held_by(run.pk)),
    )


def _people(rows: Iterable[RunReplayed]) -> list[PersonReplayed]:
    by_person: defaultdict[str, list[RunReplayed]] = defaultdict(list)
    for row in rows:
        by_person[row.person].append(row)
    return [
        PersonReplayed(name, len(own), *(_means([getattr(row, which) for row in own], _in_all(own)) for which in ("was", "same", "other")))
        for name, own in sorted(by_person.items())
    ]


def _in_all(rows: Sequence[RunReplayed]) -> list[bool]:
    """Which of the runs ended in all three."""
    return [None not in (row.was.end_s, row.same.end_s, row.other.end_s) for row in rows]


def _means(fates: Sequence[Fate], ended: Sequence[bool]) -> Means:
    waits = [fate.wait_s for fate in fates if fate.wait_s is not None]
    ends = [fate.end_s for fate, counts in zip(fates, ended, strict=True) if counts and fate.end_s is not None]
    return Means(
        wait_s=mean(waits) if waits else None,
        end_s=mean(ends) if ends else None,
        slot_s=sum(fate.slot_s for fate in fates),
        unended=sum(fate.end_s is None for fate in fates),
    )
