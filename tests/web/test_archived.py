"""An archived project: out of the way, read by its members, changed and run by nobody until an admin takes it back. Nothing is lost."""

from __future__ import annotations

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from experiments import services
from experiments.errors import DomainError
from experiments.mlflow import views as mlflow
from experiments.models import (
    DefinitionVersion,
    Metric,
    ModelAlias,
    ModelDraft,
    ModelVersion,
    Project,
    RunValue,
    TrainingRun,
    User,
)
from experiments.models.runs import LIVE
from tests import cast
from tests.conftest import SentMessages
from tests.web import api, test_api_permissions, wmla
from tests.web import test_wmla_trainings as trained
from tests.web.conftest import As
from tests.web.seed import Seeded
from tests.web.submitting import GEN_B, MAIN, part, run_of, submit, tar
from tests.web.test_every_address import FORMS, MEMBERS, PUTS, WRITES, sample, version_of
from tests.web.wmla import basic

# What an admin does all the same: the project's settings; and what is one's own, or goes into another project.
SETTINGS = {
    "members", "member_role", "member_remove", "project_settings", "delete_project", "archive_project", "take_back_project",
    "project_variables", "delete_project_variable", "project_webhooks", "delete_model", "delete_model_version",
}  # fmt: skip
ONES_OWN = {"copy_definition", "watch_metric", "watch_experiment", "save_view", "delete_view"}
KEPT_CALLS = {
    ("PATCH", "/projects/{project}"), ("DELETE", "/projects/{project}"), ("POST", "/projects/{project}/members"),
    ("PATCH", "/projects/{project}/members/{username}"), ("DELETE", "/projects/{project}/members/{username}"),
    ("PUT", "/projects/{project}/variables/{name}"), ("DELETE", "/projects/{project}/variables/{name}"),
    ("POST", "/projects/{project}/webhooks"), ("DELETE", "/models/{model}"), ("DELETE", "/models/{model}/versions/{which}"),
    ("POST", "/runs/{run}/thresholds"), ("POST", "/experiments/{experiment}/thresholds"), ("POST", "/projects/{project}/views"),
    ("DELETE", "/views/{view}"),
}  # fmt: skip


def archived(project: Project) -> None:
    """Whatever runs in it."""
    Project.objects.filter(pk=project.pk).update(archived_at=timezone.now())


def test_it_leaves_the_list_and_is_found_in_the_archive(alice: User, bob: User, victor: User, as_: As) -> None:
    old = cast.shared_project(alice, editor=bob, viewer=victor, name="Old digits")
    cast.shared_project(alice, editor=bob, viewer=victor, name="New digits")
    client, at = as_(alice), reverse("projects")
    said = client.post(reverse("archive_project", args=[old.pk]), follow=True).content.decode()
    assert "Old digits is archived." in said
    page = client.get(at).content.decode()
    assert "Old digits" not in page
    assert "1 archived" in page
    there = client.get(at, {"archived": "1"}).content.decode()
    assert "Old digits" in there
    assert "New digits" not in there
    assert "Old digits" in client.get(at, {"archived": "1", "q": "old", "part": "list"}).content.decode()
    assert "archived" in as_(victor).get(reverse("project", args=[old.pk])).content.decode()
    client.post(reverse("take_back_project", args=[old.pk]), follow=True)
    assert "Old digits" in client.get(at).content.decode()
    assert "archived project" not in client.get(at).content.decode()


def test_what_the_search_finds_in_it_is_marked(studio: Seeded, as_: As) -> None:
    client, at = as_(studio.alice), reverse("search")
    words = (studio.digits.name, studio.experiment.name, studio.version.definition.name, str(studio.completed.pk))
    assert not [word for word in words if ">archived<" in client.get(at, {"q": word}).content.decode()]
    archived(studio.digits)
    assert not [word for word in words if ">archived<" not in client.get(at, {"q": word}).content.decode()]


def test_nothing_in_it_is_written_or_run_whatever_the_address(studio: Seeded, as_: As) -> None:
    before = TrainingRun.objects.count()
    addresses = {name: sample(name, studio) for name in MEMBERS & (WRITES | FORMS) - SETTINGS - ONES_OWN}
    pieces = {name: sample(name, studio) for name in PUTS & MEMBERS}
    archived(studio.digits)
    archived(studio.cifar)
    alice = as_(studio.alice)
    got = {name: alice.post(address).status_code for name, address in addresses.items()}
    got |= {name: alice.put(address).status_code for name, address in pieces.items()}
    assert {name: status for name, status in got.items() if status != 403} == {}
    assert TrainingRun.objects.count() == before
    refused = alice.post(reverse("new_definition", args=[studio.digits.pk])).content.decode()
    assert "This project is archived" in refused
    page = alice.get(reverse("assets", args=[studio.digits.pk])).content.decode()
    assert "New experiment" not in page


def test_its_members_read_it_and_its_admins_keep_its_settings(studio: Seeded, as_: As) -> None:
    archived(studio.digits)
    for name in ("project", "assets", "jobs", "run", "run_results", "definition", "experiment", "compare"):
        assert as_(User.objects.get(username="victor")).get(sample(name, studio)).status_code == 200, name
    settings = reverse("project_settings", args=[studio.digits.pk])
    assert as_(studio.alice).post(settings, {"name": "Digits of old", "description": ""}).status_code == 302
    assert "Take it back" in as_(studio.alice).get(settings).content.decode()
    assert as_(studio.bob).post(reverse("take_back_project", args=[studio.digits.pk])).status_code == 403


def test_it_is_refused_while_a_run_is_live(studio: Seeded) -> None:
    with pytest.raises(DomainError, match="has not ended"):
        services.archive_project(studio.digits, by=studio.alice)
    assert Project.objects.get(pk=studio.digits.pk).archived_at is None
    TrainingRun.objects.filter(state__in=LIVE).update(state="stopped")
    services.archive_project(studio.digits, by=studio.alice)
    assert Project.objects.get(pk=studio.digits.pk).archived_at is not None


def test_a_run_that_was_asked_for_before_does_not_begin_after(studio: Seeded) -> None:
    archived(studio.digits)
    with pytest.raises(DomainError, match="archived"):
        services.run_experiment(studio.experiment, by=studio.alice)


def test_no_call_of_the_api_writes_in_it(studio: Seeded) -> None:
    script, before = api.of(studio.alice), test_api_permissions.counted()
    archived(studio.digits)
    archived(studio.cifar)
    calls = {call for call in test_api_permissions.MEMBERS - KEPT_CALLS if call[0] != "GET"}
    got = {call: test_api_permissions.sent(script, call, studio) for call in sorted(calls)}
    assert {call: status for call, status in got.items() if status != 403} == {}
    assert test_api_permissions.counted() == before


def test_scripts_archive_it_too(studio: Seeded) -> None:
    script, at = api.of(studio.alice), f"/projects/{studio.digits.pk}"
    assert script.send("PATCH", at, {"archived": True, "name": "Other"}).status_code == 400, "a run is live"
    assert script.get(at).json()["name"] == studio.digits.name, "together or not at all"
    TrainingRun.objects.filter(state__in=LIVE).update(state="stopped")
    assert script.get(at).json()["archived_at"] is None
    assert script.send("PATCH", at, {"archived": True}).json()["archived_at"] is not None
    assert script.send("PATCH", at, {"description": "of old"}).json()["archived_at"] is not None, "what is left out stays"
    assert studio.digits.pk not in [each["id"] for each in script.get("/projects").json()["items"]]
    assert [each["id"] for each in script.get("/projects?archived=true").json()["items"]] == [studio.digits.pk]
    refused = script.post(f"/experiments/{studio.experiment.pk}/runs")
    assert (refused.status_code, "archived" in refused.json()["detail"]) == (403, True)
    assert script.send("PATCH", at, {"archived": False}).json()["archived_at"] is None
    assert script.post(f"/experiments/{studio.experiment.pk}/runs").status_code == 201


NOTES = {
    "runs/update": {"status": "FINISHED"},
    "runs/log-metric": {"key": "loss", "value": 0.5, "timestamp": 1, "step": 1},
    "runs/log-batch": {"metrics": [{"key": "loss", "value": 0.5, "timestamp": 1, "step": 1}]},
    "runs/log-inputs": {"datasets": [{"dataset": {"name": "digits", "digest": "1"}}]},
    "runs/log-parameter": {"key": "depth", "value": "4"},
    "runs/set-tag": {"key": "verdict", "value": "keep"},
    "runs/delete-tag": {"key": "verdict"},
    "runs/create": {},
    "model-versions/create": {"source": "x"},
    "registered-models/alias": {"alias": "champion", "version": "1"},
    "model-versions/set-tag": {"key": "data", "value": "2027", "version": "1"},
}
MAKES_A_PROJECT = {"experiments/create", "registered-models/create", "registered-models/get-latest-versions"}  # or finds, or reads


def test_nothing_is_logged_to_it_by_mlflow(studio: Seeded) -> None:
    model = version_of(studio).model
    about = {"run_id": str(studio.completed.pk), "experiment_id": str(studio.digits.pk), "name": model.name}
    writing = {name for name in mlflow.POSTS if not name.endswith("/search")} - MAKES_A_PROJECT
    assert writing == set(NOTES), "say in this file what a new call writes"
    archived(studio.digits)
    client, headers = Client(), basic("alice")
    before = written(studio)
    for name, said in NOTES.items():
        answer = client.post(f"/api/2.0/mlflow/{name}", {**about, **said}, content_type="application/json", headers=headers)
        assert (answer.status_code, "archived" in answer.content.decode()) == (403, True), (name, answer.content)
    alias = client.delete("/api/2.0/mlflow/registered-models/alias", {**about, "alias": "champion"}, "application/json", headers=headers)
    file = client.put(f"/api/2.0/mlflow-artifacts/artifacts/runs/{studio.completed.pk}/a.txt", b"a", headers=headers)
    assert (alias.status_code, file.status_code) == (403, 403), (alias.content, file.content)
    assert written(studio) == before


def written(studio: Seeded) -> list[object]:
    """What MLflow's client could have changed."""
    run = TrainingRun.objects.get(pk=studio.completed.pk)
    rows = [each.objects.count() for each in (TrainingRun, Metric, RunValue, ModelVersion, ModelAlias)]
    return [run.state, run.tags, ModelVersion.objects.values_list("tags", flat=True)[0], *rows]


def test_nothing_is_submitted_to_it_or_taken_out_of_it_by_ibms_routes(alice: User, said: SentMessages) -> None:
    script = wmla.of(alice)
    submitted = [run_of(submit(script, GEN_B, part(tar({"resnet-wmla/elastic-main.py": MAIN})))) for _ in range(2)]
    TrainingRun.objects.update(state="completed")
    project = Project.objects.get()
    trainings = trained.Client(script)
    key = trained.defined(trainings, str(project.pk))
    archived(project)
    before = counted_drafts()
    calls: list[tuple[str, str, object]] = [
        ("post", f"{wmla.DL}/execs?args={GEN_B.replace(' ', '%20')}", part(tar({"resnet-wmla/elastic-main.py": MAIN}))),
        ("delete", f"{wmla.DL}/execs/wmla-{submitted[0].pk}", None),
    ]
    for method, address, data in calls:
        answer = script.call(method, address, data, Accept="application/json")
        assert (answer.status_code, "archived" in answer.content.decode()) == (403, True), (address, answer.content)
    assert script.call("delete", f"{wmla.DL}/execs").status_code == 204, "it takes all that may be taken, which is nothing"
    v4 = "/ml/v4/model_definitions"
    trainings.call("post", v4, {"name": "x", "space_id": str(project.pk), "command": "main.py"}, status=403)
    trainings.call("put", f"{v4}/{key}/model", cast.zipped().getvalue(), kind="application/zip", status=403)
    trainings.call("delete", f"{v4}/{key}", status=403)
    trainings.call("post", "/ml/v4/trainings", trained.training(str(project.pk), key), status=403)
    answer = script.call("delete", f"/ml/v4/trainings/wmla-{submitted[1].pk}?hard_delete=true")
    assert answer.status_code == 403, answer.content
    assert counted_drafts() == before


def counted_drafts() -> tuple[int, ...]:
    return (*test_api_permissions.counted(), ModelDraft.objects.count(), DefinitionVersion.objects.count())
