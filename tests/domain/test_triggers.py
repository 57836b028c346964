"""Triggers: who is believed, what is done once, in whose name, and what is said where nothing is."""

from __future__ import annotations

import datetime as dt
import io
import json
import uuid
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from django.db import OperationalError
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from hypothesis import given
from hypothesis import strategies as st

from experiments import services, triggers
from experiments.accounts import signatures
from experiments.errors import DomainError
from experiments.models import Experiment, Membership, Project, TrainingRun, Trigger, TriggerDelivery, User
from experiments.services import triggers as verbs
from tests import cast
from tests.gitserver import HOST, NEEDED, serving

BODY = json.dumps({"ref": "refs/heads/main", "after": "abc"}).encode()


@given(st.binary(max_size=200), st.text(min_size=1, max_size=50), st.sampled_from([*signatures.SIGNED]))
def test_only_who_knows_the_secret_signs(body: bytes, secret: str, header: str) -> None:
    signed = signatures.sign(body, secret)
    assert signatures.is_signed({header: signed}, body, secret)
    assert signatures.is_signed({header: signed.removeprefix("sha256=")}, body, secret), "as Gitea sends it"
    assert signatures.is_signed({signatures.TOKEN: secret}, body, secret), "as GitLab does"
    assert not signatures.is_signed({header: signed}, body + b" ", secret)
    assert not signatures.is_signed({header: signatures.sign(body, secret + "x")}, body, secret)
    assert not signatures.is_signed({signatures.TOKEN: secret + "x", header: "ü"}, body, secret)
    assert not signatures.is_signed({}, body, secret)


@pytest.mark.parametrize(
    ("headers", "body", "branch"),
    [
        ({"X-GitHub-Event": "push"}, BODY, "main"),
        ({"X-Gitlab-Event": "Push Hook"}, b'{"ref": "refs/heads/feature/x"}', "feature/x"),
        ({"X-Gitea-Event": "push"}, BODY, "main"),
        ({}, BODY, "main"),
        ({"X-GitHub-Event": "push"}, b'{"ref": "refs/tags/v1"}', None),
        ({"X-GitHub-Event": "issues"}, BODY, None),
        ({}, b"[1]", None),
        ({}, b"{" * 5000, None),
        ({}, b'{"ref": 7}', None),
    ],
)
def test_a_push_says_its_branch(headers: dict[str, str], body: bytes, branch: str | None) -> None:
    assert signatures.branch_of(headers, body) == branch


@pytest.fixture
def experiment(project: Project, alice: User) -> Experiment:
    return cast.run(project, by=alice).experiment


def made(experiment: Experiment, by: User, event: str = "call", **said: Any) -> tuple[Trigger, str]:
    project = Project.objects.get(pk=experiment.project_id)
    return services.create_trigger(project, by=by, event=event, experiment=experiment, now=timezone.now(), **said)


def sent(trigger: Trigger, secret: str, body: bytes = b"{}", **headers: str) -> Any:
    given = {"X-EDT-Signature-256": signatures.sign(body, secret), **headers}
    address = reverse("trigger", args=[trigger.key])
    return Client(enforce_csrf_checks=True).post(address, body, content_type="application/json", headers=given)


def pulled() -> None:
    triggers.pull_all(timezone.now())


def runs() -> int:
    return TrainingRun.objects.count()


def test_a_signed_call_runs_the_experiment_once_however_often_it_comes(experiment: Experiment, bob: User) -> None:
    trigger, secret = made(experiment, bob)
    assert secret not in trigger.secret
    before = runs()
    answers = [sent(trigger, secret, **{"X-EDT-Delivery": "one"}) for _ in range(3)]
    assert {each.status_code for each in answers} == {202}
    assert len({each.json()["delivery"] for each in answers}) == 1
    pulled()
    pulled()
    assert runs() == before + 1
    run = TrainingRun.objects.latest("pk")
    assert (run.submitted_by, run.experiment.created_by) == (bob, bob)
    delivery = TriggerDelivery.objects.get()
    assert (delivery.made, delivery.outcome) == (run.experiment, f"{run.experiment.name} is run.")
    assert sent(trigger, secret, **{"X-EDT-Delivery": "one"}).json()["detail"] == delivery.outcome
    sent(trigger, secret, **{"X-EDT-Delivery": "two"})
    pulled()
    assert runs() == before + 2


def test_a_database_that_is_away_for_a_moment_loses_no_call(experiment: Experiment, bob: User, monkeypatch: pytest.MonkeyPatch) -> None:
    trigger, secret = made(experiment, bob)
    sent(trigger, secret)
    before, now = runs(), timezone.now()
    with monkeypatch.context() as broken:
        broken.setattr(verbs, "run_again", Mock(side_effect=OperationalError("database is locked")))
        with pytest.raises(OperationalError):
            triggers.pull_all(now)
    triggers.pull_all(now + triggers.AGAIN_AFTER + dt.timedelta(seconds=1))
    assert runs() == before + 1
    assert TriggerDelivery.objects.get().outcome.endswith("is run.")


def test_a_wrong_signature_learns_nothing_and_leaves_nothing(experiment: Experiment, bob: User) -> None:
    trigger, secret = made(experiment, bob)
    wrong = sent(trigger, secret + "x")
    trigger.key = uuid.uuid4()
    nowhere = sent(trigger, secret)
    assert (wrong.status_code, wrong.content) == (nowhere.status_code, nowhere.content)
    assert nowhere.status_code == 404
    assert not TriggerDelivery.objects.exists()


@pytest.mark.parametrize("how", ["viewer", "gone", "shut out"])
def test_who_may_not_run_any_more_runs_nothing(experiment: Experiment, bob: User, how: str) -> None:
    trigger, secret = made(experiment, bob)
    member = Membership.objects.filter(project=experiment.project_id, user=bob)
    if how == "viewer":
        member.update(role="viewer")
    elif how == "gone":
        member.delete()
    else:
        User.objects.filter(pk=bob.pk).update(is_active=False)
    before = runs()
    assert sent(trigger, secret).status_code == 202
    pulled()
    assert runs() == before
    assert "bob may not run experiments of this project any more" in TriggerDelivery.objects.get().outcome


def test_in_an_archived_project_nothing_is_run(experiment: Experiment, bob: User) -> None:
    trigger, secret = made(experiment, bob)
    Project.objects.update(archived_at=timezone.now())
    before = runs()
    assert sent(trigger, secret).status_code == 202
    pulled()
    assert runs() == before
    assert "This project is archived" in TriggerDelivery.objects.get().outcome


def test_somebody_takes_over_what_a_closed_account_would_do(experiment: Experiment, bob: User, alice: User, victor: User) -> None:
    trigger, secret = made(experiment, bob)
    User.objects.filter(pk=bob.pk).update(is_active=False)
    client, at = Client(), reverse("triggers", args=[experiment.project_id])
    client.force_login(victor)
    assert client.post(reverse("take_over_trigger", args=[trigger.pk])).status_code == 403
    client.force_login(alice)
    assert "whose account is closed" in client.get(at).content.decode()
    client.post(reverse("take_over_trigger", args=[trigger.pk]))
    page = client.get(at).content.decode()
    assert "Take over" not in page
    assert "in the name of alice" in page
    before = runs()
    assert sent(trigger, secret).status_code == 202, "address and secret are what they were"
    pulled()
    assert runs() == before + 1
    assert TrainingRun.objects.latest("pk").submitted_by == alice


def test_too_many_within_an_hour_are_not_taken(experiment: Experiment, bob: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verbs, "MOST_AN_HOUR", 3)
    trigger, secret = made(experiment, bob)
    answers = [sent(trigger, secret, f"{number}".encode()).status_code for number in range(5)]
    assert answers == [202, 202, 202, 429, 429]
    TriggerDelivery.objects.update(at=timezone.now() - dt.timedelta(hours=2))
    assert sent(trigger, secret, b"later").status_code == 202


def test_new_data_of_its_name_is_run_with(experiment: Experiment, alice: User, bob: User) -> None:
    made(experiment, bob, "data", data_name="letters")
    project = Project.objects.get(pk=experiment.project_id)
    before = runs()
    services.add_data(project, by=alice, name="digits", files=[("a.txt", 1, io.BytesIO(b"x"))])
    data = services.add_data(project, by=alice, name="letters", files=[("a.txt", 1, io.BytesIO(b"y"))])
    pulled()
    assert runs() == before + 1
    run = TrainingRun.objects.latest("pk")
    assert (run.experiment.data_asset, run.submitted_by) == (data, bob)


@NEEDED
def test_a_push_brings_a_new_version_that_is_run(
    project: Project, alice: User, tmp_path: Path, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.EDT_GIT_ALLOW = [HOST]
    with serving(tmp_path) as server:
        monkeypatch.setenv("SSL_CERT_FILE", str(server.certificate))
        repository = server.make("code")
        repository.commit({"main.py": "print(1)\n"})
        said = {"name": "fetched", "command": "main.py", "git_address": server.address("code")}
        version = services.create_definition_from_git(project, by=alice, **said)
        experiment = services.create_experiment(project, by=alice, name="Nightly", versions=[version])
        trigger, secret = made(experiment, alice, "push", branch="main")
        assert sent(trigger, secret, b'{"ref": "refs/heads/other"}').status_code == 202
        assert sent(trigger, secret, BODY).status_code == 202
        pulled()
        outcomes = list(TriggerDelivery.objects.order_by("pk").values_list("outcome", flat=True))
        assert outcomes == ["It was a push to other, not to main.", "The repository has no newer commit than the newest version."]
        repository.commit({"main.py": "print(2)\n"})
        assert sent(trigger, secret, BODY, **{"X-EDT-Delivery": "next"}).status_code == 202
        pulled()
    run = TrainingRun.objects.get()
    assert (run.version.number, run.version.definition) == (2, version.definition)
    assert run.experiment.name == f"Nightly ({run.version.git_commit[:8]})"


def test_what_cannot_be_made_says_why(experiment: Experiment, bob: User, charlie: User) -> None:
    other = cast.run(services.create_project(by=charlie, name="Other"), by=charlie).experiment
    project = Project.objects.get(pk=experiment.project_id)
    for said, field in (
        ({"event": "push", "experiment": experiment}, "definition"),
        ({"event": "data", "experiment": experiment}, "data_name"),
        ({"event": "call", "experiment": other}, "experiment"),
        ({"event": "never", "experiment": experiment}, "event"),
    ):
        with pytest.raises(DomainError) as raised:
            services.create_trigger(project, by=bob, now=timezone.now(), **said)
        assert set(raised.value.fields) == {field}


def test_the_page_makes_one_shows_its_secret_once_and_deletes_it(experiment: Experiment, bob: User, victor: User) -> None:
    client, at = Client(), reverse("triggers", args=[experiment.project_id])
    client.force_login(bob)
    answer = client.post(at, {"event": "call", "experiment": experiment.pk})
    trigger = Trigger.objects.get()
    secret = verbs.secret_of(trigger)
    assert (answer.status_code, answer["Cache-Control"]) == (201, "no-store")
    assert secret in answer.content.decode()
    assert secret not in client.get(at).content.decode()
    assert str(trigger.key) in client.get(at).content.decode()
    client.force_login(victor)
    assert client.get(at).status_code == 403
    assert client.post(reverse("delete_trigger", args=[trigger.pk])).status_code == 403
    client.force_login(bob)
    assert client.post(reverse("delete_trigger", args=[trigger.pk])).status_code == 302
    assert not Trigger.objects.exists()
