"""Runs side by side: what differs between them, and the axes of the parallel coordinates."""

from __future__ import annotations

import datetime as dt
import html
import json
from typing import Any

import pytest
from django.urls import reverse
from django.utils import timezone
from playwright.sync_api import expect

from experiments import services
from experiments.metrics import ingest
from experiments.models import TrainingRun, User
from experiments.selectors import compare
from tests import cast
from tests.conftest import SentMessages
from tests.web import api
from tests.web.browsing import Site, Visit
from tests.web.conftest import As


@pytest.fixture
def runs(project: Any, alice: User, said: SentMessages) -> list[TrainingRun]:
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


@pytest.fixture
def hidden(charlie: User, said: SentMessages) -> TrainingRun:
    """A run in a project of Charlie's, who is in no project of the others."""
    theirs = services.create_project(by=charlie, name="Theirs")
    return cast.run(theirs, by=charlie, name="secret plans")


@pytest.fixture
def elsewhere(alice: User, said: SentMessages) -> TrainingRun:
    """A run of Alice's in another project."""
    other = services.create_project(by=alice, name="Letters")
    made = cast.run(other, by=alice, name="of letters")
    cast.write_journal(made, cast.started(), cast.step(1, loss=0.75))
    ingest.catch_up(made.pk, now=timezone.now())
    return made


def test_runs_of_several_experiments_and_projects_stand_side_by_side(
    runs: list[TrainingRun], elsewhere: TrainingRun, alice: User, as_: As
) -> None:
    address = reverse("compare_runs")
    for asked in ({"run": [elsewhere.pk, runs[0].pk]}, {"run": f"{elsewhere.pk}, #{runs[0].pk}"}):
        page = as_(alice).get(address, asked).content.decode()
        table = page.split('id="table"')[1]
        assert table.index(f">#{elsewhere.pk}<") < table.index(f">#{runs[0].pk}<"), "in the order of the address"
        for said in ("Letters", "Digits", "of letters", "first try", "0.75", "0.5"):
            assert said in table
        assert page.count("<tr data-run=") == 2
        assert f'data-live="experiment-{elsewhere.experiment_id} experiment-{runs[0].experiment_id}"' in page


def test_a_tab_with_a_run_of_another_experiment_leads_to_the_page_for_all(
    runs: list[TrainingRun], elsewhere: TrainingRun, alice: User, as_: As
) -> None:
    tab = reverse("compare", args=[runs[0].experiment_id])
    answer = as_(alice).get(tab, {"run": [runs[0].pk, elsewhere.pk]})
    assert answer.url == f"{reverse('compare_runs')}?run={runs[0].pk}&run={elsewhere.pk}"
    assert f'href="{reverse("compare_runs")}?run={runs[0].pk}"' in as_(alice).get(tab, {"run": runs[0].pk}).content.decode()


def test_who_may_not_see_a_run_is_told_so_and_no_more(
    runs: list[TrainingRun], hidden: TrainingRun, alice: User, victor: User, charlie: User, as_: As
) -> None:
    address, nowhere = reverse("compare_runs"), 10**9
    words = "is not shown: there is no such run, or it is in a project that you may not open."
    pages = [as_(alice).get(address, {"run": [runs[0].pk, number]}).content.decode() for number in (hidden.pk, nowhere)]
    assert f"Run {hidden.pk} {words}" in pages[0]
    assert "secret plans" not in pages[0]
    assert "Theirs" not in pages[0]
    assert (
        len(
            {
                page.split("</h1>")[1].replace(str(number), "N").split("<form")[0]
                for page, number in zip(pages, (hidden.pk, nowhere), strict=True)
            }
        )
        == 1
    )
    both = as_(alice).get(address, {"run": [hidden.pk, nowhere]}).content.decode()
    assert f"Runs {hidden.pk}, {nowhere} are not shown" in both
    assert f">#{runs[0].pk}<" in as_(victor).get(address, {"run": runs[0].pk}).content.decode(), "who may read compares"
    assert f"Run {runs[0].pk} {words}" in as_(charlie).get(address, {"run": runs[0].pk}).content.decode()


def test_runs_to_add_are_found_among_those_that_one_may_see(
    runs: list[TrainingRun], elsewhere: TrainingRun, hidden: TrainingRun, alice: User, as_: As
) -> None:
    client, address = as_(alice), reverse("compare_runs")

    def found(query: str) -> set[int]:
        part = client.get(address, {"run": runs[0].pk, "q": query, "part": "others"}).content.decode()
        return {run.pk for run in TrainingRun.objects.all() if f'value="{run.pk}"' in part}

    assert found("") == {runs[1].pk, runs[2].pk, elsewhere.pk}, "but not those that are there already"
    assert found("letters") == {elsewhere.pk}
    assert found("optimizer adam") == {runs[1].pk}
    assert found(f"#{runs[2].pk}") == {runs[2].pk}
    assert found("secret") == found(str(hidden.pk)) == set()
    assert "No other run that you may see matches" in client.get(address, {"q": "%_", "part": "others"}).content.decode()


def test_a_hundred_runs_are_compared_and_more_are_left_out_with_a_word(runs: list[TrainingRun], alice: User, as_: As) -> None:
    like = runs[0]
    same = {"experiment": like.experiment, "version": like.version, "submitted_by": alice, "submitted_at": like.submitted_at}
    TrainingRun.objects.bulk_create([TrainingRun(name=f"n {n}", command=f"main.py --lr {n}", **same) for n in range(110)])
    numbers = list(TrainingRun.objects.values_list("pk", flat=True)[:105])
    client, address = as_(alice), reverse("compare_runs")
    page = client.get(address, {"run": numbers}).content.decode()
    assert page.count("<tr data-run=") == 100
    assert "The first 100 are compared; 5 more were left out." in page
    assert 'class="compared"' not in page, "the long table comes after the curves"
    for asked in ({"part": "table"}, {"whole": 1}):
        assert client.get(address, {"run": numbers, **asked}).content.decode().count('class="compared"') == 100


def test_a_script_compares_runs_of_several_projects(
    runs: list[TrainingRun], elsewhere: TrainingRun, hidden: TrainingRun, alice: User
) -> None:
    script = api.of(alice, "read")
    found = script.get(f"/compare?run={elsewhere.pk},{runs[0].pk},{hidden.pk}").json()
    assert [run["id"] for run in found["runs"]] == [elsewhere.pk, runs[0].pk]
    assert found["missing"] == [hidden.pk]
    assert next(fact["values"] for fact in found["facts"] if fact["name"] == "train loss") == [0.75, 0.5]
    for wrong in ("", "x", ",".join(map(str, range(1, 102)))):
        assert script.get(f"/compare?run={wrong}").status_code == 400


def test_two_rates_are_tried_and_compared_with_a_run_of_another_experiment(visit: Visit, site: Site) -> None:
    page = visit()
    page.goto(site.pages["url"] + site.pages["new experiment"] + "?like=1")
    page.get_by_label("Name").first.fill("Two rates")
    page.get_by_text("Arguments of main.py").click()
    page.get_by_label("--lr").fill("0.1, 0.3")
    expect(page.locator("#makes")).to_have_text("Makes 2 runs")
    page.get_by_role("button", name="Create and run").click()
    for name in ("lr=0.1", "lr=0.3"):
        page.get_by_role("checkbox", name=f"Two rates: {name}").check()
    page.locator("#selection").get_by_role("button", name="Compare").click()
    expect(page.get_by_role("row", name="--lr differs")).to_contain_text("0.3")
    page.get_by_role("link", name="Add runs of other experiments").click()
    page.get_by_role("searchbox", name="Add runs").fill("Learning rates")
    other = page.locator("#others").get_by_role("checkbox", name="Learning rates").first
    other.check()
    page.get_by_role("searchbox", name="Add runs").fill("nothing like it")
    expect(page.locator("#others")).to_contain_text("No other run that you may see matches")
    page.get_by_role("button", name="Compare").click()
    table = page.locator("#table").get_by_role("table")
    expect(table.get_by_role("columnheader")).to_have_count(4)
    expect(table.get_by_role("row", name="Experiment differs")).to_contain_text("Learning rates")
    expect(page.get_by_role("heading", name="Metrics")).to_be_visible()


def test_a_baseline_is_what_numbers_are_held_against() -> None:
    rows = [
        compare.Row("test loss", "metric", [0.5, 0.4, None, "0.75"], differs=True),
        compare.Row("Duration", "duration", [dt.timedelta(seconds=20), None, dt.timedelta(seconds=30), dt.timedelta()], differs=True),
        compare.Row("Steps", "number", [0, 5, 5, 5], differs=True),
        compare.Row("--lr", "argument", ["0.1", "0.2", "0.3", "0.4"], differs=True),
    ]
    loss, duration, steps, rate = compare.against(rows, 0)
    assert loss.deltas == pytest.approx([None, -20.0, None, 50.0])
    assert duration.deltas == [None, None, 50.0, -100.0]
    assert steps.deltas == [None] * 4, "nothing is a part of zero"
    assert rate.deltas == []
