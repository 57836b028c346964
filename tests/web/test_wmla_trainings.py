"""The WML interface (v4) as its Python client uses it: a space, a model definition with its zip, a training and its curves."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from experiments.metrics import ingest
from experiments.models import ModelDraft, Project, TrainingDefinition, TrainingRun, User
from tests import cast
from tests.conftest import SentMessages
from tests.disk import small_disk
from tests.web import wmla
from tests.web.seed import Seeded
from tests.web.wmla import Script
from training_runtime import journal

TESTED = journal.Test(step=2, epoch=1, metrics={"loss": 0.25}, samples=10)
VERSION = "version=2020-08-01"


class Client:
    """Calls with JSON, as the client does."""

    def __init__(self, script: Script) -> None:
        self.script = script

    def call(self, method: str, path: str, body: Any = None, *, kind: str = "application/json", status: int = 200) -> Any:
        said: dict[str, Any] = {} if body is None else {"data": body, "content_type": kind}
        client = getattr(self.script.client, method)
        answer = client(f"{path}?{VERSION}", headers={**self.script.headers, "Accept": "application/json"}, **said)
        assert answer.status_code == status, (path, answer.status_code, answer.content)
        return answer.json() if answer.content else None


@pytest.fixture
def client(alice: User, said: SentMessages) -> Client:
    return Client(wmla.of(alice))


def defined(client: Client, space: str, files: dict[str, str | bytes] | None = None) -> str:
    about = {
        "name": "mnist",
        "space_id": space,
        "description": "",
        "tags": [],
        "version": "1.0",
        "platform": {"name": "python", "versions": ["3.7"]},
    }
    key = str(client.call("post", "/ml/v4/model_definitions", {**about, "command": "main.py"}, status=201)["metadata"]["id"])
    code = cast.zipped(files).getvalue()
    said = client.call("put", f"/ml/v4/model_definitions/{key}/model", code, kind="application/zip", status=201)
    assert (said["content_format"], said["persisted"]) == ("native", True)
    return key


def training(space: str, key: str, **changes: Any) -> dict[str, Any]:
    return {
        "name": "digits",
        "space_id": space,
        "tags": ["first"],
        "training_data_references": [{"name": "data", "type": "fs", "connection": {}, "location": {"path": "pytorch-mnist"}, "schema": {}}],
        "results_reference": {"type": "fs", "location": {"path": "results"}},
        "model_definition": {
            "id": key,
            "command": "main.py --epochs 10",
            "hardware_spec": {"name": "K80", "nodes": 2},
            "software_spec": {"name": "pytorch-onnx_1.3-py3.7"},
            "parameters": {},
        },
        **changes,
    }


def test_the_client_makes_a_space_a_definition_and_a_training(client: Client, alice: User, home: Path) -> None:
    (home / "data" / "pytorch-mnist").mkdir()
    space = client.call("post", "/v2/spaces", {"name": "Deep learning", "description": ""}, status=201)["metadata"]["id"]
    assert client.call("get", f"/v2/spaces/{space}")["entity"]["status"]["state"] == "active"
    key = defined(client, space)
    made = client.call("post", "/ml/v4/trainings", training(space, key), status=201)
    run = TrainingRun.objects.get()
    assert (run.command, run.data_folder, run.max_slots, run.tags) == ("main.py --epochs 10", "pytorch-mnist", 2, ["first"])
    assert (run.experiment.project.name, run.version.definition.name, run.submitted_by) == ("Deep learning", "mnist", alice)
    found = client.call("get", f"/ml/v4/trainings/{made['metadata']['id']}")
    assert found["entity"]["status"]["state"] == "pending"
    assert found["entity"]["status"]["message"]["text"] == f"WMLA execution ID is wmla-{run.pk}"
    assert set(found["entity"]["results_reference"]["location"]) == {"path", "model", "training", "training_status", "logs", "assets_path"}
    assert [each["metadata"]["id"] for each in client.call("get", "/ml/v4/trainings")["resources"]] == [made["metadata"]["id"]]
    client.call("delete", f"/ml/v4/trainings/{made['metadata']['id']}", status=204)
    assert client.call("get", f"/ml/v4/trainings/{made['metadata']['id']}")["entity"]["status"]["state"] == "canceled"


def test_code_that_comes_again_is_the_next_version(client: Client, project: Project) -> None:
    key = defined(client, str(project.pk))
    changed = cast.zipped({"main.py": "print(2)\n"}).getvalue()
    client.call("put", f"/ml/v4/model_definitions/{key}/model", changed, kind="application/zip", status=201)
    assert [version.number for version in TrainingDefinition.objects.get().versions.order_by("number")] == [1, 2]
    client.call("delete", f"/ml/v4/model_definitions/{key}", status=204)
    assert (ModelDraft.objects.count(), TrainingDefinition.objects.count()) == (0, 1)


def test_curves_are_rows_by_iteration(client: Client, project: Project, alice: User) -> None:
    run = cast.run(project, by=alice)
    cast.write_journal(run, cast.started(), *(cast.step(number, loss=1 / number) for number in (1, 2)), TESTED)
    ingest.catch_up(run.pk, now=run.submitted_at)
    status = client.call("get", f"/ml/v4/trainings/{run.folder}")["entity"]["status"]
    assert [(row["iteration"], row["ml_metrics"]) for row in status["metrics"]] == [(1, {"loss": 1.0}), (2, {"loss": 0.5})]
    assert [(row["iteration"], row["ml_metrics"]) for row in status["validation_metrics"]] == [(2, {"loss": 0.25})]
    assert client.call("get", f"/ml/v4/trainings/wmla-{run.pk}")["entity"]["status"] == status, "the id of the job is taken too"


def test_what_cannot_be_is_refused_with_a_sentence(client: Client, project: Project, home: Path) -> None:
    space = str(project.pk)
    (home / "data" / "pytorch-mnist").mkdir()
    key = defined(client, space)
    model = training(space, key)["model_definition"]
    for wrong, says in (
        ({"model_definition": {**model, "command": "other.py"}}, "other.py"),
        ({"model_definition": {**model, "hardware_spec": {"nodes": "2"}}}, "whole number"),
        ({"model_definition": []}, "model_definition is no JSON object"),
        ({"training_data_references": [{"type": "s3", "location": {}}]}, "type s3"),
        ({"training_data_references": {}, "tags": {"a": 1}}, "tags"),
        ({"training_data_references": [{"type": "fs", "location": {"path": "nowhere"}}]}, "no folder nowhere"),
    ):
        answer = client.call("post", "/ml/v4/trainings", training(space, key, **wrong), status=400)
        assert says in answer["message"], wrong
    assert not TrainingRun.objects.exists()
    empty = client.call("post", "/ml/v4/model_definitions", {"name": "empty", "space_id": space}, status=201)["metadata"]["id"]
    answer = client.call("post", "/ml/v4/trainings", training(space, empty), status=400)
    assert "has no code yet" in answer["message"]
    assert "zip" in client.call("put", f"/ml/v4/model_definitions/{empty}/model", b"x", kind="application/zip", status=400)["message"]
    for body in ("[", "[]", "\xff"):
        client.call("post", "/ml/v4/trainings", body, status=400)


def test_a_full_disk_is_said_and_takes_nothing_half(client: Client, project: Project, home: Path) -> None:
    key = defined(client, str(project.pk))
    with small_disk(home / "tmp", 256 << 10) as disk:
        disk.fill(but=16 << 10)
        code = cast.zipped({"main.py": "x = 1", "weights.bin": os.urandom(100_000)}).getvalue()
        says = client.call("put", f"/ml/v4/model_definitions/{key}/model", code, kind="application/zip", status=507)["message"]
    assert "disk is full" in says
    assert TrainingDefinition.objects.get().versions.count() == 1
    client.call("put", f"/ml/v4/model_definitions/{key}/model", code, kind="application/zip", status=201)


def test_who_is_not_in_a_space_learns_nothing_of_it(studio: Seeded, stranger: User) -> None:
    alices, strangers = Client(wmla.of(studio.alice)), Client(wmla.of(stranger))
    space, run = str(studio.digits.pk), studio.completed.folder
    key = defined(alices, space)
    code = cast.zipped().getvalue()
    for method, path, body in (
        ("get", f"/v2/spaces/{space}", None),
        ("get", f"/ml/v4/model_definitions/{key}", None),
        ("put", f"/ml/v4/model_definitions/{key}/model", code),
        ("delete", f"/ml/v4/model_definitions/{key}", None),
        ("get", f"/ml/v4/trainings/{run}", None),
        ("get", f"/ml/v4/trainings/wmla-{studio.completed.pk}", None),
        ("delete", f"/ml/v4/trainings/{run}", None),
        ("post", "/ml/v4/trainings", training(space, key)),
        ("post", "/ml/v4/model_definitions", {"name": "x", "space_id": space}),
        ("get", "/v2/spaces/x", None),
        ("get", "/ml/v4/trainings/x", None),
    ):
        strangers.call(method, path, body, kind="application/zip" if isinstance(body, bytes) else "application/json", status=404)
    for path in ("/v2/spaces", "/ml/v4/model_definitions", "/ml/v4/trainings"):
        assert strangers.call("get", path)["resources"] == []
    viewer = Client(wmla.of(User.objects.get(username="victor")))
    viewer.call("get", f"/ml/v4/trainings/{run}")
    viewer.call("post", "/ml/v4/trainings", training(space, key), status=403)
    viewer.call("put", f"/ml/v4/model_definitions/{key}/model", code, kind="application/zip", status=403)
