"""Journal lines into the database, exactly once: rows and cursor in one transaction. The only writer of metrics, generations,
events and progress.

Lines come from a process that runs user code; they have been parsed, but their content is still bounded here (lengths, number of curves).
What lines mean is in `journal_rows`, how points get into their curves in `curve_points`; here is only the way into the tables.
"""

from __future__ import annotations

import datetime as dt
import logging
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from django.conf import settings
from django.db import transaction
from django.db.models import Q

from experiments.files import retention, runfiles
from experiments.live import notify
from experiments.metrics import journal_rows, slot_deaths
from experiments.metrics.curve_points import store_points
from experiments.metrics.journal_rows import NewPoint, Rows
from experiments.metrics.logged_pace import recent_pace
from experiments.models import GenerationRecord, Grant, JournalCursor, LoggedFacts, RunEvent, RunState, StateDigest, TrainingRun
from experiments.models.runs import LIVE, TRAINED
from experiments.notifications import rules
from experiments.runs import digests, run_values, states
from training_runtime import journal
from training_runtime.journal import Batch
from training_runtime.noted import Noted

log = logging.getLogger(__name__)
MAX_RARE = 10_000  # generations, and events, of a run
MAX_PUSHED_POINTS = 500
BATCH_BYTES = 1 << 20  # a transaction of some 10,000 points: others wait a fraction of a second for the database
TURN_BATCHES = 4
LATE_S = 600.0
MOST_PROLOGUE_S = 86400.0


@dataclass(frozen=True)
class Recorded:
    """Whether the batch was taken (False: its offset is not the cursor, somebody else was faster), and what was new in it."""

    taken: bool
    lines: int = 0
    points: int = 0


@notify.together()
def record(run_id: int, batch: Batch, *, now: dt.datetime) -> Recorded:
    """Store a batch that begins where the cursor stands."""
    before = JournalCursor.objects.filter(run_id=run_id).select_related("run").first()
    if before is None or before.offset != batch.offset:  # none: the run was deleted since the batch was read
        return Recorded(taken=False)
    # Before the transaction, so that others need not wait for the database meanwhile.
    called = run_id if before.lines_of is None else before.lines_of
    rows = journal_rows.understand(called, batch.lines, after=before.seq, step=before.run.step, redone_to=before.redone_to)
    with transaction.atomic():
        # Two readers of one journal: the second waits here, then finds that the cursor is not where it was any more.
        cursor = JournalCursor.objects.select_for_update().filter(run_id=run_id).first()
        if cursor is None or (cursor.offset, cursor.seq) != (batch.offset, before.seq):
            return Recorded(taken=False)
        run = TrainingRun.objects.select_related("experiment").get(pk=run_id)
        _measure_prologue(run, rows)
        points = store_points(run, rows)
        _count_logged(run, rows)
        _store_rare(run, rows)
        _store_noted(run, rows)
        rows.progress |= digests.store_digests(run, rows)
        is_other_tile = (run.bar_done is None) != (rows.progress.get("bar_done", run.bar_done) is None)
        if rows.progress:
            TrainingRun.objects.filter(pk=run.pk).update(**rows.progress)
            for name, value in rows.progress.items():
                setattr(run, name, value)
        after = cursor.seq
        _move_cursor(cursor, rows, batch)
        _follow_state(run, rows, now)
        _tell(run, rows, points, after=after)
        # what has been trained elsewhere has ended, and its policy was carried out there
        if cursor.lines_of is None and run.checkpoints and any(event["kind"] == "checkpoint" for event in rows.events):
            retention.apply(run, now=now)
        if is_other_tile:
            notify.changed(f"run-{run_id}", "plan")
        if +rows.left_out or batch.rejected or rows.refused:
            notify.changed(f"run-{run.pk}", "left_out")
        if cursor.lines_of is None:  # what has been measured elsewhere, and long ago, is nobody's news
            slot_deaths.store_deaths(run, rows.deaths, now=now)
            rules.notify_points(run, points, now=now)
    return Recorded(taken=True, lines=rows.lines, points=len(points))


def _move_cursor(cursor: JournalCursor, rows: Rows, batch: Batch) -> None:
    """To the end of the batch, with what could not be taken of it."""
    cursor.seq, cursor.offset, cursor.mark = rows.seq, batch.end_offset, batch.after
    cursor.redone_to = rows.redone_to
    cursor.rejected += len(batch.rejected) + rows.refused
    cursor.left_out = dict(Counter(cursor.left_out) + rows.left_out)  # which drops those that are 0
    cursor.save()


def catch_up(run_id: int, *, now: dt.datetime, most_batches: int | None = None, final: bool = False) -> int:
    """Read the run's journal from the cursor to its end; the number of lines taken. Harmless when two do it at once.

    After `most_batches` it asks for another turn instead of going on, so that plans and other runs are not kept waiting by a long journal.
    `final`: nobody writes to it any more.
    """
    return catch_up_some(run_id, now=now, most_batches=most_batches, final=final)[0]


def catch_up_some(run_id: int, *, now: dt.datetime, most_batches: int | None, final: bool = False) -> tuple[int, bool]:
    """`catch_up`, and whether its end was reached."""
    folder = runfiles.folder_of(run_id)
    if folder is None:
        return 0, True
    path, taken, turns = folder / journal.FILE_NAME, 0, 0
    while (place := _cursor_position(run_id)) is not None:
        offset, mark = place
        if offset >= settings.EDT_MAX_JOURNAL_BYTES:
            _give_up_reading(run_id)
            break
        batch = journal.read(path, offset, limit_bytes=BATCH_BYTES, final=final)
        if offset and batch.before != mark and _begin_anew(run_id, path, offset=offset, mark=mark):
            continue
        if batch.end_offset == batch.offset:
            break
        if turns == most_batches:
            notify.nudge_ingest(run_id)
            return taken, False
        taken += record(run_id, batch, now=now).lines
        turns += 1
    return taken, True


def _give_up_reading(run_id: int) -> None:
    with transaction.atomic():
        cursor = JournalCursor.objects.select_for_update().get(run_id=run_id)
        if "bytes" not in cursor.left_out:
            cursor.left_out["bytes"] = 1
            cursor.save(update_fields=["left_out"])
            notify.changed(f"run-{run_id}", "left_out")


def _begin_anew(run_id: int, path: Path, *, offset: int, mark: str) -> bool:
    """What the cursor has read is not in the file any more: a power loss has taken lines that were not on the disk yet, and the run has
    written others since. The file is the truth, so it is read again from its first line. Points stay: a step done again has the same.

    A file that is gone or empty says nothing, nor does one of a run that has ended: what is known of it stays.
    """
    if (not mark and journal.read(path, offset).before) or not journal.read(path, 0).lines:
        return False
    with transaction.atomic():
        cursor = JournalCursor.objects.select_for_update().get(run_id=run_id)
        run = TrainingRun.objects.get(pk=run_id)
        if cursor.offset != offset or not run.is_live():
            return False
        log.warning("A journal is not the one that was read before: it is read again run=%d offset=%d", run_id, offset)
        GenerationRecord.objects.filter(run=run).delete()
        RunEvent.objects.filter(run=run).delete()
        StateDigest.objects.filter(run=run).delete()
        cursor.offset, cursor.seq, cursor.mark, cursor.left_out, cursor.redone_to = 0, 0, "", {}, run.step
        cursor.save()
        notify.changed(f"run-{run_id}", "points", "generations", "events")
    return True


def _cursor_position(run_id: int) -> tuple[int, str] | None:
    """How far the run's journal has been read, and the mark of that place; None where there is no such run. The cursor is made with it."""
    return JournalCursor.objects.filter(run_id=run_id).values_list("offset", "mark").first()


def catch_up_all(now: dt.datetime) -> int:
    """`catch_up` for each live run, and for those that ended a short time ago."""
    late = now - dt.timedelta(seconds=LATE_S)
    live = TrainingRun.objects.filter(Q(state__in=LIVE) | Q(ended_at__gte=late), head_node__isnull=False)  # others never had a driver
    return sum(catch_up(run_id, now=now, most_batches=TURN_BATCHES) for run_id in live.values_list("pk", flat=True))


def _store_rare(run: TrainingRun, rows: Rows) -> None:
    """Generations and events, as long as they are rare: user code can write any number of lines."""
    if rows.generations:
        room = max(0, MAX_RARE - GenerationRecord.objects.filter(run=run).count())
        rows.left_out["generations"] += max(0, len(rows.generations) - room)
        GenerationRecord.objects.bulk_create([GenerationRecord(run=run, **row) for row in rows.generations[:room]], ignore_conflicts=True)
    if rows.events:
        room = max(0, MAX_RARE - RunEvent.objects.filter(run=run).count())
        rows.left_out["events"] += max(0, len(rows.events) - room)
        RunEvent.objects.bulk_create([RunEvent(run=run, **row) for row in rows.events[:room]], ignore_conflicts=True)


def _store_noted(run: TrainingRun, rows: Rows) -> None:
    """Parameters and tags that the script logs, and what its process has."""
    if rows.noted or rows.setups or rows.seed is not None:
        facts = LoggedFacts.objects.filter(run=run).first() or LoggedFacts(run=run)
        facts.parameters, facts.tags, too_many = journal_rows.together(facts.parameters, facts.tags, rows.noted)
        rows.left_out["noted"] += too_many
        facts.arguments, facts.packages = journal_rows.set_up(facts.arguments, facts.packages, rows.setups)
        facts.python = journal_rows.version_of_python(rows) or facts.python
        facts.seed = journal_rows.seed_of(rows, before=facts.seed)
        facts.save()
        run_values.keep_arguments(run, facts)


def note(run: TrainingRun, noted: Noted) -> bool:
    """Parameters and tags that somebody logs from outside the run. False where it has too many already: then nothing is kept."""
    with transaction.atomic():
        JournalCursor.objects.select_for_update().filter(run=run).first()  # what its journal says meanwhile waits
        rows = Rows(seq=0, noted=[journal_rows.cleaned(noted)])
        _store_noted(run, rows)
        if rows.left_out["noted"]:
            transaction.set_rollback(True)
            return False
        notify.changed(f"run-{run.pk}", "facts")
    return True


def _measure_prologue(run: TrainingRun, rows: Rows) -> None:
    """How long its script took to come to train(), where this is the first time on its machine: what a move would cost it."""
    began = [event["at"] for event in rows.events if event["kind"] == "started"]
    if not began or run.moved_at is None or run.events.filter(kind="started", at__gte=run.moved_at).exists():
        return
    run.prologue_s = min(MOST_PROLOGUE_S, max(0.0, (began[0] - run.moved_at).total_seconds()))
    TrainingRun.objects.filter(pk=run.pk).update(prologue_s=run.prologue_s)


def _count_logged(run: TrainingRun, rows: Rows) -> None:
    """The steps of a script that does not train with FabricModel are those that it logs, and it is as fast as these come."""
    if rows.logged_step is not None and run.engines is None and "engines" not in rows.progress:
        rows.progress["step"] = max(run.step, rows.logged_step)
        if (pace := recent_pace(run)) is not None:
            rows.progress["step_rate"] = pace


def _follow_state(run: TrainingRun, rows: Rows, now: dt.datetime) -> None:
    """A run whose steps arrive is running; one that says it is suspended is, unless it has been granted slots meanwhile."""
    if rows.progress.get("outcome") == TRAINED:
        notify.nudge_schedule()  # its slots are wanted elsewhere
    if rows.generations and run.engines is None and "engines" not in rows.progress:
        states.at_work(run, reason="Its script runs.", now=now)
    if rows.logged_step is not None and rows.last_word is None:
        states.at_work(run, reason="Its script logs figures.", now=now)
    if rows.last_word is None or run.state not in (RunState.STARTING, RunState.RUNNING, RunState.SUSPENDED):
        return
    holds = Grant.objects.filter(run=run, released_at__isnull=True, release_requested_at__isnull=True).exists()
    if rows.first_step_at is not None and run.started_at is None:
        TrainingRun.objects.filter(pk=run.pk, started_at__isnull=True).update(started_at=rows.first_step_at)
        run.started_at = rows.first_step_at
    if rows.last_word == "step" and (holds or run.state == RunState.STARTING):
        states.transition(run, RunState.RUNNING, reason="It trains.", now=now)
    elif rows.last_word == "suspended" and not holds:
        states.transition(run, RunState.SUSPENDED, reason=rows.suspended_reason, now=now)


def _tell(run: TrainingRun, rows: Rows, points: list[NewPoint], *, after: int) -> None:
    topic = f"run-{run.pk}"
    if rows.lines and len(points) <= MAX_PUSHED_POINTS:
        pushed = [(p.group, p.name, p.step, p.t, p.value, p.workers, p.epoch) for p in points]
        notify.points(run, after=after, seq=rows.seq, points=pushed, progress=progress_of(run))
    elif rows.lines:
        notify.changed(topic, "points")
    if rows.generations:
        notify.changed(topic, "generations", "slots")
        notify.changed("cluster", "feed")
    if rows.events:
        notify.changed(topic, "events", "files")
    if rows.noted:
        notify.changed(topic, "facts")
    if rows.digests:
        notify.changed(topic, "digests")
    if rows.media:
        notify.changed(topic, "media")
    if rows.steps or rows.generations or "bar_done" in rows.progress:
        notify.changed(f"experiment-{run.experiment_id}", "progress")


def progress_of(run: TrainingRun) -> dict[str, object]:
    """How far the run is, as pages are told."""
    bar = None if run.total_steps() else run.bar()
    counted: dict[str, object] = {
        "step": run.step,
        "steps": run.total_steps(),
        "epoch": run.epoch,
        "rate": run.step_rate,
        "workers": run.workers,
    }
    return {**counted, "bar": bar} if bar else counted
