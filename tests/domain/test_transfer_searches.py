"""Searches for hyperparameters in a project that is exported and imported again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from experiments.models import MetricSeries, ProjectImport, RunState, Search, SearchTrial, TrainingRun, User
from experiments.runs import states
from experiments.searches import advancing
from experiments.selectors import searches
from experiments.services.searches import create_search
from tests.conftest import SentMessages
from tests.transferred import Archive, exported, imported
from tests.web import seed
from tests.web.seed import Seeded

SPEC = {"parameters": {"lr": "0.001..0.1 log"}, "metric": "test loss", "goal": "minimize", "method": "random", "trials": 2, "at_once": 1}


@pytest.fixture
def studio(db: None, home: Path, said: SentMessages) -> Seeded:
    return seed.studio(now=timezone.now(), steps=60)


@pytest.fixture
def search(studio: Seeded) -> Search:
    """Bob's, over, with two trials."""
    made = create_search(studio.digits, by=studio.bob, spec=SPEC, version=studio.version, name="seek", now=timezone.now())
    for loss in (0.5, 0.25):
        run = made.trials.order_by("-place")[0].run
        MetricSeries.objects.create(run=run, group="test", name="loss", least=loss, greatest=loss)
        for state in (RunState.STARTING, RunState.RUNNING, RunState.COMPLETED):
            states.transition(run, state, reason="a test", now=timezone.now())
        advancing.advance_all(timezone.now())
    made.refresh_from_db()
    assert (made.state, made.trials.count()) == ("finished", 2)
    return made


def test_a_search_is_there_again_with_its_trials_and_its_best(studio: Seeded, search: Search) -> None:
    order = imported(exported(studio.digits), User.objects.get(username="charlie"))
    assert (order.state, order.says) == (ProjectImport.State.DONE, "")
    found = Search.objects.get(experiment__project=order.project)
    same = ("spec", "state", "reason", "created_at", "ended_at")
    assert [getattr(found, name) for name in same] == [getattr(search, name) for name in same]
    columns = ("place", "number", "values", "settled", "result", "ended_early", "run__name")
    assert list(found.trials.values_list(*columns)) == list(search.trials.values_list(*columns))
    best = searches.facts(found).best
    assert best is not None
    assert (best.result, best.run.experiment.project) == (0.25, order.project)
    advancing.advance_all(timezone.now())
    assert found.trials.count() == 2, "it is over"


def test_one_that_goes_on_is_over_where_it_arrives_without_the_trial_that_runs(studio: Seeded, search: Search) -> None:
    Search.objects.filter(pk=search.pk).update(ended_at=None, state="running", reason="")
    TrainingRun.objects.filter(pk=search.trials.get(place=1).run_id).update(state=RunState.RUNNING, ended_at=None)
    order = imported(exported(studio.digits), User.objects.get(username="charlie"))
    found = Search.objects.get(experiment__project=order.project)
    assert (found.state, found.reason) == ("stopped", "It went on when the project was exported.")
    assert [trial.result for trial in found.trials.all()] == [0.5]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"spec": "{}"}, "cannot be stored here"),
        ({"spec": "["}, "cannot be stored here"),
        ({"experiment": 10**6}, "of an experiment that the archive has not"),
        ({"ended_at": "2990-01-01T00:00:00+00:00"}, "in the future"),
        ({"state": "running"}, "not of the form"),
        ({"trials": [{"run": 1, "place": 0, "number": 0, "values": '{"lr": [1]}', "result": None}]}, "cannot have been"),
        ({"trials": [{"run": 1, "place": 0, "number": 10**30, "values": "{}", "result": None}]}, "cannot have been"),
        ({"trials": [{"run": n, "place": 0, "number": 0, "values": "{}", "result": None} for n in (1, 2)]}, "two at one place"),
        ({"trials": [{"run": 1, "place": n, "number": 0, "values": "{}", "result": None} for n in (0, 1)]}, "a trial of a search twice"),
    ],
)
def test_what_an_archive_cannot_say_of_one_is_refused(studio: Seeded, search: Search, changes: dict[str, Any], says: str) -> None:
    archive = Archive.of(exported(studio.digits))
    archive.manifest["searches"][0] |= changes
    count = SearchTrial.objects.count()
    order = imported(archive.packed(), User.objects.get(username="charlie"))
    assert order.state == ProjectImport.State.REFUSED
    assert says in order.says
    assert SearchTrial.objects.count() == count
