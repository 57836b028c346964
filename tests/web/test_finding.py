"""Comparing runs, finding things, slot time used."""

from __future__ import annotations

import csv
import io
import re

from django.urls import reverse

from experiments import services
from experiments.models import User
from tests.web.conftest import As
from tests.web.seed import Seeded


def test_runs_are_compared_side_by_side_with_what_differs_marked(studio: Seeded, as_: As) -> None:
    address = reverse("compare", args=[studio.experiment.pk])
    page = as_(studio.alice).get(address, {"run": [studio.running.pk, studio.completed.pk]}).content.decode()
    table = page.split('id="table"')[1]
    assert f"#{studio.running.pk}</a>" in table
    assert f"#{studio.completed.pk}</a>" in table
    assert f"#{studio.failed.pk}</a>" not in table
    marked = [
        re.sub("<[^>]*>", "", f"<th{row.split('<th')[1]}") for row in table.split("<tr")[2:] if 'class="differs"' in row.split(">")[0]
    ]
    assert any("Test loss" in row for row in marked)
    assert not any("Execution command" in row for row in marked)


def test_a_comparison_with_runs_of_other_experiments_is_another_page_that_says_nothing_of_what_one_may_not_see(
    studio: Seeded, as_: As
) -> None:
    page = as_(studio.alice).get(reverse("compare", args=[studio.experiment.pk]), {"run": [studio.other.pk, "<script>", "9" * 50]})
    assert page["Location"] == f"{reverse('compare_runs')}?run={studio.other.pk}"
    shown = as_(studio.alice).get(page["Location"]).content.decode()
    assert f"Run {studio.other.pk} is not shown" in shown
    assert studio.other.name not in shown.split('id="chosen"')[-1].split("</section>")[0]
    assert "<script>9" not in shown


def test_search_finds_by_name_command_and_number_only_what_one_may_open(studio: Seeded, stranger: User, as_: As) -> None:
    def found(user: User, query: str) -> str:
        return as_(user).get(reverse("search"), {"q": query, "part": "found"}).content.decode()

    assert reverse("experiment", args=[studio.experiment.pk]) in found(studio.alice, "learning")
    for called in ("#{}", "{}", "run {}", "Run #{}"):
        assert reverse("run", args=[studio.failed.pk]) in found(studio.alice, called.format(studio.failed.pk)), called
    assert reverse("definition", args=[studio.version.definition.pk]) in found(studio.alice, "lenet")
    assert reverse("data", args=[studio.data.pk]) in found(studio.alice, "handwritten")
    services.annotate_run(studio.completed, by=studio.alice, tags=["best so far", "הטוב"], note="with the old data")
    for words in ("Best so", "הטוב", "old data"):
        assert reverse("run", args=[studio.completed.pk]) in found(studio.alice, words), words
    assert "Nothing among your projects" in found(stranger, "learning")
    assert "Nothing among your projects" in found(stranger, "old data")
    assert "Nothing among your projects" in found(studio.alice, "Baseline")
    assert "<script>" not in found(studio.alice, "<script>alert(1)</script>")


def test_slot_time_is_shown_and_comes_as_csv_that_no_spreadsheet_runs(studio: Seeded, stranger: User, as_: As) -> None:
    services.update_project(studio.digits, by=studio.alice, name="=cmd|' /C calc'!A0", description="")
    client = as_(studio.alice)
    assert "alice" in client.get(reverse("usage")).content.decode()
    answer = client.get(reverse("usage"), {"by": "project", "days": "1", "format": "csv"})
    assert answer["Content-Disposition"].startswith("attachment")
    rows = list(csv.DictReader(io.StringIO(answer.content.decode())))
    assert [row["name"] for row in rows] == ["'=cmd|' /C calc'!A0"]
    assert float(rows[0]["gpu_slot_seconds"]) > 1000
    assert "calc" not in as_(stranger).get(reverse("usage"), {"by": "project"}).content.decode()
    everything = as_(studio.dora).get(reverse("usage"), {"by": "project"}).content.decode()
    assert "calc" in everything
    assert "CIFAR" in everything
