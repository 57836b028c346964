"""What will become of everybody's slots, as things are and as somebody wishes them: two simulations of one snapshot, side by side.

Reads only. Everybody sees everybody's lanes, as on the cluster page; names only of runs that they may know.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from experiments.cluster import snapshot
from experiments.cluster.snapshot import Snapshot
from experiments.models import ClusterRules
from experiments.selectors.speeds import works
from training_runtime.scheduling.simulation import Course, Job, Scene, Work, simulate
from training_runtime.scheduling.what_if import NEW_RUN, Wish, added, wished

HORIZON_S = 30 * 86400.0
KEPT_S = 10.0  # so old the course of things as they are may be, while nobody has changed anything
GAP_S = 1.0
GRAIN = 0.05  # what lies a day ahead is told to an hour or so; the machine that it is worked out on has other things to do
LEAST_AXIS_S = 600.0
MOST_LANES = 96
MOST_BARS = 4000
ELSEWHERE = "a run in another project"
ASSUMED = (
    "Runs are as fast as they were measured on that many slots; on numbers of slots that they never had, in proportion.",
    "A run whose length or speed nobody knows yet stays to the end of the picture, and has no end here.",
    "Slots change hands at once. Starting on another machine costs a run what its script took to come to train() the last time.",
    "Nobody submits, pauses, stops or changes anything else.",
    f"What lies far ahead is told to {GRAIN:.0%} of how far ahead it is.",
)


@dataclass(frozen=True)
class RunThen:
    """A run, as things are and as they would be: when it ends; None: not known (`open`), or not within the horizon. `slots`: (held first as
    things are, as they would be). `difference_s`: how much later it would end, where both are known. `name`: nothing where whoever asked
    may not know it."""

    run: int
    name: str
    person: str
    open: bool
    slots: tuple[int, int]
    begins: tuple[dt.datetime | None, dt.datetime | None]
    ends: tuple[dt.datetime | None, dt.datetime | None]

    @property
    def difference_s(self) -> float | None:
        today, then = self.ends
        return (then - today).total_seconds() if today is not None and then is not None else None

    @property
    def is_new(self) -> bool:
        """Whether it is only thought of."""
        return self.run == NEW_RUN


@dataclass(frozen=True)
class FutureBar:
    """A run on a slot; `end`: None where it is still there at the right edge."""

    run: int
    name: str
    person: str
    begin: dt.datetime
    end: dt.datetime | None


@dataclass(frozen=True)
class FutureLane:
    """A slot and who will hold it. `slot`: negative where its machine is only thought of; `state`: "free", "held", "draining"."""

    slot: int
    label: str
    node: str
    state: str
    bars: list[FutureBar]


@dataclass(frozen=True)
class WhatIf:
    """Both courses from `now` to `end`, the right edge of the picture. `more`: lanes that are left out of it; `cut`: more changes than are
    worked out, so that ends that lie far ahead are missing."""

    now: dt.datetime
    end: dt.datetime
    rows: list[RunThen]
    today: list[FutureLane]
    then: list[FutureLane]
    more: int
    cut: bool
    assumed: tuple[str, ...] = ASSUMED


@dataclass(frozen=True)
class Present:
    """Things as they were at `now`, and what will come of them. `settled`: what has to change for it to come otherwise."""

    now: dt.datetime
    settled: object
    scene: Scene
    course: Course


_kept: Present | None = None  # of this process: whoever tries several wishes asks for the same today again and again


def present(seen: Snapshot, *, now: dt.datetime) -> Present:
    """The one before where that is not old and all but the runs' progress is as it was, else a new one."""
    global _kept
    scene, kept = scene_of(seen), _kept
    settled = _settled(scene)
    if kept is not None and 0 <= (now - kept.now).total_seconds() < KEPT_S and kept.settled == settled:
        return kept
    _kept = Present(now, settled, scene, _course(scene, now))
    return _kept


def _settled(scene: Scene) -> object:
    """All of it that the runs' own work does not change from second to second."""
    runs = [({**vars(job.facts), "remaining_s": None}, job.work.left is None, job.work.rates.keys()) for job in scene.jobs]
    return scene.slots, scene.rules, runs


def _course(scene: Scene, now: dt.datetime) -> Course:
    return simulate(scene, now=now.timestamp(), until=now.timestamp() + HORIZON_S, gap_s=GAP_S, grain=GRAIN)


def what_if(wish: Wish, *, now: dt.datetime, named: Callable[[Collection[int]], Collection[int]]) -> WhatIf:
    """The future as it is and with the wish, from `now` or from up to KEPT_S before. `named`: which of these runs whoever asks may know by
    name."""
    seen = snapshot.take_snapshot(ClusterRules.current(), now=now, lock=False)
    is_so = present(seen, now=now)
    now, scene, today = is_so.now, is_so.scene, is_so.course
    other = wished(scene, wish)
    then = today if wish.is_nothing() else _course(other, now)
    known = frozenset(named(seen.runs.keys()))
    names = {pk: run.name if pk in known else "" for pk, run in seen.runs.items()}
    end = _right_edge((today, then), now)
    labels = {pk: (slot.node.name, slot.label()) for pk, slot in seen.slots.items()}
    labels |= {slot.id: (slot.node, labels[like.id][1]) for slot, like in added(scene, wish)}
    return WhatIf(
        now=now,
        end=end,
        rows=_rows(other, (today, then), names),
        today=_lanes(scene, today, labels, names, end)[:MOST_LANES],
        then=_lanes(other, then, labels, names, end)[:MOST_LANES],
        more=max(0, len(other.slots) - MOST_LANES),
        cut=today.cut or then.cut,
    )


def scene_of(seen: Snapshot) -> Scene:
    """The facts of the planner, and of each run what it has yet to do."""
    known = works(seen.runs.values(), {facts.id: len(facts.held) for facts in seen.run_facts})
    return Scene(seen.slot_facts, tuple(Job(facts, known.get(facts.id, Work())) for facts in seen.run_facts), seen.rules)


def _right_edge(courses: Iterable[Course], now: dt.datetime) -> dt.datetime:
    """A little after the last end that is known."""
    last = max((end for course in courses for end in course.ends.values()), default=0.0) - now.timestamp()
    return now + dt.timedelta(seconds=min(HORIZON_S, max(LEAST_AXIS_S, 1.05 * last)))


def _moment(of: Mapping[int, float], run: int) -> dt.datetime | None:
    at = of.get(run)
    return None if at is None or not math.isfinite(at) else dt.datetime.fromtimestamp(at, dt.UTC)


def _rows(scene: Scene, courses: tuple[Course, Course], names: Mapping[int, str]) -> list[RunThen]:
    """Every run that wants slots, the one that is only thought of first, then those whose end changes most, then by their ends."""
    held: list[dict[int, int]] = [{}, {}]
    for which, course in enumerate(courses):
        for bar in course.bars:
            if bar.begin == course.begins[bar.run]:
                held[which][bar.run] = held[which].get(bar.run, 0) + 1
    today, then = courses
    rows = [
        RunThen(
            run=job.facts.id,
            name=names.get(job.facts.id, "the new run"),
            person=job.facts.person,
            open=job.work.left is None,
            slots=(held[0].get(job.facts.id, 0), held[1].get(job.facts.id, 0)),
            begins=(_moment(today.begins, job.facts.id), _moment(then.begins, job.facts.id)),
            ends=(_moment(today.ends, job.facts.id), _moment(then.ends, job.facts.id)),
        )
        for job in scene.jobs
        if not job.facts.paused
    ]
    far = dt.datetime.max.replace(tzinfo=dt.UTC)
    return sorted(rows, key=lambda row: (not row.is_new, -abs(row.difference_s or 0.0), row.ends[1] or far, row.run))


def _lanes(
    scene: Scene, course: Course, labels: Mapping[int, tuple[str, str]], names: Mapping[int, str], end: dt.datetime
) -> list[FutureLane]:
    """A lane for each slot that takes runs or has one, by machine; the first MOST_BARS bars that the picture shows."""
    person = {job.facts.id: job.facts.person for job in scene.jobs}
    bars: dict[int, list[FutureBar]] = {slot.id: [] for slot in scene.slots}
    for bar in course.bars[:MOST_BARS]:
        begin = dt.datetime.fromtimestamp(bar.begin, dt.UTC)
        until = None if bar.end is None or bar.end > end.timestamp() else dt.datetime.fromtimestamp(bar.end, dt.UTC)
        if begin < end:
            name = names.get(bar.run, "the new run") or ELSEWHERE
            bars.setdefault(bar.slot, []).append(FutureBar(bar.run, name, person[bar.run], begin, until))
    lanes = [
        FutureLane(
            slot=slot.id,
            label=labels[slot.id][1],
            node=labels[slot.id][0],
            state="draining" if slot.draining else "held" if bars[slot.id] else "free",
            bars=bars[slot.id],
        )
        for slot in scene.slots
    ]
    return sorted(lanes, key=lambda lane: (lane.node, lane.slot < 0, lane.slot if lane.slot > 0 else -lane.slot))
