"""The table of a project's runs by the API: found, sorted, a page at a time, the columns that are asked for; and kept tables."""

from __future__ import annotations

from typing import Any

import pytest

from experiments import services
from experiments.models import Experiment, Project, SavedView, User
from tests import cast
from tests.conftest import SentMessages
from tests.web import api
from tests.web.api import Script


@pytest.fixture
def experiment(project: Project, alice: User, said: SentMessages) -> Experiment:
    version = cast.definition(project, by=alice, command="main.py --lr 0.5 --opt sgd")
    made = cast.experiment(project, by=alice, versions=[version])
    first = services.run_experiment(made, by=alice)[0]
    services.run_with_changes(first, by=alice, commands=[f"main.py --lr {rate} --opt adam" for rate in ("0.1", "1e-2", "3")])
    return made


@pytest.fixture
def script(experiment: Experiment, alice: User) -> Script:
    return api.of(alice)


def asked(script: Script, of: Experiment, **query: Any) -> Any:
    return script.client.get(f"/api/v1/projects/{of.project_id}/runs", query, headers=script.headers)


def test_runs_are_found_sorted_and_shown_a_page_at_a_time(script: Script, experiment: Experiment) -> None:
    query = {"filter": "opt = adam or lr = 0.5", "sort": "-arg.lr", "columns": ["arg.lr", "arg.opt", "state"], "limit": 3}
    first = asked(script, experiment, **query).json()
    assert [row["values"] for row in first["items"]] == [
        {"arg.lr": 3, "arg.opt": "adam", "state": "queued"},
        {"arg.lr": 0.5, "arg.opt": "sgd", "state": "queued"},
        {"arg.lr": 0.1, "arg.opt": "adam", "state": "queued"},
    ]
    rest = asked(script, experiment, **query, cursor=first["next"]).json()
    assert [row["values"]["arg.lr"] for row in rest["items"]] == [0.01]
    assert rest["next"] is None
    assert asked(script, experiment, experiment=experiment.pk).json()["items"][0]["experiment"] == experiment.pk


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ({"filter": "lr <"}, "filter: At character 5: A value is expected here"),
        ({"sort": "never"}, "No run here has never"),
        ({"columns": ["arg.lr", "nor this"]}, "No run here has nor this"),
        ({"cursor": "bm9uZQ"}, "That is no cursor of this list"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(script: Script, experiment: Experiment, query: dict[str, Any], said: str) -> None:
    answer = asked(script, experiment, **query)
    assert answer.status_code == 422
    assert said in answer.json()["detail"]


def test_tables_are_kept_for_oneself_or_for_the_project(script: Script, experiment: Experiment, victor: User, bob: User) -> None:
    there = f"/projects/{experiment.project_id}/views"
    shared = script.post(there, {"name": "Best first", "query": "sort=train.loss&x=1", "shared": True, "experiment": experiment.pk}).json()
    assert (shared["query"], shared["shared"]) == ("sort=train.loss", True)
    assert shared["url"].endswith(f"/experiments/{experiment.pk}/table/?sort=train.loss")
    own = api.of(victor)
    assert own.post(there, {"name": "Mine", "shared": True}).status_code == 403
    mine = own.post(there, {"name": "Mine"}).json()
    assert [each["name"] for each in own.get(there).json()["items"]] == ["Best first", "Mine"]
    assert [each["name"] for each in script.get(there).json()["items"]] == ["Best first"]
    assert script.send("DELETE", f"/views/{mine['id']}").status_code == 404
    assert own.send("DELETE", f"/views/{shared['id']}").status_code == 403
    assert own.send("DELETE", f"/views/{mine['id']}").status_code == 204
    assert api.of(bob).send("DELETE", f"/views/{shared['id']}").status_code == 204
    assert not SavedView.objects.exists()
