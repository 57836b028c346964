"""The table of runs as a page: what it shows, in which order, as which file, to whom, and the tables that people keep."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable
from typing import Any

import pyarrow.parquet
import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from experiments import services
from experiments.metrics import ingest
from experiments.models import Experiment, Project, RunState, SavedView, TrainingRun, User
from tests import cast
from tests.conftest import SentMessages
from tests.web.conftest import As
from tests.web.seed import Seeded

RATES = (0.3, 0.1, 0.03, 1.0)
LOSSES = (0.4, 0.2, None, 0.9)  # the last one of each; None: it diverged


@pytest.fixture
def experiment(project: Project, alice: User, said: SentMessages) -> Experiment:
    """A run for each of the rates, and a queued one."""
    version = cast.definition(project, by=alice, command="main.py --lr 0")
    made = cast.experiment(project, by=alice, versions=[version], name="rates")
    first = services.run_experiment(made, by=alice)[0]
    runs = services.run_with_changes(
        first, by=alice, commands=[f"main.py --lr {rate} --opt {'sgd' if rate < 0.2 else 'adam'}" for rate in RATES]
    )
    for run, loss in zip(runs, LOSSES, strict=True):
        steps = (cast.step(number, loss=loss if number == 3 and loss is not None else 0.1 * number) for number in (1, 2, 3))
        ends = [cast.step(4, loss=float("nan"))] if loss is None else []
        cast.write_journal(run, cast.started(), *steps, *ends)
        ingest.catch_up(run.pk, now=timezone.now())
    TrainingRun.objects.filter(pk__in=[run.pk for run in runs]).update(state=RunState.COMPLETED, ended_at=timezone.now())
    return made


def lines(client: Client, address: str, **query: Any) -> list[dict[str, str]]:
    answer = client.get(address, {**query, "format": "csv"})
    assert answer.status_code == 200, answer.content
    return list(csv.DictReader(io.StringIO(answer.content.decode())))


def shown(page: str) -> list[str]:
    """The rates of the page's rows, in their order."""
    body = page.split("<tbody>")[1].split("</tbody>")[0]
    return re.findall(r"<bdi>[^<]*lr=([\d.]+)", body)


@pytest.fixture
def table(experiment: Experiment) -> str:
    return reverse("experiment_table", args=[experiment.pk])


def test_the_first_click_on_a_loss_sorts_the_best_first(table: str, alice: User, as_: As) -> None:
    def button() -> str:
        (wanted,) = re.findall(r'<button form="sorting" name="sort" value="([^"]*)"><span>Train loss<', page)
        return str(wanted)

    page = as_(alice).get(table).content.decode()
    assert button() == "train.loss"
    page = as_(alice).get(table, {"sort": button()}).content.decode()
    assert shown(page) == ["0.1", "0.3", "1.0", "0.03"], "what is no finite number comes last"
    assert 'aria-sort="ascending"' in page
    page = as_(alice).get(table, {"sort": button()}).content.decode()
    assert shown(page) == ["1.0", "0.3", "0.1", "0.03"]
    assert button() == "", "the third click is as before"


def test_rows_are_found_by_value(table: str, alice: User, as_: As) -> None:
    found = lines(as_(alice), table, filter="lr < 0.5 and loss < 0.3", columns=["arg.lr", "train.loss"])
    assert [(row["arg.lr"], row["train.loss"]) for row in found] == [("0.1", "0.2")]
    assert {row["arg.lr"] for row in lines(as_(alice), table, filter="loss is nan", columns="lr")} == {"0.03"}


def test_a_filter_that_is_none_points_at_its_place(table: str, alice: User, as_: As) -> None:
    page = as_(alice).get(table, {"filter": "lr < 0.5 and <b> > 1"}).content.decode()
    assert 'aria-invalid="true"' in page
    assert "lr &lt; 0.5 and <mark>&lt;</mark>b&gt; &gt; 1</code>" in page
    assert shown(page + "<tbody></tbody>") == []


def test_the_file_has_what_the_table_shows_with_the_steps_of_extremes(table: str, alice: User, as_: As) -> None:
    query = {"columns": ["state", "arg.lr", "best(train.loss)", "max(train.loss)"], "sort": "arg.lr"}
    found = lines(as_(alice), table, **query)
    best, most = "best(train.loss)", "max(train.loss)"
    assert list(found[0]) == ["id", "name", "state", "arg.lr", best, f"{best} step", most, f"{most} step"]
    assert [row["arg.lr"] for row in found] == ["0", "0.03", "0.1", "0.3", "1.0"]
    assert (found[4][best], found[4][f"{best} step"]) == ("0.1", "1")
    assert (found[4][most], found[4][f"{most} step"]) == ("0.9", "3")
    answer = as_(alice).get(table, {**query, "format": "parquet"})
    read = pyarrow.parquet.read_table(io.BytesIO(answer.content)).to_pydict()
    assert read["arg.lr"] == [0.0, 0.03, 0.1, 0.3, 1.0], "a column of numbers"
    assert read["state"] == ["queued", *["completed"] * 4]


def test_a_cell_that_a_spreadsheet_would_run_is_marked_as_text(experiment: Experiment, table: str, alice: User, as_: As) -> None:
    run = TrainingRun.objects.filter(experiment=experiment).earliest("pk")
    services.annotate_run(run, by=alice, tags=["=cmd|' /C calc'!A0"], note="=1+1")
    (found,) = lines(as_(alice), table, filter="note is set", columns=["note", "tag"])
    assert (found["note"], found["tag"]) == ("'=1+1", "'=cmd|' /C calc'!A0")


def test_groups_have_counts_and_figures_and_lead_to_their_runs(table: str, alice: User, as_: As) -> None:
    query = {"group": "arg.opt", "columns": "train.loss"}
    found = lines(as_(alice), table, **query)
    assert [(row["arg.opt"], row["runs"], row["mean of train.loss"], row["max of train.loss"]) for row in found] == [
        ("adam", "2", "0.65", "0.9"),
        ("sgd", "2", "0.2", "0.2"),
        ("", "1", "", ""),
    ]
    by_mean = lines(as_(alice), table, **query, sort="train.loss")
    assert [row["arg.opt"] for row in by_mean] == ["sgd", "adam", ""]
    by_count = [row["runs"] for row in lines(as_(alice), table, **query, sort="runs")]
    assert by_count == ["1", "2", "2"]
    page = as_(alice).get(table, {**query, "sort": "-runs"}).content.decode()
    assert "left out" not in page
    links = re.findall(r'<th scope="row" class="first"><a href="([^"]+)"', page)
    runs = [shown(as_(alice).get(table + link.replace("&amp;", "&")).content.decode()) for link in links]
    assert [sorted(each) for each in runs] == [["0.3", "1.0"], ["0.03", "0.1"], []]


def test_the_lists_of_an_experiment_begin_with_the_best_too(experiment: Experiment, alice: User, as_: As) -> None:
    page = as_(alice).get(reverse("experiment", args=[experiment.pk])).content.decode()
    assert '<a href="?sort=train+loss"><span>Train loss</span>' in page
    assert '<a href="?sort=duration&amp;order=down"><span>Duration</span>' in page


@pytest.mark.parametrize("group", ["state", "user", "experiment", "definition", "machine", "arg.lr"])
def test_runs_are_put_together_by_what_they_have(group: str, table: str, alice: User, as_: As) -> None:
    assert sum(int(row["runs"]) for row in lines(as_(alice), table, group=group)) == 5


def test_the_project_has_a_table_of_all_its_runs(experiment: Experiment, alice: User, as_: As) -> None:
    cast.run(experiment.project, by=alice, name="another experiment")
    address = reverse("project_runs", args=[experiment.project_id])
    found = lines(as_(alice), address)
    assert {row["experiment"] for row in found} == {"rates", "another experiment"}
    assert len(lines(as_(alice), address, filter="experiment ~ another")) == 1


def test_columns_stand_as_they_were_chosen_pinned_ones_first(table: str, alice: User, as_: As) -> None:
    query = {"columns": ["arg.lr", "state"], "pin": ["train.loss", "no such thing"]}
    assert list(lines(as_(alice), table, **query)[0]) == ["id", "name", "train.loss", "arg.lr", "state"]
    page = as_(alice).get(table, query).content.decode()
    assert '<td class="number pin"' in page
    assert "No run here has no such thing: left out." in page
    chooser = as_(alice).get(table, {**query, "part": "columns"}).content.decode()
    assert re.findall(r'name="columns" value="([^"]+)" checked', chooser) == ["train.loss", "arg.lr", "state"]
    assert re.findall(r'name="pin" value="([^"]+)" checked', chooser) == ["train.loss"]
    assert 'value="arg.opt"' in chooser


def test_pages_go_through_all_runs_once(experiment: Experiment, table: str, alice: User, as_: As, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("experiments.selectors.run_table.PAGE_ROWS", 2)
    pages = [as_(alice).get(table, {"sort": "-arg.lr", "page": number}).content.decode() for number in (1, 2, 3, 9)]
    assert [shown(page) for page in pages] == [["1.0", "0.3"], ["0.1", "0.03"], [], []]
    assert "Page 3 of 3" in pages[3], "behind the last one it is the last one"
    assert 'rel="prev" href="?sort=-arg.lr&amp;page=2"' in pages[2]


def test_runs_of_several_experiments_are_stopped_together(experiment: Experiment, alice: User, bob: User, victor: User, as_: As) -> None:
    other = cast.run(experiment.project, by=alice, name="another experiment")
    queued = TrainingRun.objects.filter(experiment=experiment, state="queued").get()
    address = reverse("selected_project_runs", args=[experiment.project_id])
    sent = {"do": "stop", "run": [other.pk, queued.pk], "next": "/projects/1/runs/?filter=x"}
    assert as_(victor).post(address, sent).status_code == 403
    answer = as_(bob).post(address, sent)
    assert answer.url == "/projects/1/runs/?filter=x"
    assert set(TrainingRun.objects.filter(pk__in=sent["run"]).values_list("state", flat=True)) == {"stopped"}
    as_(bob).post(address, {**sent, "do": "delete"})
    assert not TrainingRun.objects.filter(pk__in=sent["run"]).exists()
    compared = as_(victor).post(address, {"do": "compare", "run": TrainingRun.objects.values_list("pk", flat=True)[:2]})
    assert compared.url.startswith("/compare/?run=")


Save = Callable[..., Any]


@pytest.fixture
def save(project: Project, as_: As) -> Save:
    def saving(by: User, **changes: Any) -> Any:
        sent = {"name": "Best first", "query": "?sort=train.loss&columns=arg.lr&nonsense=1", **changes}
        return as_(by).post(reverse("save_view", args=[project.pk]), sent)

    return saving


def test_a_kept_table_has_an_address_that_others_may_open(
    experiment: Experiment, alice: User, victor: User, charlie: User, save: Save, as_: As
) -> None:
    view = save(alice, shared="on", experiment=experiment.pk).url
    answer = as_(victor).get(view)
    there = reverse("experiment_table", args=[experiment.pk])
    assert answer.url == f"{there}?sort=train.loss&columns=arg.lr&view={SavedView.objects.get().pk}"
    assert "Best first" in as_(victor).get(answer.url).content.decode()
    assert as_(charlie).get(view).status_code == 404


def test_one_s_own_table_is_seen_by_nobody_else(project: Project, alice: User, victor: User, save: Save, as_: As) -> None:
    view = save(victor).url
    assert as_(alice).get(view).status_code == 404
    assert "Best first" not in as_(alice).get(reverse("project_runs", args=[project.pk])).content.decode()
    assert "Best first" in as_(victor).get(reverse("project_runs", args=[project.pk])).content.decode()
    assert as_(alice).post(f"{view}delete/").status_code == 404
    as_(victor).post(f"{view}delete/")
    assert not SavedView.objects.exists()


def test_the_project_s_tables_are_changed_by_its_editors(project: Project, bob: User, victor: User, save: Save, as_: As) -> None:
    assert save(victor, shared="on").status_code == 403
    view = save(bob, shared="on").url
    save(bob, shared="on", query="sort=-train.loss")
    assert SavedView.objects.get().query == "sort=-train.loss", "the same name again replaces it"
    assert as_(victor).post(f"{view}delete/").status_code == 403
    as_(bob).post(f"{view}delete/")
    assert not SavedView.objects.exists()


def test_a_table_without_a_name_is_not_kept(project: Project, bob: User, as_: As) -> None:
    client = as_(bob)
    answer = client.post(reverse("save_view", args=[project.pk]), {"name": " ", "query": "?filter=state+%3D+failed"})
    assert answer.url == f"{reverse('project_runs', args=[project.pk])}?filter=state+%3D+failed"
    assert "Give a name." in client.get(answer.url).content.decode()
    assert not SavedView.objects.exists()


def test_running_runs_are_followed_live(studio: Seeded, as_: As) -> None:
    page = as_(studio.alice).get(reverse("experiment_table", args=[studio.experiment.pk])).content.decode()
    assert f'data-topics="run-{studio.running.pk}" data-run="{studio.running.pk}"' in page
    assert 'data-metric="train loss"' in page
    assert f'data-live="experiment-{studio.experiment.pk}"' in page
