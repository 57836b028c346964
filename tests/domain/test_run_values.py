"""Arguments, tags and columns as rows: what is told, what the parser says, what is logged; and of runs from before there were such rows."""

from __future__ import annotations

import math

import pytest
from django.utils import timezone

from experiments import services
from experiments.metrics import ingest
from experiments.models import MetricSeries, Project, RunColumn, RunValue, TrainingRun, User
from experiments.runs import run_values
from tests import cast
from tests.conftest import SentMessages
from training_runtime.noted import Noted, Setup


def values(run: TrainingRun, kind: str = "argument") -> dict[str, tuple[str, float | None]]:
    found = RunValue.objects.filter(run=run, kind=kind)
    return {name: (text, number) for name, text, number in found.values_list("name", "text", "number")}


def columns(run: TrainingRun, *kinds: str) -> dict[str, bool]:
    found = RunColumn.objects.filter(experiment=run.experiment_id, kind__in=kinds or ("argument",))
    return dict(found.values_list("name", "varies"))


@pytest.fixture
def run(project: Project, alice: User, said: SentMessages) -> TrainingRun:
    version = cast.definition(project, by=alice, command="main.py --lr 1e-1 --batch-size 32 --opt sgd data")
    return services.run_experiment(cast.experiment(project, by=alice, versions=[version]), by=alice)[0]


def test_a_new_run_has_the_arguments_of_its_command_by_their_plain_names(run: TrainingRun) -> None:
    told = {"lr": ("1e-1", 0.1), "batch_size": ("32", 32.0), "opt": ("sgd", None), "argument 1": ("data", None)}
    assert values(run) == told
    assert columns(run) == dict.fromkeys(told, False)


def test_a_column_varies_from_the_first_run_on_that_differs(run: TrainingRun, alice: User) -> None:
    services.run_with_changes(run, by=alice, commands=["main.py --lr 0.3 --batch-size 32"])
    assert {name for name, varies in columns(run).items() if varies} == {"lr"}


def test_what_the_parser_says_counts_then_the_command_then_what_is_logged(run: TrainingRun) -> None:
    parsed = Setup({"lr": "0.1", "batch_size": "32", "opt": "sgd", "path": "data", "amp": "on"}, packages={}, python="", seed=1)
    cast.write_journal(run, parsed, Noted({"opt": "never", "optimizer/eps": "1e-8"}, tags={}))
    ingest.catch_up(run.pk, now=timezone.now())
    assert {name: text for name, (text, _) in values(run).items()} == {
        **{"lr": "0.1", "batch_size": "32", "opt": "sgd", "path": "data", "amp": "on", "optimizer/eps": "1e-8"},
    }
    assert values(run)["optimizer/eps"][1] == 1e-8


def test_tags_are_rows_too_as_they_are_now(run: TrainingRun, alice: User) -> None:
    services.annotate_run(run, by=alice, tags=["fast", "good"], note="")
    services.annotate_run(run, by=alice, tags=["good"], note="")
    assert values(run, "tag") == {"good": ("", None)}


def test_who_adds_a_tag_or_changes_the_note_takes_nothing_back_that_came_meanwhile(run: TrainingRun, alice: User, bob: User) -> None:
    seen = TrainingRun.objects.get(pk=run.pk)
    services.annotate_run(run, by=alice, tags=["good"], note="lr as in the paper")
    services.tag_runs([seen], by=bob, tag="fast")
    services.annotate_run(seen, by=bob, tags=["good", "fast", "kept"])
    now = services.annotate_run(seen, by=bob, note="lr as in the paper, and its warm-up")
    assert (now.tags, now.note) == (["good", "fast", "kept"], "lr as in the paper, and its warm-up")
    services.annotate_run(seen, by=bob, tags=[])
    run.refresh_from_db()
    assert (run.tags, run.note) == ([], "lr as in the paper, and its warm-up")


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "1e999", "1_000", "0x10", "", "1 2", "١"])
def test_what_is_no_plain_finite_number_is_text(text: str) -> None:
    assert run_values.number_of(text) is None


def test_a_curve_has_its_least_and_its_greatest_value_with_their_steps(run: TrainingRun) -> None:
    values = [3.0, 1.0, math.nan, 5.0, 1.0]
    cast.write_journal(run, cast.started(), *(cast.step(at + 1, loss=value) for at, value in enumerate(values)))
    ingest.catch_up(run.pk, now=timezone.now())
    one = MetricSeries.objects.get(run=run)
    assert (one.last_value, one.least, one.least_step, one.greatest, one.greatest_step) == (1.0, 1.0, 2, 5.0, 4)
    cast.write_journal(run, cast.step(6, loss=0.5), cast.step(7, loss=2.0))
    ingest.catch_up(run.pk, now=timezone.now())
    one.refresh_from_db()
    assert (one.last_value, one.least, one.least_step, one.greatest, one.greatest_step) == (2.0, 0.5, 6, 5.0, 4)
    assert columns(run, "train", "test") == {"loss": False}


def test_the_rows_go_some_time_after_their_run(run: TrainingRun, alice: User, said: SentMessages) -> None:
    services.stop_run(run, by=alice)
    services.delete_run(run, by=alice)
    cast.empty_trash()
    assert not RunValue.objects.exists()
