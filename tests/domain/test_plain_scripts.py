"""A script that does not call train(), or not yet: its own figures are curves, and its progress bar says how far it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from experiments.cluster import scheduling
from experiments.metrics import logged_pace
from experiments.metrics.ingest import progress_of
from experiments.models import JournalCursor, MetricSeries, Node, RunState, TrainingRun
from experiments.runs import states
from experiments.selectors.speeds import works
from tests import cast
from tests.conftest import SentMessages
from tests.domain.test_ingest import NOW, run, take
from training_runtime.journal import Logged, Progress, Suspended
from training_runtime.scheduling.simulation import Work

__all__ = ["run"]  # a fixture

pytestmark = pytest.mark.django_db


def test_figures_that_a_plain_script_logs_are_curves_and_say_that_it_runs(run: TrainingRun) -> None:
    cast.write_journal(run, Logged("train", 5, {"loss": 2.0}), Logged("train", 10, {"loss": 1.0}), Logged("test", 10, {"f1": 0.5}))
    take(run)
    assert (run.state, run.step, run.started_at) == (RunState.RUNNING, 10, NOW)
    assert {(s.group, s.name): (s.points, s.last_step) for s in MetricSeries.objects.filter(run=run)} == {
        ("train", "loss"): (2, 10),
        ("test", "f1"): (1, 10),
    }


@pytest.mark.parametrize(
    ("newest", "is_as_fast_as"),
    [
        ([], None),
        ([(10, 100.0)], None),
        ([(20, 100.5), (10, 100.0)], None),  # what was read at once
        ([(40, 102.0), (20, 101.5), (10, 100.0)], 15.0),
        ([(900, 300.0), (800, 295.0), (600, 275.0), (10, 100.0)], 12.0),  # of the last half minute
        ([(3, 1000.0), (2, 880.0), (1, 760.0)], 1 / 120),  # epochs, which take longer than that
        ([(30, 50.0), (20, 100.0)], None),  # a clock was put back
        ([(30, 130.0), (20, 170.0), (10, 120.0)], 2.0),
    ],
)
def test_a_script_is_as_fast_as_its_last_figures_came(newest: list[tuple[int, float]], is_as_fast_as: float | None) -> None:
    assert logged_pace.pace(newest) == (None if is_as_fast_as is None else pytest.approx(is_as_fast_as))


def test_how_fast_a_plain_script_goes_its_own_figures_say(run: TrainingRun) -> None:
    cast.write_journal(run, Logged("test", 0, {"f1": 0.5}), Logged("train", 5, {"loss": 2.0}))
    take(run)
    assert run.step_rate is None
    cast.write_journal(run, Logged("train", 9, {"loss": 1.0}), t=1_790_000_010.0)
    take(run)
    assert run.step_rate == pytest.approx(4 / 10)
    assert progress_of(run)["rate"] == run.step_rate


def test_figures_that_a_script_logs_beside_its_training_change_neither_its_steps_nor_its_state(run: TrainingRun) -> None:
    cast.write_journal(run, cast.started(), cast.step(1), Logged("train", 700, {"f1": 0.5}), Suspended(1, 1, "bob's run began"))
    scheduling.close_all(run, node=Node.objects.get(), now=NOW, reason="bob's run began")
    take(run)
    assert (run.state, run.step) == (RunState.SUSPENDED, 1)


def test_how_far_a_plain_script_is_its_own_progress_bar_says(
    run: TrainingRun, said: SentMessages, django_capture_on_commit_callbacks: Callable[..., Any]
) -> None:
    hostile = [Progress(5, 0, None, ""), Progress(-1, 2, None, ""), Progress(3, 2, None, ""), Progress(1, float("inf"), None, "")]
    cast.write_journal(run, Progress(30, 120, 45.5, "Epoch 3" * 100), *hostile, t=NOW.timestamp())
    with django_capture_on_commit_callbacks(execute=True):
        take(run)
    assert run.bar() == {"done": 30, "total": 120, "left": 45.5, "label": ("Epoch 3" * 100)[:200]}
    assert (run.left_s(), run.remaining_s()) == (45.5, None)
    assert JournalCursor.objects.get(run=run).rejected == len(hostile)
    assert said.about(f"run-{run.pk}", "points")[-1]["progress"]["bar"] == run.bar()


def test_plans_go_by_what_a_librarys_trainer_says_is_left_but_by_no_bar_after_it(run: TrainingRun) -> None:
    said = [
        Progress(30, 120, 45.5, "Epochs", is_whole=True),
        Progress(120, 120, None, "Epochs", is_whole=True),
        Progress(1, 9, 8.0, "Test"),
    ]
    found = []
    for progress in said:
        cast.write_journal(run, progress, t=NOW.timestamp())
        take(run)
        found.append((run.remaining_s(), works([run], {run.pk: 3}).get(run.pk)))
    assert found == [(45.5, Work(45.5, {3: 1.0})), (None, None), (None, None)]
    assert run.left_s() == 8.0


def test_a_bar_that_is_over_leaves_its_place_to_the_steps(
    run: TrainingRun, said: SentMessages, django_capture_on_commit_callbacks: Callable[..., Any]
) -> None:
    cast.write_journal(run, Progress(10, 10, 0.0, "Preprocessing"), t=NOW.timestamp())
    with django_capture_on_commit_callbacks(execute=True):
        take(run)
    assert run.bar() is not None
    cast.write_journal(run, Logged("train", 4, {"loss": 1.0}), Progress(0, 0, None, ""), t=NOW.timestamp())
    before = len(said.about(f"run-{run.pk}", "changed"))
    with django_capture_on_commit_callbacks(execute=True):
        take(run)
    assert (run.bar(), run.step) == (None, 4)
    last = {"bar_done": 10, "bar_total": 10, "bar_label": "Test"}
    assert [TrainingRun(state=state, **last).bar() is None for state in (RunState.RUNNING, RunState.COMPLETED)] == [False, False]
    assert [TrainingRun(state=state, step=4, **last).bar() is None for state in (RunState.RUNNING, RunState.COMPLETED)] == [False, True]
    assert any("plan" in message["what"] for message in said.about(f"run-{run.pk}", "changed")[before:])
    assert JournalCursor.objects.get(run=run).rejected == 0


def test_where_steps_are_known_a_progress_bar_says_nothing(run: TrainingRun) -> None:
    cast.write_journal(run, cast.started(), cast.step(1), Progress(1, 2, 1e6, "Download", is_whole=True))
    take(run)
    assert run.left_s() == run.remaining_s() != 1e6
    assert "bar" not in progress_of(run)


def test_a_script_that_has_not_called_train_for_a_while_runs_all_the_same(run: TrainingRun) -> None:
    soon, late = NOW + states.QUIET / 2, NOW + states.QUIET
    assert states.tell_at_work(soon) == 0
    assert [states.tell_at_work(late), states.tell_at_work(late)] == [1, 0]
    run.refresh_from_db()
    assert (run.state, run.started_at) == (RunState.RUNNING, NOW)
    assert "has not called train()" in run.state_reason


def test_one_that_waits_for_slots_is_not_said_to_run(run: TrainingRun) -> None:
    scheduling.close_all(run, node=Node.objects.get(), now=NOW, reason="others need them")
    assert states.tell_at_work(NOW + states.QUIET) == 0
