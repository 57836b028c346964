"""The curves of several runs in one answer, for the charts that hold them side by side."""

from __future__ import annotations

from typing import Any

import pytest
from django.urls import reverse
from django.utils import timezone

from experiments import ingest, selectors, services
from experiments.models import Metric, TrainingRun, User
from experiments.selectors import curves
from experiments.selectors.compare import MOST_METRICS
from tests import cast
from tests.conftest import Said
from tests.web.conftest import As
from training_runtime import journal

LONG = 1500


def step(number: int, **metrics: float) -> journal.Train:
    return journal.Train(step=number, epoch=1, metrics=metrics, samples=64, workers=4, step_s=0.01)


def trained(project: Any, by: User, *events: Any) -> TrainingRun:
    run = cast.run(project, by=by)
    cast.write_journal(run, cast.started(), *events)
    ingest.catch_up(run.pk, now=timezone.now())
    return run


@pytest.fixture
def short(project: Any, alice: User, said: Said) -> TrainingRun:
    return trained(project, alice, *[cast.step(n, loss=float("nan") if n == 3 else 1 / n) for n in range(1, 6)])


@pytest.fixture
def long(project: Any, alice: User, said: Said) -> TrainingRun:
    """With a spike."""
    return trained(project, alice, *[step(n, loss=9.0 if n == 700 else 1 / n, accuracy=n / LONG) for n in range(1, LONG + 1)])


def test_each_run_has_the_curves_and_the_journal_line_that_it_has_alone(short: TrainingRun, long: TrainingRun) -> None:
    found = curves.of_runs([short, long], names=["train loss"], max_points=5000)
    for run in (short, long):
        seq, alone = selectors.series(run, max_points=5000, only=[("train", "loss")])
        assert (found[run.pk].seq, found[run.pk].curves) == (seq, alone)
    assert found[long.pk].names == ["train accuracy", "train loss"], "those that were not asked for are named"


def test_where_there_are_many_points_the_extremes_stand_for_them(
    short: TrainingRun, long: TrainingRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(curves, "MOST_READ", 600)
    (curve,) = curves.of_runs([short, long], names=["train loss"])[long.pk].curves
    assert curve.steps == sorted(set(curve.steps))
    assert dict(zip(curve.steps, curve.values, strict=True))[700] == 9.0
    assert curve.steps[-1] == LONG
    assert len(curve.steps) < LONG / 10
    assert curve.total == LONG
    stored = dict(Metric.objects.filter(series__run=long, series__name="loss").values_list("step", "value"))
    assert all(stored[step] == value for step, value in zip(curve.steps, curve.values, strict=True))


def test_a_hundred_runs_take_as_many_queries_as_two(
    project: Any, short: TrainingRun, long: TrainingRun, alice: User, as_: As, django_assert_max_num_queries: Any
) -> None:
    many = [short, long, *(trained(project, alice, cast.step(1, loss=0.5)) for _ in range(18))]
    client, address = as_(alice), reverse("compared_series")
    with django_assert_max_num_queries(16):
        answer = client.get(address, {"run": ",".join(str(run.pk) for run in many)}).json()
    assert [each["run"] for each in answer["runs"]] == [run.pk for run in many]


def test_the_answer_names_all_metrics_and_has_those_that_were_asked_for(
    short: TrainingRun, long: TrainingRun, alice: User, as_: As
) -> None:
    client, address = as_(alice), reverse("compared_series")
    both = {"run": f"{short.pk},{long.pk}"}
    answer = client.get(address, both).json()
    assert answer["metrics"] == ["train loss", "train accuracy"]
    assert [[curve["name"] for curve in each["curves"]] for each in answer["runs"]] == [["train loss"]] * 2, (
        "the first, where none is asked for"
    )
    (loss,) = answer["runs"][0]["curves"]
    assert (loss["steps"], loss["values"][2]) == ([1, 2, 3, 4, 5], None), "what is not a number is a gap"
    assert answer["runs"][1]["start"] == pytest.approx(long.events.get(kind="started").at.timestamp())
    asked = client.get(address, {**both, "metric": ["train accuracy", *["test loss"] * MOST_METRICS]}).json()
    assert [[curve["name"] for curve in each["curves"]] for each in asked["runs"]] == [[], ["train accuracy"]]
    assert client.get(address).json() == {"metrics": [], "runs": []}
    assert client.get(address, {"run": "x,,9" + "9" * 30, "max": "-1"}).json()["runs"] == []


def test_of_a_run_that_one_may_not_see_nothing_is_said(short: TrainingRun, charlie: User, as_: As) -> None:
    theirs = trained(services.create_project(by=charlie, name="Theirs"), charlie, step(1, loss=0.5, secret=1.0))
    answer = as_(short.submitted_by).get(reverse("compared_series"), {"run": [short.pk, theirs.pk]})
    assert [each["run"] for each in answer.json()["runs"]] == [short.pk]
    assert "secret" not in answer.content.decode()
