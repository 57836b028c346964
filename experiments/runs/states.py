"""The one way a run changes state: compare-and-swap, a history row with the reason, a word to the pages and to people. Decides nothing.

People are told at once, but not that a run is suspended: a run that moves to another machine is for a second, and one that is asked to wait
for a moment need not be told of. When they are to be told is written down with the state (`tell_at`), and goes with it.
"""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from django.db import transaction

from experiments.live import notify
from experiments.models import DefinitionVersion, RunState, RunTransition, SearchTrial, TrainingRun, User
from experiments.models.runs import ENDED
from experiments.notifications import rules

S = RunState
LEGAL: dict[str, frozenset[str]] = {
    S.QUEUED: frozenset({S.STARTING, S.STOPPING, *ENDED}),
    S.STARTING: frozenset({S.RUNNING, S.SUSPENDED, S.STOPPING, *ENDED}),
    S.RUNNING: frozenset({S.STARTING, S.SUSPENDED, S.STOPPING, *ENDED}),
    S.SUSPENDED: frozenset({S.STARTING, S.RUNNING, S.STOPPING, *ENDED}),
    S.STOPPING: frozenset(ENDED),
}
REASON_LIMIT = 4000
QUIET = dt.timedelta(seconds=30)  # most scripts have called train() by then
LASTS = dt.timedelta(seconds=10)  # a suspension that is over sooner is nobody's news


@dataclass(frozen=True)
class Step:
    """A change of state: the new state, and the reason."""

    run: TrainingRun
    new: str
    reason: str


def transition(
    run: TrainingRun,
    new: str,
    *,
    reason: str,
    now: dt.datetime,
    actor: User | None = None,
) -> bool:
    """Bring the run to `new` if that is legal from the state it is in, as the database says; whether this call did it.

    The first `running` sets `started_at`, an end sets `ended_at`. The caller's copy of the run, which may be old, is brought up to date.
    """
    return bool(transition_all([Step(run, new, reason)], now=now, actor=actor))


@notify.together()
def transition_all(steps: Sequence[Step], *, now: dt.datetime, actor: User | None = None) -> list[TrainingRun]:
    """`transition` for many runs, in a few statements. Returns the runs that this call changed."""
    if not steps:
        return []
    with transaction.atomic():
        # In the order of ids, as everybody locks runs. A run that is missing was deleted meanwhile.
        locked = TrainingRun.objects.select_for_update(no_key=True).filter(pk__in=[step.run.pk for step in steps]).order_by("pk")
        found = {pk: (state, started_at) for pk, state, started_at in locked.values_list("pk", "state", "started_at")}
        alike: defaultdict[tuple[str, str, str, bool], list[TrainingRun]] = defaultdict(list)
        for step in steps:
            run = step.run
            if run.pk not in found:
                continue
            run.state, run.started_at = found[run.pk]
            if step.new in LEGAL.get(run.state, ()):
                alike[run.state, step.new, step.reason[:REASON_LIMIT], run.started_at is None].append(run)
        done = [run for (old, new, reason, _), runs in alike.items() for run in _move(runs, old, new, reason=reason, now=now)]
        old_of = {run.pk: old for (old, *_), runs in alike.items() for run in runs}
        RunTransition.objects.bulk_create(
            RunTransition(run=run, at=now, old=old_of[run.pk], new=run.state, reason=run.state_reason, actor=actor) for run in done
        )
        for run in done:
            if run.state != S.SUSPENDED:
                rules.notify_state(run, reason=run.state_reason, now=now, actor=actor)
            _tell(run)
        if SearchTrial.objects.filter(run__in=[run for run in done if run.state in ENDED]).exists():
            notify.nudge_searches()
    return done


def _move(runs: list[TrainingRun], old: str, new: str, *, reason: str, now: dt.datetime) -> list[TrainingRun]:
    """Compared and swapped in one statement for runs that change alike; those that did. `now` and `reason` are the same for all."""
    changes = _changes(runs[0], new, reason=reason, now=now)
    moved = TrainingRun.objects.filter(pk__in=[run.pk for run in runs], state=old).update(**changes)
    if moved != len(runs):  # only a database without row locks lets somebody in between, and then only one run was asked for at a time
        assert len(runs) == 1, "the rows are locked"
        return []
    for run in runs:
        for name, value in changes.items():
            setattr(run, name, value)
    return runs


def tell_suspended(now: dt.datetime) -> int:
    """Tell people of the runs that have been suspended for a while and still are; how many. Each suspension is told of once.

    Whoever goes on meanwhile is not told of: the condition is compared again in the statement that takes the time away, so a transition
    that comes at this very moment is either before it or after.
    """
    due = TrainingRun.objects.filter(state=S.SUSPENDED, tell_at__lte=now)
    told = 0
    for run in due.select_related("submitted_by", "experiment__project"):
        with transaction.atomic():
            if due.filter(pk=run.pk).update(tell_at=None):
                rules.notify_state(run, reason=run.state_reason, now=now, actor=None)
                told += 1
    return told


def tell_at_work(now: dt.datetime) -> int:
    """Runs whose script has had slots for a while and has not called train() are running: it may never call it. How many."""
    late = now - QUIET
    quiet = TrainingRun.objects.filter(state=S.STARTING, engines=None, grants__released_at=None, grants__granted_at__lte=late).distinct()
    quiet = quiet.filter(version__distributed=DefinitionVersion.Distributed.ELASTIC)  # the others say when their script starts
    reason = "Its script runs. It has not called train() so far."
    return sum(at_work(run, reason=reason, now=now) for run in quiet.select_related("experiment"))


def at_work(run: TrainingRun, *, reason: str, now: dt.datetime) -> bool:
    """A run that is starting runs its script, since it got its slots; whether this call said so."""
    if run.state != S.STARTING:
        return False
    since = began_at(run)
    if since is not None:
        TrainingRun.objects.filter(pk=run.pk, started_at=None).update(started_at=since)
    return transition(run, S.RUNNING, reason=reason, now=now)


def began_at(run: TrainingRun) -> dt.datetime | None:
    """When the run first got slots; None if it never did."""
    return run.transitions.filter(new=S.STARTING).order_by("at", "id").values_list("at", flat=True).first()


def begin(run: TrainingRun, *, reason: str, now: dt.datetime, actor: User) -> None:
    """The first row of a run's history. The caller has just stored the run and is in a transaction."""
    RunTransition.objects.create(run=run, at=now, old="", new=run.state, reason=reason[:REASON_LIMIT], actor=actor)
    _tell(run)


def note(run: TrainingRun, *, reason: str, now: dt.datetime, actor: User | None) -> None:
    """Something a person did to a run that leaves its state alone (priority, slots, pause): a history row from the state to itself."""
    RunTransition.objects.create(run=run, at=now, old=run.state, new=run.state, reason=reason[:REASON_LIMIT], actor=actor)
    rules.notify_change(run, reason=reason, now=now, actor=actor)
    notify.changed(f"run-{run.pk}", "history", "wishes")
    notify.changed("cluster", "jobs", "feed")


@dataclass(frozen=True)
class Past:
    """A row of a history that took place elsewhere; who asked is among its reason's words."""

    at: dt.datetime
    old: str
    new: str
    reason: str


def recall(histories: Iterable[tuple[TrainingRun, Sequence[Past]]]) -> None:
    """The histories of runs that were just stored and have ended. The caller is in a transaction."""
    rows = (
        RunTransition(run=run, at=past.at, old=past.old, new=past.new, reason=past.reason[:REASON_LIMIT])
        for run, history in histories
        for past in history
    )
    RunTransition.objects.bulk_create(rows, batch_size=1000)


def _changes(run: TrainingRun, new: str, *, reason: str, now: dt.datetime) -> dict[str, object]:
    changes: dict[str, object] = {"state": new, "state_reason": reason, "tell_at": now + LASTS if new == S.SUSPENDED else None}
    if new == S.RUNNING and run.started_at is None:
        changes["started_at"] = now
    if new in ENDED:
        changes |= {"ended_at": now, "queue_position": None, "expected_start_s": None, "workers": 0, "plan_reason": ""}
    return changes


def _tell(run: TrainingRun) -> None:
    notify.changed(f"run-{run.pk}", "state", "history")
    notify.changed(f"experiment-{run.experiment_id}", "runs")
    notify.changed(f"project-{run.experiment.project_id}", "runs")
    notify.changed("cluster", "jobs", "feed")
    if run.state in ENDED:
        notify.completed(run)
