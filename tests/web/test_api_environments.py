"""Environments, thresholds, choices of notifications, shared data and search by the API: what their pages do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from experiments.models import ExperimentWatch, MetricWatch, NamedEnvironment
from tests.web import api
from tests.web.api import Script
from tests.web.seed import Seeded


@pytest.fixture
def dora(studio: Seeded) -> Script:
    return api.of(studio.dora)


def test_an_environment_is_offered_changed_renewed_retired_and_deleted(studio: Seeded, dora: Script) -> None:
    said = {"name": "Text", "description": "for words", "requirements": "tqdm>=4\n"}
    made = dora.post("/offered-environments", said, **{"Idempotency-Key": "once"})
    assert made.status_code == 201
    offered = made.json()
    assert (offered["name"], offered["version"], offered["retired"]) == ("Text", 1, False)
    assert dora.post("/offered-environments", said, **{"Idempotency-Key": "once"}).json()["id"] == offered["id"]
    path = f"/offered-environments/{offered['id']}"
    assert dora.send("PATCH", path, {"description": "for text"}).json()["version"] == 1, "the same packages"
    assert dora.send("PATCH", path, {"requirements": "tqdm>=4.60\n"}).json()["version"] == 2
    assert dora.post(f"{path}/renew").json()["version"] == 3
    assert dora.post(f"{path}/build").status_code == 202
    assert dora.send("PATCH", path, {"retired": True}).json()["retired"] is True
    assert api.of(studio.alice).get(path).json()["description"] == "for text"
    assert dora.send("DELETE", path).status_code == 204
    assert not NamedEnvironment.objects.filter(name="Text").exists()


def test_what_is_wrong_with_an_environment_is_the_sentence_of_its_form(studio: Seeded, dora: Script) -> None:
    refused = dora.post("/offered-environments", {"name": "", "requirements": ""})
    assert (refused.status_code, set(refused.json()["errors"])) == (400, {"name", "requirements"})
    used = NamedEnvironment.objects.get()
    assert "retire it instead" in dora.send("DELETE", f"/offered-environments/{used.pk}").json()["detail"]


def test_a_built_environment_is_read_with_its_lock_by_who_has_it(studio: Seeded, dora: Script) -> None:
    listed = dora.get("/environments").json()["items"]
    assert studio.environment.pk in [each["id"] for each in listed]
    assert {each["lock"] for each in listed} == {None}
    one = api.of(studio.alice).get(f"/environments/{studio.environment.pk}").json()
    assert one["lock"] == studio.environment.lock
    assert {build["state"] for build in one["builds"]} == {build.state for build in studio.environment.builds.all()}


def test_thresholds_are_the_callers_own(studio: Seeded) -> None:
    alice, bob = api.of(studio.alice), api.of(studio.bob)
    path, wanted = f"/runs/{studio.running.pk}/thresholds", {"metric": "train loss", "above": False, "threshold": 0.25}
    before = len(alice.get(path).json()["items"])
    made = alice.post(path, wanted)
    assert (made.status_code, made.json()["told_at"]) == (201, None)
    assert len(alice.get(path).json()["items"]) == before + 1
    assert made.json() not in bob.get(path).json()["items"]
    assert bob.send("DELETE", f"{path}/{made.json()['id']}").status_code == 404
    other = f"/runs/{studio.completed.pk}/thresholds/{made.json()['id']}"
    assert alice.send("DELETE", other).status_code == 404, "it is not of this run"
    assert alice.send("DELETE", f"{path}/{made.json()['id']}").status_code == 204
    assert not MetricWatch.objects.filter(pk=made.json()["id"]).exists()
    refused = alice.post(f"/runs/{studio.completed.pk}/thresholds", wanted)
    assert (refused.status_code, set(refused.json()["errors"])) == (400, {"metric"})


def test_thresholds_of_an_experiment_too(studio: Seeded) -> None:
    alice = api.of(studio.alice)
    path = f"/experiments/{studio.experiment.pk}/thresholds"
    made = alice.post(path, {"metric": "test loss", "above": True, "threshold": 2}).json()
    assert made in alice.get(path).json()["items"]
    assert alice.send("DELETE", f"{path}/{made['id']}").status_code == 204
    assert not ExperimentWatch.objects.filter(pk=made["id"]).exists()


def test_what_has_the_words_is_found_among_what_one_may_open(studio: Seeded) -> None:
    hits = api.of(studio.alice).get(f"/search?q={studio.running.pk}").json()["items"]
    assert ("run", studio.running.pk) in [(hit["kind"], hit["id"]) for hit in hits]
    assert all(hit["url"].startswith("http://testserver/") for hit in hits)
    inside = api.of(studio.bob, project=studio.cifar).get("/search?q=e").json()["items"]
    assert {hit["project"] for hit in inside} <= {studio.cifar.pk, None}


def test_what_one_is_told_of_is_chosen_kind_by_kind(studio: Seeded) -> None:
    alice = api.of(studio.alice)
    before = alice.get("/me/notifications").json()
    changed = alice.send("PATCH", "/me/notifications", {"ways": {"run.completed": []}})
    assert changed.json() == {**before, "ways": {**before["ways"], "run.completed": []}}
    assert alice.get("/me/notifications").json() == changed.json()
    refused = alice.send("PATCH", "/me/notifications", {"email": "nowhere"})
    assert (refused.status_code, list(refused.json()["errors"])) == (400, ["email"])
    assert alice.send("PATCH", "/me/notifications", {"ways": {"run.nonsense": ["page"]}}).status_code == 422
    narrow = api.of(studio.alice, "write")
    assert narrow.send("PATCH", "/me/notifications", {"email": "mallory@example.org"}).status_code == 403, "not by a token of a script"


def test_shared_data_is_read_by_everybody_and_no_further(studio: Seeded, settings: Any, tmp_path: Path) -> None:
    root = settings.EDT_DATA_ROOT = tmp_path
    (root / "deep").mkdir(parents=True, exist_ok=True)
    (root / "deep" / "a.csv").write_text("a,b\n")
    bob = api.of(studio.bob)
    assert "deep" in [each["name"] for each in bob.get("/shared-data/files").json()["items"]]
    assert [each["path"] for each in bob.get("/shared-data/files?path=deep").json()["items"]] == ["deep/a.csv"]
    assert b"".join(bob.get("/shared-data/files/deep/a.csv")) == b"a,b\n"
    for path in ("/shared-data/files/nothing", "/shared-data/files/deep/../../edt.sqlite3", "/shared-data/files?path=.."):
        assert bob.get(path).status_code == 404
