"""Verbs on a run: stop, pause, resume, priority, slots, notes, delete. They store wishes; the planner and the node host carry them out."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Iterable

from django.db import transaction
from django.utils import timezone

from experiments.errors import DomainError
from experiments.live import notify
from experiments.models import ClusterRules, Project, RunState, TrainingRun, User
from experiments.models.definitions import MAX_SLOTS_LIMIT
from experiments.models.runs import LIVE
from experiments.runs import run_values, states
from experiments.services import checks, deletion

REASON_LIMIT = 400
TAG_LIMIT, MOST_TAGS = 40, 12
AWAITED = "A run that continues from its checkpoint has not begun yet: let it begin, or stop it."
OUTSIDE = "The run is logged from outside: it holds no slots, and nothing here can pause or plan it."
NOT_ENDED = "The run has not ended: stop it, then delete it."


def stop_run(run: TrainingRun, *, by: User, reason: str = "", now: dt.datetime | None = None) -> TrainingRun:
    """Ask the run to end at its next step boundary; one that has no driver yet ends at once. Harmless on one that has ended."""
    now = now or timezone.now()
    words = _because(f"Stopped by {by.username}", reason)
    with transaction.atomic():
        run = _locked(run)
        if not run.is_live() or run.stop_requested_at is not None:
            return run
        run.stop_requested_at, run.stop_reason = now, words
        run.save(update_fields=["stop_requested_at", "stop_reason"])
        # Without a head node no plan has promised it anything: no process of it was ever asked for, so there is nothing to wait for.
        states.transition(run, RunState.STOPPED if run.head_node is None else RunState.STOPPING, reason=words, now=now, actor=by)
        _nudge(run)
    return run


def pause_run(run: TrainingRun, *, by: User, reason: str = "", now: dt.datetime | None = None) -> TrainingRun:
    """Take its slots away, keep its state. Harmless when paused."""
    return _set_paused(run, paused=True, by=by, words=_because(f"Paused by {by.username}", reason), now=now or timezone.now())


def resume_run(run: TrainingRun, *, by: User, reason: str = "", now: dt.datetime | None = None) -> TrainingRun:
    """Let it have slots again. Harmless when not paused."""
    return _set_paused(run, paused=False, by=by, words=_because(f"Resumed by {by.username}", reason), now=now or timezone.now())


def set_priority(run: TrainingRun, *, by: User, priority: int, now: dt.datetime | None = None) -> TrainingRun:
    """1-10000, higher first. Above the ceiling of the scheduling policy it counts once an administrator has set it. Field: priority."""
    checks.whole(priority, field="priority", least=1, most=10_000)
    with transaction.atomic():
        run = _live(run, field="priority")
        agreed = priority if by.administers else run.priority_agreed
        if (run.priority, run.priority_agreed) != (priority, agreed):
            ceiling = ClusterRules.current().priority_ceiling
            words = f"{by.username} changed the priority from {run.priority} to {priority}."
            if run.priority == priority:
                words = f"{by.username} agreed to the priority of {priority}."
            run.priority, run.priority_agreed = priority, agreed
            if (counts := run.counted_priority(ceiling)) < priority:
                words += f" It counts as {counts} until an administrator agrees."
            run.save(update_fields=["priority", "priority_agreed"])
            states.note(run, reason=words, now=now or timezone.now(), actor=by)
            _nudge(run)
    return run


def set_slots(run: TrainingRun, *, by: User, min_slots: int, max_slots: int, now: dt.datetime | None = None) -> TrainingRun:
    """Fields: min_slots, max_slots."""
    checks.whole(min_slots, field="min_slots", least=1, most=MAX_SLOTS_LIMIT)
    checks.whole(max_slots, field="max_slots", least=1, most=MAX_SLOTS_LIMIT)
    if min_slots > max_slots:
        checks.refuse("min_slots", f"{min_slots} is more than the maximum of {max_slots}: lower it, or raise the maximum.")
    with transaction.atomic():
        run = _live(run, field="max_slots")
        if run.version.is_fixed:
            _check_fixed(run, min_slots, max_slots)
        if (run.min_slots, run.max_slots) != (min_slots, max_slots):
            words = f"{by.username} changed the slots from {run.min_slots}-{run.max_slots} to {min_slots}-{max_slots}."
            run.min_slots, run.max_slots = min_slots, max_slots
            run.save(update_fields=["min_slots", "max_slots"])
            states.note(run, reason=words, now=now or timezone.now(), actor=by)
            _nudge(run)
    return run


def set_any_kind(run: TrainingRun, *, by: User, allowed: bool, now: dt.datetime | None = None) -> TrainingRun:
    """Whether it may go on on other kinds of machines than it has trained on, where its results differ. Field: any_kind."""
    with transaction.atomic():
        run = _live(run, field="any_kind")
        if run.any_kind != allowed:
            words = f"{by.username} {'allowed' if allowed else 'no longer allows'} other kinds of machines."
            run.any_kind = allowed
            run.save(update_fields=["any_kind"])
            states.note(run, reason=words, now=now or timezone.now(), actor=by)
            _nudge(run)
    return run


def _check_fixed(run: TrainingRun, min_slots: int, max_slots: int) -> None:
    kind = run.version.get_distributed_display()
    if min_slots != max_slots:
        checks.refuse("min_slots", f"{kind}: the run starts with all of its slots, so make both numbers the same.")
    if run.state != RunState.QUEUED and max_slots != run.max_slots:
        checks.refuse(
            "max_slots", f"{kind}: the run keeps as many slots as it started with. Stop it, and run it again with another number."
        )
    checks.on_one_machine(max_slots, device=run.version.device)


def annotate_run(run: TrainingRun, *, by: User, tags: Iterable[str] | None = None, note: str | None = None) -> TrainingRun:
    """None leaves them, or it, as they are by then. Fields: tags, note."""
    clean_note = checks.text(note, field="note") if note is not None else None
    clean_tags = _tags(tags) if tags is not None else None
    with transaction.atomic():
        run = _locked(run)
        run.tags = run.tags if clean_tags is None else clean_tags
        run.note = run.note if clean_note is None else clean_note
        _keep_notes(run, by)
    return run


def tag_runs(runs: Iterable[TrainingRun], *, by: User, tag: str) -> None:
    """One more tag for each, beside those that it has by then. Field: tags."""
    for run in runs:
        with transaction.atomic():
            now = _locked(run)
            now.tags = _tags([*now.tags, tag])
            _keep_notes(now, by)


def _keep_notes(run: TrainingRun, by: User) -> None:
    run.save(update_fields=["tags", "note"])
    run_values.keep_tags(run)
    checks.audit(by, "annotates run %s", run.pk)
    _tell_notes(run)


def delete_run(run: TrainingRun, *, by: User) -> None:
    """An ended run, with its files. Refused while it is live."""
    delete_runs([run], by=by)


def delete_runs(runs: Collection[TrainingRun], *, by: User, now: dt.datetime | None = None) -> None:
    """Ended runs of one experiment, with their files: all of them or, where one is refused, none."""
    experiment = next(iter(runs)).experiment
    found = TrainingRun.objects.filter(pk__in=[run.pk for run in runs], experiment=experiment)
    with transaction.atomic():
        Project.objects.select_for_update().get(pk=experiment.project_id)  # no run begins to continue one of them meanwhile
        if (live := found.filter(state__in=LIVE).first()) is not None:
            raise DomainError(NOT_ENDED if len(runs) == 1 else f"{live.name} (run {live.pk}) has not ended: nothing was deleted.")
        awaiting = TrainingRun.objects.filter(continues__in=found.values("pk"), state__in=LIVE, started_at=None)
        if awaiting.exists():
            raise DomainError(AWAITED)
        for run in found:
            checks.audit(by, "deletes run %s (%s)", run.pk, run.name)
        deletion.of_runs(found, by=by, now=now or timezone.now())
        notify.changed(f"experiment-{experiment.pk}", "runs")
        notify.changed(f"project-{experiment.project_id}", "runs")
        notify.changed("cluster", "jobs", "feed", "lanes")


def _set_paused(run: TrainingRun, *, paused: bool, by: User, words: str, now: dt.datetime) -> TrainingRun:
    with transaction.atomic():
        run = _locked(run)
        if run.outside:
            raise DomainError(OUTSIDE)
        if run.is_live() and run.stop_requested_at is None and run.paused != paused:
            run.paused = paused
            run.save(update_fields=["paused"])
            states.note(run, reason=words, now=now, actor=by)
            _nudge(run)
    return run


def _locked(run: TrainingRun) -> TrainingRun:
    """The run as it is now, kept so to the end of the transaction: a tick locks it too, before it plans with it."""
    found = TrainingRun.objects.select_for_update(of=("self",), no_key=True).select_related("experiment", "head_node")
    return found.get(pk=run.pk)


def _live(run: TrainingRun, *, field: str) -> TrainingRun:
    run = _locked(run)
    if run.outside:
        checks.refuse(field, OUTSIDE)
    if not run.is_live():
        checks.refuse(field, "The run has ended: there is nothing to change any more.")
    return run


def _tags(tags: Iterable[str]) -> list[str]:
    clean = list(dict.fromkeys(checks.name(tag, field="tags", limit=TAG_LIMIT) for tag in tags if tag.strip()))
    if len(clean) > MOST_TAGS:
        checks.refuse("tags", f"{len(clean)} tags are too many: keep at most {MOST_TAGS}.")
    return clean


def _tell_notes(run: TrainingRun) -> None:
    notify.changed(f"run-{run.pk}", "notes")
    notify.changed(f"experiment-{run.experiment_id}", "runs")


def _nudge(run: TrainingRun) -> None:
    notify.nudge_schedule()
    if run.head_node is not None:
        notify.nudge_node(run.head_node.name)


def _because(what: str, reason: str) -> str:
    clean = " ".join(reason.split())[:REASON_LIMIT].replace("\0", "").encode(errors="replace").decode()
    return f"{what}: {clean}" if clean else f"{what}."
