"""What of a journal is not stored is counted by its reason and said, and a flood keeps nobody else waiting."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from django.db import connection

from experiments.cluster import scheduling
from experiments.metrics import curve_points, ingest, journal_rows
from experiments.models import JournalCursor, Metric, MetricSeries, Project, TrainingRun, User
from experiments.selectors import run_pages
from tests import cast
from training_runtime import journal

pytestmark = pytest.mark.django_db
NOW = dt.datetime(2026, 11, 20, 12, 0, tzinfo=dt.UTC)


@pytest.fixture
def run(project: Project, alice: User) -> TrainingRun:
    cast.node(now=NOW)
    made = cast.run(project, by=alice, now=NOW)
    scheduling.tick(NOW)
    return made


def take(run: TrainingRun) -> None:
    ingest.catch_up(run.pk, now=NOW)


def left_out(run: TrainingRun) -> dict[str, int]:
    return dict(JournalCursor.objects.get(run=run).left_out)


def test_what_is_left_out_is_counted_by_its_reason(run: TrainingRun, settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(curve_points, "MAX_SERIES", 3)
    monkeypatch.setattr(ingest, "MAX_RARE", 2)
    monkeypatch.setattr(journal_rows, "METRICS_PER_LINE", 5)
    many = {f"m{number}": 1.0 for number in range(7)}
    cast.write_journal(run, journal.Train(step=1, epoch=1, metrics=many, samples=16, workers=4, step_s=0.1))
    take(run)
    assert left_out(run) == {"metrics": 2, "curves": 2}
    cast.write_journal(run, *(journal.Warned(message="w") for _ in range(5)))
    take(run)
    assert left_out(run)["events"] == 3
    assert run.events.count() == 2
    settings.EDT_MAX_RUN_POINTS = 5
    cast.write_journal(run, *(journal.Train(step=n, epoch=1, metrics={"m0": 1.0}, samples=16, workers=4, step_s=0.1) for n in (2, 3, 4)))
    take(run)
    assert left_out(run)["points"] == 1
    assert Metric.objects.count() == 5
    said = " ".join(run_pages.left_out(run))
    assert all(words in said for words in ("2 values of further metrics", "3 events", "1 values: a run has at most 5 points"))


def test_a_step_that_an_attempt_does_again_is_not_left_out_but_one_that_is_written_twice_is(run: TrainingRun) -> None:
    cast.write_journal(run, cast.started(), *map(cast.step, range(1, 11)))
    take(run)
    cast.write_journal(run, cast.started(), *map(cast.step, range(6, 13)))  # from the checkpoint of step 5
    take(run)
    assert left_out(run) == {}
    cast.write_journal(run, cast.step(12, loss=0.5), cast.step(13))
    take(run)
    assert left_out(run) == {"again": 1}
    assert Metric.objects.count() == 13
    cast.write_journal(run, cast.step(13), cast.step(13))
    take(run)
    assert left_out(run) == {"again": 1}, "nothing is lost by what the curve has already"


def test_long_names_that_begin_alike_are_curves_of_their_own(run: TrainingRun) -> None:
    names = {"x" * 300 + end: float(number) for number, end in enumerate("ab")}
    cast.write_journal(run, journal.Train(step=1, epoch=1, metrics=names, samples=16, workers=4, step_s=0.1))
    take(run)
    found = list(MetricSeries.objects.filter(run=run).values_list("name", flat=True))
    assert len(set(found)) == 2
    assert all(len(name) <= 200 and name.startswith("xxx") for name in found)
    assert left_out(run) == {}


def test_a_journal_without_end_is_read_up_to_its_limit(run: TrainingRun, settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingest, "BATCH_BYTES", 2000)
    settings.EDT_MAX_JOURNAL_BYTES = 5000
    cast.write_journal(run, *map(cast.step, range(1, 201)))
    take(run)
    assert 5000 <= JournalCursor.objects.get(run=run).offset < 8000
    assert 0 < Metric.objects.count() < 200
    assert left_out(run) == {"bytes": 1}
    assert "EDT_MAX_JOURNAL_BYTES" in run_pages.left_out(run)[0]


def test_lines_are_understood_before_the_database_is_held(run: TrainingRun, monkeypatch: pytest.MonkeyPatch) -> None:
    held = []
    understand = journal_rows.understand

    def looked(*given: Any, **more: Any) -> Any:
        held.append(len(connection.savepoint_ids))
        return understand(*given, **more)

    cast.write_journal(run, cast.step(1))
    monkeypatch.setattr(journal_rows, "understand", looked)
    outside = len(connection.savepoint_ids)
    take(run)
    assert held == [outside]
