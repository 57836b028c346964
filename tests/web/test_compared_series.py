"""The curves of several runs in one answer, for the charts that hold them side by side."""

from __future__ import annotations

import csv
import io
from typing import Any
from urllib.parse import urlencode

import pyarrow as pa
import pytest
from django.urls import reverse
from django.utils import timezone

from edt_client import points
from edt_client.calls import Answer
from experiments import selectors, services
from experiments.metrics import ingest
from experiments.models import Metric, TrainingRun, User
from experiments.selectors import curves
from experiments.selectors.compare import MOST_METRICS
from tests import cast
from tests.conftest import SentMessages
from tests.web import api
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
def short(project: Any, alice: User, said: SentMessages) -> TrainingRun:
    return trained(project, alice, *[cast.step(n, loss=float("nan") if n == 3 else 1 / n) for n in range(1, 6)])


@pytest.fixture
def long(project: Any, alice: User, said: SentMessages) -> TrainingRun:
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
    lines = client.get(address, {**both, "metric": ""}).json()["runs"]
    assert [(each["seq"], each["curves"]) for each in lines] == [(each["seq"], []) for each in answer["runs"]], "only how far they are"
    assert client.get(address).json() == {"metrics": [], "runs": []}
    assert client.get(address, {"run": "x,,9" + "9" * 30, "max": "-1"}).json()["runs"] == []


def test_of_a_run_that_one_may_not_see_nothing_is_said(short: TrainingRun, charlie: User, as_: As) -> None:
    theirs = trained(services.create_project(by=charlie, name="Theirs"), charlie, step(1, loss=0.5, secret=1.0))
    answer = as_(short.submitted_by).get(reverse("compared_series"), {"run": [short.pk, theirs.pk]})
    assert [each["run"] for each in answer.json()["runs"]] == [short.pk]
    assert "secret" not in answer.content.decode()


def test_a_script_gets_the_curves_that_the_page_draws(short: TrainingRun, long: TrainingRun, alice: User, as_: As) -> None:
    asked = {"run": f"{long.pk},{short.pk}", "metric": ["train loss", "train accuracy"]}
    page = as_(alice).get(reverse("compared_series"), asked).json()
    found = api.of(alice, "read").get(f"/points?{urlencode(asked, doseq=True)}").json()
    assert found["metrics"] == page["metrics"]
    for told, drawn in zip(found["runs"], page["runs"], strict=True):
        assert [told[name] for name in ("run", "seq", "metrics")] == [drawn[name] for name in ("run", "seq", "metrics")]
        assert told["started"] == pytest.approx(drawn["start"])
        assert [(f"{one['group']} {one['name']}", one["steps"], one["values"]) for one in told["curves"]] == [
            (one["name"], one["steps"], one["values"]) for one in drawn["curves"]
        ]
    (first, _) = found["runs"]
    assert [(one["name"], one["total"], one["sampled"]) for one in first["curves"]] == [("accuracy", LONG, True), ("loss", LONG, True)]
    thin = api.of(alice, "read").get(f"/points?run={long.pk}&max_points=20").json()["runs"][0]["curves"]
    assert [one["name"] for one in thin] == ["loss"], "the first, where none is asked for"
    assert len(thin[0]["steps"]) < 50


def test_a_script_gets_all_points_of_several_runs_as_a_table(short: TrainingRun, long: TrainingRun, alice: User) -> None:
    script, at = api.of(alice, "read"), f"/points?run={short.pk},{long.pk}&metric=train%20loss"
    rows = list(csv.DictReader(io.StringIO(b"".join(script.get(at, Accept="text/csv")).decode())))
    arrow = pa.ipc.open_stream(b"".join(script.get(f"{at}&format=arrow"))).read_all().to_pylist()
    assert [(int(row["run"]), int(row["step"])) for row in rows] == [(row["run"], row["step"]) for row in arrow]
    assert [(row["run"], row["step"]) for row in arrow[:6]] == [*((short.pk, step) for step in range(1, 6)), (long.pk, 1)]
    assert len(arrow) == 5 + LONG
    assert {(row["group"], row["name"]) for row in arrow} == {("train", "loss")}


def test_a_script_is_refused_runs_that_it_may_not_see_and_too_many(short: TrainingRun, alice: User, charlie: User) -> None:
    theirs = trained(services.create_project(by=charlie, name="Theirs"), charlie, step(1, loss=0.5))
    script = api.of(alice, "read")
    for number in (theirs.pk, 10**9):
        for kind in ("json", "csv", "arrow"):
            refused = script.get(f"/points?run={short.pk},{number}&format={kind}")
            assert (refused.status_code, f"no such run, or you may not see it: {number}." in refused.content.decode()) == (404, True)
    for wrong in ("", "run=", "run=x", "run=" + ",".join(map(str, range(1, 102))), f"run={short.pk}&{'&'.join(['metric=a'] * 7)}"):
        assert script.get(f"/points?{wrong}").status_code in (400, 422), wrong
    assert script.get(f"/points?run={short.pk}&max_points=1000000").status_code in (400, 422)
    nothing = script.get(f"/points?run={short.pk}&metric=test%00").json()["runs"]
    assert [each["curves"] for each in nothing] == [[]]


def test_the_client_asks_once_for_all_runs(short: TrainingRun, long: TrainingRun, alice: User) -> None:
    """Its operation, whose call is answered by the studio."""
    script = api.of(alice, "read")

    def done(operation: Any) -> Any:
        call = next(operation)
        answer = script.send(call.method, f"{call.path}?{urlencode(call.query, doseq=True)}")
        body = b"".join(answer) if answer.streaming else answer.content
        with pytest.raises(StopIteration) as end:
            operation.send(Answer(answer.status_code, body))
        return end.value.value

    found = done(points.curves([long.pk, short.pk, long.pk], ["train loss"]))
    assert [(each.run, each.metrics, [curve.name for curve in each.curves]) for each in found] == [
        (long.pk, ["train accuracy", "train loss"], ["loss"]),
        (short.pk, ["train loss"], ["loss"]),
    ]
    assert found[1].curves[0].values[2] is None
    assert done(points.table([short.pk])).splitlines()[0] == b"run,group,name,step,epoch,time,value,workers"
