"""The signature page's reads: a lane for each slot with who held it, and a feed of what happened in plain words."""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from dataclasses import dataclass
from typing import NamedTuple

from django.db.models import F, Q

from experiments.cluster.snapshot import is_silent
from experiments.models import (
    ClusterChange,
    ClusterRules,
    GenerationRecord,
    Grant,
    Node,
    Project,
    RunState,
    RunTransition,
    Slot,
    TrainingRun,
)
from experiments.models.definitions import TORCHRUN

MOST_BARS = 5000
MOST_REASON = 300
STUCK_AFTER = 2  # times the grace that a worker has for leaving; but at least
STUCK_S = 60.0  # a worker leaves within a step or a grace period; what takes longer is waiting for a device or a file system
VERBS: dict[str, str] = {
    RunState.STARTING: "starts",
    RunState.RUNNING: "started training",
    RunState.SUSPENDED: "is suspended",
    RunState.STOPPING: "is asked to stop",
    RunState.COMPLETED: "completed",
    RunState.FAILED: "failed",
    RunState.STOPPED: "was stopped",
}


HELD = (
    *("id", "slot", "run", "run__name", "run__submitted_by__username"),
    *("granted_at", "released_at", "release_requested_at", "reason", "release_reason"),
)


class Held(NamedTuple):
    """A grant, as much of it as a lane shows: the columns HELD."""

    id: int
    slot: int
    run: int
    name: str
    person: str
    granted_at: dt.datetime
    released_at: dt.datetime | None
    asked_at: dt.datetime | None
    reason: str
    release_reason: str


@dataclass(frozen=True)
class Bar:
    """A run on a slot from `begin` to `end` (None: still). `leaving`: it was asked to give the slot back. Times are cut to the window."""

    run: int
    name: str
    person: str
    begin: dt.datetime
    end: dt.datetime | None
    leaving: bool
    reason: str


@dataclass(frozen=True)
class Lane:
    """A slot and its bars in the window, oldest first.

    `state`: "free", "held", "leaving" (asked to), "stuck" (asked to long ago, its process is still there), "draining", "out" (of service,
    since it looks ill), or "silent": its node says nothing since `silent_since`; what is drawn after that is what was granted, nobody knows
    what is.
    """

    slot: Slot
    state: str
    bars: list[Bar]
    silent_since: dt.datetime | None = None

    def is_held(self) -> bool:
        """Whether the slot is granted to a run, at the end of the window."""
        return bool(self.bars) and self.bars[-1].end is None


@dataclass(frozen=True)
class FeedItem:
    """Something that happened: when, in words, to which run.

    `kind`: "state", "change" (of members), "wish" (of a person), or "cluster" (for everybody, by an administrator: run 0). `unnamed`: the
    same for those who may not know the run: whose it is and what it does, neither its name nor any reason.
    """

    at: dt.datetime
    kind: str
    text: str
    run: int
    name: str
    unnamed: str = ""


def lanes(*, begin: dt.datetime, end: dt.datetime) -> list[Lane]:
    """A lane for each slot that is there, or that held something in the window; in the order of nodes and places.

    All grants that are open, and of the ended ones the newest where they are too many.
    """
    open_ones = Grant.objects.filter(released_at__isnull=True, granted_at__lte=end)
    ended = Grant.objects.filter(released_at__gte=begin, granted_at__lte=end).order_by("-released_at", "-id")[:MOST_BARS]
    rows = [Held(*row) for found in (open_ones, ended) for row in found.values_list(*HELD)]
    bars: dict[int, list[Bar]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: (row.granted_at, row.id)):
        bars[row.slot].append(_bar(row, begin, end))
    held = {row.slot: row for row in rows if row.released_at is None}
    stuck_s = max(STUCK_S, STUCK_AFTER * ClusterRules.current().release_grace_s)
    slots = Slot.objects.select_related("node").filter(Q(retired=False) | Q(pk__in=list(bars)))
    return [
        Lane(
            slot,
            _lane_state(slot, held.get(slot.pk), end, stuck_s),
            bars[slot.pk],
            slot.node.last_seen_at if _is_silent(slot.node, end) else None,
        )
        for slot in slots.order_by("node__name", "device", "index")
    ]


def feed(*, limit: int = 50, run: TrainingRun | None = None, project: Project | None = None) -> list[FeedItem]:
    """The latest happenings, newest first: of the cluster, of a project or of one run. What changes for everybody is in the first alone."""
    where = Q(run=run) if run is not None else Q(run__experiment__project=project) if project is not None else Q()
    moves = RunTransition.objects.filter(where).select_related("run__submitted_by", "actor").order_by("-at", "-id")[:limit]
    as_many = Q(workers=F("workers_before")) & ~Q(run__version__distributed__in=TORCHRUN)  # others start again then
    changes = GenerationRecord.objects.filter(where, workers_before__gt=0).exclude(as_many)
    latest = changes.select_related("run__submitted_by", "run__version").order_by("-at", "-id")[:limit]
    items = [_move(one) for one in moves] + [_change(one) for one in latest]
    if run is None and project is None:
        items += [_for_everybody(one) for one in ClusterChange.objects.order_by("-at", "-id")[:limit]]
    return sorted(items, key=lambda item: (item.at, item.run), reverse=True)[:limit]


def _bar(grant: Held, begin: dt.datetime, end: dt.datetime) -> Bar:
    return Bar(
        run=grant.run,
        name=grant.name,
        person=grant.person,
        begin=max(grant.granted_at, begin),
        end=min(grant.released_at, end) if grant.released_at is not None else None,
        leaving=grant.released_at is None and grant.asked_at is not None,
        reason=grant.release_reason or grant.reason,
    )


def _lane_state(slot: Slot, grant: Held | None, now: dt.datetime, stuck_s: float) -> str:
    if _is_silent(slot.node, now):
        return "silent"
    if grant is not None and grant.asked_at is not None:
        return "stuck" if (now - grant.asked_at).total_seconds() > stuck_s else "leaving"
    if grant is not None:
        return "held"
    if slot.out_reason:
        return "out"
    return "draining" if slot.draining or slot.retired or slot.node.draining or slot.node.storage_problem else "free"


def _is_silent(node: Node, at: dt.datetime) -> bool:
    """At the end of a window. One that was heard of since was not, as far as is known."""
    return is_silent(node, max(at, node.last_seen_at or at))


def _label(run: TrainingRun) -> str:
    return f"{run.submitted_by.username}'s run {run.name}"


def _unnamed(run: TrainingRun) -> str:
    return f"{run.submitted_by.username}'s run in another project"


def _for_everybody(change: ClusterChange) -> FeedItem:
    return FeedItem(change.at, "cluster", f"{change.text}{f': {change.reason}' if change.reason else '.'}", 0, "the cluster")


def _move(move: RunTransition) -> FeedItem:
    """What a transition says: a person's wish, or a new state with its reason."""
    name, unnamed = _label(move.run), _unnamed(move.run)
    if move.old == move.new:
        text, kind, done = f"{name}: {move.reason}", "wish", "was changed"
    elif not move.old:
        text, kind, done = f"{move.run.submitted_by.username} submitted {move.run.name}.", "state", "was submitted"
    else:
        done = VERBS.get(move.new, move.new)
        text, kind = f"{name} {done}{_because(move)}", "state"
    return FeedItem(move.at, kind, text, move.run_id, move.run.name, f"{unnamed} {done}.")


def _because(move: RunTransition) -> str:
    reason = move.reason.split("\n", 1)[0].strip()[:MOST_REASON]
    return f": {reason}" if reason and move.new not in (RunState.RUNNING, RunState.COMPLETED) else "."


def _change(change: GenerationRecord) -> FeedItem:
    """How a run's workers changed, why, and what that cost."""
    cost = f"{change.pause_ms:.0f} ms pause, {change.redone} {'step' if change.redone == 1 else 'steps'} redone"
    if change.is_restart():
        cost = f"{change.pause_ms / 1000:.1f} s until its workers were started again"
    reason = f"{change.reason.rstrip('.')}; " if change.reason else ""
    members = f"{change.workers_before} → {change.workers} workers"
    text = f"{_label(change.run)}: {members} at step {change.step}: {reason}{cost}."
    return FeedItem(change.at, "change", text, change.run_id, change.run.name, f"{_unnamed(change.run)}: {members}.")
