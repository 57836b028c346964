"""Journal lines into the database, exactly once, whatever the lines say."""

from __future__ import annotations

import datetime as dt
import math
import os
from typing import Any

import pytest
from django.utils import timezone

from experiments import selectors
from experiments.cluster import scheduling
from experiments.files import runfiles
from experiments.metrics import curve_points, ingest
from experiments.models import JournalCursor, Metric, MetricSeries, Node, Project, RunState, TrainingRun, User
from experiments.runs import states
from tests import cast
from tests.conftest import SentMessages
from training_runtime import journal
from training_runtime.journal import Batch, Checkpoint, Failed, Generation, Line, Member, Resumed, Suspended, Test, Train, Warned

pytestmark = pytest.mark.django_db
NOW = dt.datetime(2026, 11, 20, 12, 0, tzinfo=dt.UTC)


@pytest.fixture
def run(project: Project, alice: User) -> TrainingRun:
    cast.node(now=NOW)
    made = cast.run(project, by=alice, now=NOW)
    scheduling.tick(NOW)
    made.refresh_from_db()
    return made


def generation(number: int, workers: int, before: int, step: int = 0) -> Generation:
    members = tuple(Member(rank=rank, slot=rank + 1, pid=100 + rank) for rank in range(workers))
    return Generation(number, step, 1, members, before, "bob's run started", 23.4, 0)


def take(run: TrainingRun) -> int:
    taken = ingest.catch_up(run.pk, now=NOW)
    run.refresh_from_db()
    return taken


def test_a_whole_journal_becomes_rows(run: TrainingRun) -> None:
    cast.write_journal(
        run,
        cast.started(engines=4, epochs=2, steps=5),
        generation(1, 4, 0),
        cast.step(1, loss=2.0),
        cast.step(2, loss=1.5),
        generation(2, 2, 4, step=3),
        cast.step(3, loss=1.0, workers=2),
        Test(step=3, epoch=1, metrics={"loss": 0.9, "accuracy": 0.8}, samples=100),
        Checkpoint(3, 1, "model", ("model/model_epoch_1.pth",), 4000),
        Warned("The loader is slow."),
    )
    assert take(run) == 9
    assert (run.engines, run.batch_size, run.epochs, run.total_steps(), run.parameters) == (4, 16, 2, 10, 1000)
    assert (run.state, run.step, run.epoch, run.workers) == (RunState.RUNNING, 3, 1, 2)
    assert run.step_rate == pytest.approx(10.0)
    assert {(s.group, s.name): (s.points, s.last_step, s.last_value) for s in MetricSeries.objects.filter(run=run)} == {
        ("train", "loss"): (3, 3, 1.0),
        ("test", "loss"): (1, 3, 0.9),
        ("test", "accuracy"): (1, 3, 0.8),
    }
    assert [(g.workers_before, g.workers, g.step, g.slots) for g in run.generations.all()] == [(0, 4, 0, [1, 2, 3, 4]), (4, 2, 3, [1, 2])]
    assert [event.kind for event in run.events.all()] == ["started", "checkpoint", "warning"]
    assert JournalCursor.objects.get(run=run).offset == (runfiles.folder(run) / journal.FILE_NAME).stat().st_size


def test_reading_again_changes_nothing(run: TrainingRun) -> None:
    cast.write_journal(run, cast.started(), cast.step(1), cast.step(2))
    assert take(run) == 3
    before = list(Metric.objects.values()), list(JournalCursor.objects.values())
    assert take(run) == 0
    assert (list(Metric.objects.values()), list(JournalCursor.objects.values())) == before


def test_a_batch_that_does_not_begin_at_the_cursor_is_refused(run: TrainingRun) -> None:
    cast.write_journal(run, cast.started(), cast.step(1))
    batch = journal.read(runfiles.folder(run) / journal.FILE_NAME, 0)
    assert ingest.record(run.pk, batch, now=NOW).taken
    assert ingest.record(run.pk, batch, now=NOW) == ingest.Recorded(taken=False)
    ahead = Batch(batch.end_offset + 7, batch.end_offset + 9, batch.lines)
    assert not ingest.record(run.pk, ahead, now=NOW).taken
    assert Metric.objects.count() == 1


def test_a_line_that_was_taken_is_not_taken_under_another_offset(run: TrainingRun) -> None:
    cast.write_journal(run, cast.started(), cast.step(1), cast.step(2))
    take(run)
    end = JournalCursor.objects.get(run=run).offset
    again = tuple(Line(run.pk, seq, 1e9, cast.step(seq + 100)) for seq in (2, 3))
    assert ingest.record(run.pk, Batch(end, end + 10, again), now=NOW) == ingest.Recorded(taken=True)
    assert JournalCursor.objects.get(run=run).rejected == 2
    assert Metric.objects.count() == 2


def test_a_gap_loses_only_what_was_in_it(run: TrainingRun) -> None:
    path = runfiles.make(run) / journal.FILE_NAME
    lines = [
        journal.format_line(run.pk, seq, 1e9 + seq, event) for seq, event in enumerate([cast.started(), *map(cast.step, range(1, 5))], 1)
    ]
    lines[2] = b'{"v": 1, "what is this": "\xff"}\n'
    path.write_bytes(b"".join(lines))
    assert take(run) == 4
    assert [m.step for m in Metric.objects.order_by("step")] == [1, 3, 4]
    assert JournalCursor.objects.get(run=run).rejected == 1


def test_a_torn_last_line_waits_for_its_end(run: TrainingRun) -> None:
    cast.write_journal(run, cast.started(), cast.step(1))
    path = runfiles.folder(run) / journal.FILE_NAME
    whole = journal.format_line(run.pk, 3, 1e9, cast.step(2))
    with path.open("ab") as file:
        file.write(whole[:20])
    assert take(run) == 2
    with path.open("ab") as file:
        file.write(whole[20:])
    assert take(run) == 1
    assert run.step == 2


def test_lines_of_another_run_are_refused(run: TrainingRun, project: Project, alice: User) -> None:
    other = cast.run(project, by=alice, name="other")
    line = journal.format_line(other.pk, 1, 1e9, cast.step(1))
    (runfiles.make(run) / journal.FILE_NAME).write_bytes(line)
    assert take(run) == 0
    assert JournalCursor.objects.get(run=run).rejected == 1
    assert not Metric.objects.exists()


def test_steps_that_are_done_again_stay_one_point(run: TrainingRun) -> None:
    cast.write_journal(run, cast.started(), cast.step(1), cast.step(2), Resumed(1, 1, "from the checkpoint"), cast.step(2), cast.step(3))
    take(run)
    assert list(Metric.objects.order_by("step").values_list("step", flat=True)) == [1, 2, 3]
    assert MetricSeries.objects.get(run=run).points == 3


def test_hostile_content_is_bounded(run: TrainingRun) -> None:
    names = {f"{'x' * 300}{i}": 1.0 for i in range(700)}
    cast.write_journal(
        run,
        Train(1, 1, {"nan": math.nan, "inf": math.inf, "nul\0": 1.0, "lone \ud800": 2.0}, 16, 4, 0.0),
        *[Train(step, 1, {f"series {step}": 1.0}, 16, 4, 1e-300) for step in range(2, 2100)],
        Train(2**70, -5, {"huge": 1e308}, -1, 2**40, -1.0),
        Train(700, 1, names, 16, 4, 0.1),
        generation(2**60, 5, 2**50),
        Failed("m" * 100_000, "t" * 100_000, "w" * 1000),
        Warned("NUL \0 in the middle"),
    )
    take(run)
    assert MetricSeries.objects.filter(run=run).count() == curve_points.MAX_SERIES
    assert Metric.objects.filter(series__name="nan").get().value is None
    assert Metric.objects.filter(series__name="inf").get().value is None
    assert MetricSeries.objects.filter(run=run, name="nul").exists()
    assert len(run.error_message) <= 4000
    assert len(run.error_traceback) <= 64_000
    assert "\0" not in run.events.get(kind="warning").message
    assert run.step_rate is not None
    assert math.isfinite(run.step_rate)


@pytest.mark.parametrize("kind", ["pipe", "link", "folder"])
def test_what_is_no_regular_file_is_not_read(run: TrainingRun, kind: str, tmp_path: object) -> None:
    path = runfiles.make(run) / journal.FILE_NAME
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "link":
        path.symlink_to("/etc/passwd")
    else:
        path.mkdir()
    assert take(run) == 0
    assert JournalCursor.objects.get(run=run).rejected == 0


def test_a_file_without_line_ends_does_not_stop_the_reader(run: TrainingRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingest, "BATCH_BYTES", 4096)
    good = journal.format_line(run.pk, 1, 1e9, cast.step(1))
    (runfiles.make(run) / journal.FILE_NAME).write_bytes(b"x" * 10_000 + b"\n" + good)
    assert take(run) == 1
    assert run.step == 1


def test_a_suspension_and_a_resumption_are_followed(run: TrainingRun, alice: User) -> None:
    cast.write_journal(run, cast.started(), cast.step(1))
    take(run)
    assert run.state == RunState.RUNNING
    run.grants.update(released_at=NOW)
    cast.write_journal(run, Suspended(1, 1, "carol's run has a higher priority"))
    take(run)
    assert (run.state, run.workers) == (RunState.SUSPENDED, 0)
    assert "carol" in run.state_reason
    scheduling.tick(NOW)
    cast.write_journal(run, Resumed(1, 1, "slots granted"), cast.step(2))
    take(run)
    assert run.state == RunState.RUNNING


def test_a_late_word_of_a_suspension_does_not_undo_a_grant(run: TrainingRun) -> None:
    """The run was suspended and granted slots again before its lines were read."""
    cast.write_journal(run, cast.started(), cast.step(1), Suspended(1, 1, "its slots went elsewhere"))
    take(run)
    assert run.state == RunState.STARTING


def test_steps_do_not_wake_a_run_that_is_stopping_or_has_ended(run: TrainingRun) -> None:
    for state in (RunState.STOPPING, RunState.STOPPED):
        assert states.transition(run, state, reason="asked", now=NOW)
        cast.write_journal(run, cast.step(1))
        take(run)
        assert run.state == state


def test_pages_get_the_points_with_their_place(run: TrainingRun, said: SentMessages, django_capture_on_commit_callbacks: object) -> None:
    cast.write_journal(run, cast.started(), cast.step(1, loss=2.0))
    take(run)
    said.clear()
    cast.write_journal(run, cast.step(2, loss=1.5), t=1_790_000_100.0)
    with django_capture_on_commit_callbacks(execute=True):  # type: ignore[operator]
        take(run)
    (message,) = said.about(f"run-{run.pk}", "points")
    assert (message["after"], message["seq"]) == (2, 3)
    assert message["points"] == [["train", "loss", 2, 1_790_000_102.0, 1.5, 4, 1]] or message["points"][0][:3] == ["train", "loss", 2]
    assert message["progress"] == {"step": 2, "steps": 10, "epoch": 1, "rate": pytest.approx(10.0), "workers": 4}


def test_too_many_points_at_once_are_a_nudge(run: TrainingRun, said: SentMessages, django_capture_on_commit_callbacks: object) -> None:
    cast.write_journal(run, *map(cast.step, range(1, ingest.MAX_PUSHED_POINTS + 2)))
    with django_capture_on_commit_callbacks(execute=True):  # type: ignore[operator]
        take(run)
    assert not said.about(f"run-{run.pk}", "points")
    assert any("points" in message["what"] for message in said.about(f"run-{run.pk}", "changed"))


def test_all_live_runs_are_caught_up(run: TrainingRun, project: Project, alice: User, node: Node) -> None:
    other = cast.run(project, by=alice, name="other")
    scheduling.tick(timezone.now())
    for each in (run, other):
        cast.write_journal(each, cast.step(1))
    assert ingest.catch_up_all(NOW) == 2


def test_a_long_journal_takes_turns(
    run: TrainingRun, said: SentMessages, monkeypatch: pytest.MonkeyPatch, django_capture_on_commit_callbacks: Any
) -> None:
    monkeypatch.setattr(ingest, "BATCH_BYTES", 2000)
    cast.write_journal(run, *map(cast.step, range(1, 201)))
    with django_capture_on_commit_callbacks(execute=True):
        first = ingest.catch_up(run.pk, now=NOW, most_batches=3)
    assert 0 < first < 200
    assert ("experiments.tasks.ingest_run", (run.pk,), "ingest") in said.tasks
    while ingest.catch_up(run.pk, now=NOW, most_batches=3):
        pass
    assert Metric.objects.count() == 200


def test_a_deleted_run_is_nothing_to_do(run: TrainingRun) -> None:
    cast.write_journal(run, cast.step(1))
    number = run.pk
    TrainingRun.objects.filter(pk=number).delete()
    batch = journal.read(runfiles.folder(run) / journal.FILE_NAME, 0)
    assert ingest.catch_up(number, now=NOW) == 0
    assert not ingest.record(number, batch, now=NOW).taken


def test_points_after_a_line_neither_miss_nor_repeat(run: TrainingRun) -> None:
    cast.write_journal(run, cast.started(), *map(cast.step, range(1, 1201)))
    take(run)
    seq, curves = selectors.series(run, max_points=5000)
    assert (seq, curves[0].total, len(curves[0].steps)) == (1201, 1200, 1200)
    cast.write_journal(run, *map(cast.step, range(1201, 1211)))
    take(run)
    new = selectors.points_after(run, seq=seq)
    assert [point[2] for point in new.points] == list(range(1201, 1211))
    assert (new.after, new.seq, new.reload) == (1201, 1211, False)
    assert selectors.points_after(run, seq=new.seq).points == []
    assert selectors.points_after(run, seq=0, limit=100).reload
    assert selectors.points_after(run, seq=99_999).reload


def test_lines_that_a_power_loss_took_are_read_as_they_were_written_anew(run: TrainingRun) -> None:
    """The machine was cut off before the last lines were on its disk; the next attempt goes on after the last one that was."""
    cast.write_journal(run, cast.started(), generation(1, 1, 0), cast.step(1), cast.step(2), Warned("This line is lost."))
    assert take(run) == 5
    path = runfiles.folder(run) / journal.FILE_NAME
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:3]))
    assert take(run) == 3, "shorter than what was read"
    assert [event.kind for event in run.events.all()] == ["started"]
    cast.write_journal(run, generation(2, 2, 1, step=2), cast.step(2), *(cast.step(number) for number in range(3, 9)))
    assert take(run) == 8
    assert [g.generation for g in run.generations.all()] == [1, 2]
    assert list(Metric.objects.filter(series__run=run).values_list("step", flat=True).order_by("step")) == list(range(1, 9))


def test_a_journal_that_has_outgrown_what_was_lost_is_read_from_its_beginning(run: TrainingRun) -> None:
    cast.write_journal(run, cast.started(), generation(1, 1, 0), cast.step(1), cast.step(2), Warned("This line is lost."))
    assert take(run) == 5
    path = runfiles.folder(run) / journal.FILE_NAME
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:3]))
    cast.write_journal(run, generation(2, 2, 1, step=2), *(cast.step(number) for number in range(2, 9)))
    assert take(run) == 11
    assert [g.generation for g in run.generations.all()] == [1, 2]
    assert JournalCursor.objects.get(run=run).rejected == 0, "never from inside a line"
    assert (run.step, Metric.objects.filter(series__run=run).count()) == (8, 8)
    assert take(run) == 0


def test_the_lines_of_a_journal_that_is_gone_stay(run: TrainingRun) -> None:
    cast.write_journal(run, cast.started(), generation(1, 1, 0), cast.step(1))
    assert take(run) == 3
    path = runfiles.folder(run) / journal.FILE_NAME
    path.write_bytes(b"")
    assert take(run) == 0
    path.unlink()
    assert take(run) == 0
    assert run.generations.count() == 1
