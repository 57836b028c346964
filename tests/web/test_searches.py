"""A search for hyperparameters on its experiment's page and by the API: how it stands, and ending it."""

from __future__ import annotations

from typing import Any

import pytest
from django.utils import timezone

from experiments.models import Experiment, Search, User
from experiments.searches import advancing
from experiments.services.projects import add_member
from tests.web import api, wmla
from tests.web.conftest import As
from tests.web.test_wmla_searches import finish, live, started


@pytest.fixture
def experiment(alice: User, victor: User, said: Any, home: Any) -> Experiment:
    """A search of Alice's, with two trials at once of which Victor may know."""
    started(wmla.of(alice), maxJobNum=4, maxParalleJobNum=2)
    advancing.advance_all(timezone.now())
    made = Search.objects.get().experiment
    add_member(made.project, by=alice, username="victor", role="viewer")
    return made


def test_the_page_says_what_is_looked_for_how_far_it_is_and_which_trial_was_best(experiment: Experiment, alice: User, as_: As) -> None:
    page = f"/experiments/{experiment.pk}/"
    first = as_(alice).get(page).content.decode()
    assert 'the smallest <code>loss</code>\n    <span class="quiet">(at random)</span>' in first
    assert "0 of 4 have ended" in first
    assert "none has come to a result" in first
    one, two = live()
    finish(one, 0.9, 0.4)
    finish(two, 0.25)
    advancing.advance_all(timezone.now())
    after = as_(alice).get(page).content.decode()
    assert "2 of 4 have ended" in after
    assert f'<b>0.25</b> by <a\n      href="/runs/{two.pk}/">' in after
    assert f"learning_rate={two.trial.values['learning_rate']}" in after


def test_an_editor_ends_it_and_a_viewer_reads(experiment: Experiment, alice: User, victor: User, as_: As) -> None:
    page, stop = f"/experiments/{experiment.pk}/", f"/experiments/{experiment.pk}/search/stop/"
    assert "Stop the search" not in as_(victor).get(page).content.decode()
    assert as_(victor).post(stop).status_code == 403
    assert Search.objects.get().ended_at is None
    answer = as_(alice).post(stop, follow=True).content.decode()
    assert "nothing more is tried" in answer
    assert "Stopped. Stopped by alice." in answer
    assert "Stop the search" not in answer
    advancing.advance_all(timezone.now())
    assert experiment.runs.count() == 2
    assert not live()


def test_another_experiment_is_no_search(alice: User, project: Any, as_: As, said: Any) -> None:
    plain = Experiment.objects.create(project=project, name="plain", created_by=alice, created_at=timezone.now())
    assert "Search for hyperparameters" not in as_(alice).get(f"/experiments/{plain.pk}/").content.decode()
    assert as_(alice).post(f"/experiments/{plain.pk}/search/stop/").status_code == 404
    assert api.of(alice).get(f"/experiments/{plain.pk}/search").status_code == 404


def test_by_the_api(experiment: Experiment, alice: User) -> None:
    script = api.of(alice)
    one, _ = live()
    finish(one, 0.4)
    advancing.advance_all(timezone.now())
    found = script.get(f"/experiments/{experiment.pk}/search").json()
    assert (found["state"], found["algorithm"], found["objective"], found["ended"], found["most"]) == (
        "running",
        "Random",
        "minimize",
        1,
        4,
    )
    assert found["best"] == found["trials"][0]
    assert found["best"] == {"run": one.pk, "values": one.trial.values, "ended": True, "result": 0.4, "ended_early": False}
    assert len(found["trials"]) == 3
    ended = script.post(f"/experiments/{experiment.pk}/search/stop", {}).json()
    assert (ended["state"], ended["reason"]) == ("stopped", "Stopped by alice.")
