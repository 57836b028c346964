"""The runs of an experiment as a table: pages, order, search, notes, and what is done to several at once."""

from __future__ import annotations

import csv
import io
import re

import pytest
from django.urls import reverse

from experiments import services
from experiments.models import TrainingRun, User
from tests.web.conftest import As
from tests.web.seed import Seeded
from tests.web.test_experiments import version
from tests.web.text import one_line

__all__ = ["version"]  # a fixture


def test_a_thousand_ended_runs_are_shown_a_page_at_a_time(studio: Seeded, as_: As) -> None:
    like = studio.completed
    same = {"experiment": studio.experiment, "version": studio.version, "submitted_by": studio.alice, "submitted_at": like.submitted_at}
    ended = [TrainingRun(name=f"old {n}", state="completed", command="main.py", **same) for n in range(1000)]
    TrainingRun.objects.bulk_create(ended)
    address = reverse("experiment", args=[studio.experiment.pk])
    first = as_(studio.alice).get(address)
    assert len(first.content) < 100_000
    assert "1–40 of 1003" in one_line(first.content.decode())
    last = as_(studio.alice).get(address, {"offset": "1000"}).content.decode()
    assert "1001–1003 of 1003" in one_line(last)
    assert as_(studio.alice).get(reverse("jobs", args=[studio.digits.pk])).content.decode().count('<tr id="job-') == 50


def names(page: str, table: str) -> list[str]:
    """Run ids of one of the three tables, in their order."""
    shown = page.partition(f'id="{table}-title"')[2].partition('-title"')[0]
    return re.findall(r'<tr id="run-(\d+)"', shown)


def test_runs_are_sorted_by_any_column_with_those_that_lack_it_last(studio: Seeded, as_: As) -> None:
    client, address = as_(studio.alice), reverse("experiment", args=[studio.experiment.pk])
    completed, failed, stopped = str(studio.completed.pk), str(studio.failed.pk), str(studio.stopped.pk)
    up = client.get(address, {"sort": "train loss"}).content.decode()
    down = client.get(address, {"sort": "train loss", "order": "down"}).content.decode()
    assert names(up, "completed")[2] == names(down, "completed")[2] == failed  # it has no loss
    assert names(up, "completed")[:2] == names(down, "completed")[1::-1]
    assert 'aria-sort="ascending"' in up
    assert 'aria-sort="descending"' in down
    assert names(client.get(address, {"sort": "duration", "order": "down"}).content.decode(), "completed") == [completed, stopped, failed]
    assert client.get(address, {"sort": "<script>"}).status_code == 200


def test_runs_are_found_by_name_submitter_tag_and_note(studio: Seeded, as_: As) -> None:
    client, address = as_(studio.alice), reverse("experiment", args=[studio.experiment.pk])
    client.post(reverse("run_notes", args=[studio.failed.pk]), {"tags": "wrong data, <b>", "note": "try the other folder"})
    for query, found in (
        ("other folder", studio.failed),
        ("wrong", studio.failed),
        ("bob", studio.stopped),
        (f"#{studio.completed.pk}", studio.completed),
    ):
        assert names(client.get(address, {"q": query}).content.decode(), "completed") == [str(found.pk)], query
    tagged = client.get(address, {"tag": "wrong data"}).content.decode()
    assert names(tagged, "completed") == [str(studio.failed.pk)]
    assert "&lt;b&gt;" in tagged
    about = client.get(reverse("run_overview", args=[studio.failed.pk])).content.decode()
    assert "try the other folder" in about
    assert "&lt;b&gt;" in about
    nothing = client.get(address, {"q": "nothing like it"}).content.decode()
    assert nothing.count("None matches.") == 1
    assert "In progress" not in nothing


@pytest.mark.parametrize(("tags", "note"), [("x" * 50, ""), (",".join(map(str, range(20))), ""), ("a\x07", ""), ("", "x" * 5000)])
def test_tags_and_notes_that_are_too_much_are_refused(tags: str, note: str, studio: Seeded, as_: As) -> None:
    page = as_(studio.alice).post(reverse("run_notes", args=[studio.failed.pk]), {"tags": tags, "note": note})
    assert page.status_code == 200
    assert 'class="error"' in page.content.decode()
    studio.failed.refresh_from_db()
    assert (studio.failed.tags, studio.failed.note) == ([], "")


def test_ticked_runs_are_compared_stopped_tagged_and_deleted_together(studio: Seeded, as_: As) -> None:
    client, address = as_(studio.alice), reverse("selected_runs", args=[studio.experiment.pk])
    both = [studio.running.pk, studio.completed.pk]
    assert client.post(address, {"do": "compare", "run": both}).url.startswith(reverse("compare", args=[studio.experiment.pk]) + "?run=")
    client.post(address, {"do": "tag", "run": both, "tag": "baseline"})
    client.post(address, {"do": "tag", "run": both, "tag": "baseline"})
    assert [TrainingRun.objects.get(pk=pk).tags for pk in both] == [["baseline"], ["baseline"]]
    client.post(address, {"do": "stop", "run": both})
    assert [TrainingRun.objects.get(pk=pk).state for pk in both] == ["stopping", "completed"]
    client.post(address, {"do": "delete", "run": both})
    assert "has not ended" in client.get(reverse("experiment", args=[studio.experiment.pk])).content.decode()
    client.post(address, {"do": "delete", "run": [studio.failed.pk]})
    assert not TrainingRun.objects.filter(pk=studio.failed.pk).exists()


def test_another_experiments_runs_are_not_touched_and_a_viewer_only_compares(studio: Seeded, as_: As) -> None:
    address = reverse("selected_runs", args=[studio.experiment.pk])
    as_(studio.alice).post(address, {"do": "stop", "run": [studio.other.pk, studio.queued.pk]})
    assert {TrainingRun.objects.get(pk=run.pk).state for run in (studio.other, studio.queued)} == {"running", "queued"}
    victor = as_(User.objects.get(username="victor"))
    assert victor.post(address, {"do": "compare", "run": [studio.completed.pk]}).status_code == 302
    assert victor.post(address, {"do": "stop", "run": [studio.running.pk]}).status_code == 403
    assert as_(studio.alice).post(address, {"do": "stop"}).status_code == 302
    assert as_(studio.alice).post(address, {"do": "nonsense", "run": [studio.running.pk]}).status_code == 302


def test_the_table_comes_as_csv_that_no_spreadsheet_runs(studio: Seeded, as_: As) -> None:
    services.annotate_run(studio.failed, by=studio.alice, tags=["=cmd|' /C calc'!A0"], note="+1")
    address = reverse("experiment", args=[studio.experiment.pk])
    answer = as_(studio.alice).get(address, {"format": "csv", "sort": "train loss"})
    assert answer["Content-Disposition"] == 'attachment; filename="learning-rates-runs.csv"'
    rows = {row["id"]: row for row in csv.DictReader(io.StringIO(answer.content.decode()))}
    assert len(rows) == 4
    assert rows[str(studio.failed.pk)]["tags"] == "'=cmd|' /C calc'!A0"
    assert rows[str(studio.failed.pk)]["note"] == "'+1"
    assert float(rows[str(studio.completed.pk)]["train loss"]) > 0
    assert rows[str(studio.failed.pk)]["train loss"] == ""
