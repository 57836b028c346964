"""Parameters and tags that a script logs: kept with the run, within limits, shown and compared."""

from __future__ import annotations

import datetime as dt

import pytest

from experiments.cluster import scheduling
from experiments.metrics import ingest, journal_rows
from experiments.models import LoggedFacts, Project, TrainingRun, User
from experiments.selectors import compare, run_pages
from tests import cast
from training_runtime.noted import Noted

pytestmark = pytest.mark.django_db
NOW = dt.datetime(2026, 11, 22, 12, 0, tzinfo=dt.UTC)


@pytest.fixture
def run(project: Project, alice: User) -> TrainingRun:
    cast.node(now=NOW)
    made = cast.run(project, by=alice, now=NOW)
    scheduling.tick(NOW)
    return made


def test_the_last_value_counts_and_what_was_dropped_is_gone(run: TrainingRun) -> None:
    cast.write_journal(run, Noted({"lr": "0.1"}, {"team": "vision", "stage": "first", "mlflow.user": "alice"}))
    ingest.catch_up(run.pk, now=NOW)
    cast.write_journal(run, Noted({"lr": "0.2", "depth": "4"}, {}, ("stage",)), Noted({}, {"stage": "second"}))
    ingest.catch_up(run.pk, now=NOW)
    facts = LoggedFacts.objects.get(run=run)
    assert facts.parameters == {"lr": "0.2", "depth": "4"}
    assert facts.tags == {"team": "vision", "stage": "second", "mlflow.user": "alice"}
    shown = run_pages.logged_facts(run)
    assert shown is not None and shown.tags == {"team": "vision", "stage": "second"}
    rows = {row.name: row.values for row in compare.table([run], now=NOW)}
    assert (rows["lr"], rows["depth"]) == (["0.2"], ["4"])


def test_any_number_of_any_size_is_bounded(run: TrainingRun) -> None:
    many = [Noted({f"{place}-{each}": "x" for each in range(700)}, {}) for place in range(2)]
    cast.write_journal(run, Noted({"n\0ame" * 100: "v\0\ud800" * 9000}, {}), *many)
    ingest.catch_up(run.pk, now=NOW)
    parameters = LoggedFacts.objects.get(run=run).parameters
    assert len(parameters) == journal_rows.MOST_NOTED
    assert all(len(name) <= journal_rows.NOTED_NAME_LIMIT and len(value) <= journal_rows.NOTED_LIMIT for name, value in parameters.items())
    assert "401 parameters or tags: a run has at most 1,000 of each." in run_pages.left_out(run)
