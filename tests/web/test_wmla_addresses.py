"""Every address of WMLA's interface: nobody gets an answer without saying who they are, and none redirects."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from experiments.models import User
from experiments.wmla.urls import urlpatterns
from tests.web import wmla

METHODS = ("get", "post", "head", "put", "patch", "delete", "options")
SAMPLES: dict[str, Any] = {
    "exec_id": "wmla-1",
    "space": "1",
    "key": "b7a7bb5e-3f27-4f1c-8d2a-90a1a7e5a001",
    "name": "cluster",
    "group": "0-0",
    "executor": "1",
    "kind": "stdout",
    "download": "/download",
    "search": "alice-hpo-1",
    "algorithm": "Random",
}


def address(pattern: Any) -> str:
    if pattern.name == "wmla_unknown":
        return "/platform/rest/deeplearning/v1/models/lenet/trainings"
    return reverse(pattern.name, kwargs={key: SAMPLES[key] for key in pattern.pattern.regex.groupindex})


@pytest.mark.parametrize("accept", ["application/json", "text/plain", "*/*"])
def test_nobody_gets_an_answer_without_saying_who_they_are(db: None, accept: str) -> None:
    wrong = []
    for pattern in (each for each in urlpatterns if each.name.startswith("wmla_")):
        for slash in ("", "/"):
            for method in METHODS:
                answer = getattr(Client(enforce_csrf_checks=True), method)(address(pattern) + slash, headers={"Accept": accept})
                plain = answer["Content-Type"] == ("application/json" if "json" in accept else "text/plain; charset=utf-8")
                said_405 = answer.status_code == 405 and pattern.name.endswith(("logon", "auth", "authorize"))
                if not (plain and (answer.status_code == 401 or said_405)):
                    wrong.append((pattern.name, slash, method, answer.status_code, answer["Content-Type"]))
    assert not wrong


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("deeplearning/v1/models/lenet/trainings", "submit the script with POST"),
        ("deeplearning/v1/datasets", "put the data into a folder below the shared data root"),
        ("deeplearning/v1/models/lenet/hypersearch/tune", "start the search with POST"),
        ("deeplearning/v1/execs/wmla-1/deploy", "serve it elsewhere"),
        ("deeplearning/v1/edimodels/lenet/operation/start", "serve it elsewhere"),
        ("conductor/v1/instances", "Cluster > Instance groups"),
        ("deeplearning/v1/nonsense", "There is no such address."),
    ],
)
def test_of_what_is_not_there_is_said_what_to_do_instead(alice: User, path: str, says: str) -> None:
    for method in ("get", "post", "delete"):
        answer = wmla.of(alice).call(method, f"/platform/rest/{path}", Accept="application/json")
        assert (answer.status_code, says in answer.json()["message"]) == (404, True), answer.content


def test_a_model_of_the_later_interface_is_served_elsewhere(alice: User) -> None:
    assert "serve it elsewhere" in wmla.of(alice).get("/ml/v4/deployments?version=2020-08-01").content.decode()


def test_another_method_than_those_of_an_address_is_refused(alice: User) -> None:
    assert wmla.of(alice).call("delete", f"{wmla.DL}/conf").status_code == 405
