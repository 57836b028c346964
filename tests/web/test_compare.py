"""Runs side by side: what differs between them, and the axes of the parallel coordinates."""

from __future__ import annotations

import html
import json
from typing import Any

import pytest
from django.urls import reverse
from django.utils import timezone

from experiments import ingest, services
from experiments.models import TrainingRun, User
from experiments.selectors import compare
from tests import cast
from tests.conftest import Said
from tests.web.conftest import As


@pytest.fixture
def runs(project: Any, alice: User, said: Said) -> list[TrainingRun]:
    """Three that differ in rate, optimizer and outcome; the last has not begun."""
    experiment = cast.experiment(project, by=alice, versions=[cast.definition(project, by=alice)])
    made = []
    for command, loss in (
        ("main.py --lr 0.1 --optimizer sgd -v", 0.5),
        ("main.py --lr 0.01 --optimizer adam -v", 0.25),
        ("main.py --lr 1", None),
    ):
        run = services.run_experiment(experiment, by=alice)[0]
        TrainingRun.objects.filter(pk=run.pk).update(command=command)
        if loss is not None:
            cast.write_journal(run, cast.started(), cast.step(1, loss=loss))
            ingest.catch_up(run.pk, now=timezone.now())
        made.append(TrainingRun.objects.select_related("version__definition", "submitted_by").get(pk=run.pk))
    return made


def test_arguments_that_differ_are_axes_then_what_came_of_them(runs: list[TrainingRun]) -> None:
    axes = {axis.name: axis for axis in compare.parallel(compare.table(runs, now=timezone.now()))}
    assert next(iter(axes)) == "--lr"
    assert (axes["--lr"].kind, axes["--lr"].values) == ("number", [0.1, 0.01, 1.0])
    assert (axes["--optimizer"].kind, axes["--optimizer"].values) == ("text", ["sgd", "adam", None])
    assert axes["train loss"].values == [0.5, 0.25, None]
    same = {axis.name for axis in compare.parallel(compare.table(runs[:2], now=timezone.now()))}
    assert "--v" not in same, "what is the same for all says nothing"
    assert len(same) <= compare.MOST_AXES


def test_the_page_has_the_arguments_in_its_table_and_the_axes_as_data(runs: list[TrainingRun], alice: User, as_: As) -> None:
    address = reverse("compare", args=[runs[0].experiment_id])
    page = as_(alice).get(address, {"run": [run.pk for run in runs]}).content.decode()
    data = json.loads(html.unescape(page.split('data-axes="')[1].split('"')[0]))
    assert [axis["name"] for axis in data][:2] == ["--lr", "--optimizer"]
    assert 'class="differs"><th scope="row"><span class="word">--lr<' in page
    odd = TrainingRun.objects.filter(pk=runs[0].pk)
    odd.update(command='main.py --name "<script>alert(1)</script>" --lr nan')
    page = as_(alice).get(address, {"run": [run.pk for run in runs], "part": "table"}).content.decode()
    assert "<script>" not in page
    json.loads(html.unescape(page.split('data-axes="')[1].split('"')[0]), parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


def test_runs_without_a_metric_are_no_empty_chart_but_words_on_what_to_do(runs: list[TrainingRun], alice: User, as_: As) -> None:
    client, address = as_(alice), reverse("compare", args=[runs[0].experiment_id])

    def shown(*chosen: TrainingRun) -> list[str]:
        """The parts that are not hidden."""
        page = client.get(address, {"run": [run.pk for run in chosen]}).content.decode()
        tags = {name: page.split(f'id="{name}"')[1].partition(">")[0] for name in ("no-curves", "overlay", "parallel-box")}
        return [name for name, rest in tags.items() if rest != " hidden"]

    begun, other, waiting = runs
    assert shown(begun, other) == ["overlay", "parallel-box"]
    assert shown(begun) == ["overlay"], "one metric: on one axis a run is no line"
    assert shown(waiting) == ["no-curves"]
    live = client.get(address, {"run": waiting.pk}).content.decode()
    assert "appear here by themselves" in live
    TrainingRun.objects.filter(pk=waiting.pk).update(state="failed")
    assert "ended without a metric" in client.get(address, {"run": waiting.pk}).content.decode()
    TrainingRun.objects.update(started_at=None)
    assert "No run that has begun is chosen: tick runs" in client.get(address).content.decode()
