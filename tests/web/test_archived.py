"""An archived project: out of the way, read by its members, changed and run by nobody until an admin takes it back. Nothing is lost."""

from __future__ import annotations

import pytest
from django.urls import reverse
from django.utils import timezone

from experiments import services
from experiments.errors import DomainError
from experiments.models import Project, TrainingRun, User
from experiments.models.runs import LIVE
from tests import cast
from tests.web import api, test_api_permissions
from tests.web.conftest import As
from tests.web.seed import Seeded
from tests.web.test_every_address import FORMS, MEMBERS, PUTS, WRITES, sample

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
