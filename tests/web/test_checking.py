"""What a form says while it is filled in is what it would say when it is sent, and nothing is stored by asking."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest
from django.conf import settings
from django.test import Client
from django.urls import reverse

from experiments import services
from experiments.models import DataAsset, DataSeries, DataUpload, DefinitionVersion, Experiment, Project, TrainingDefinition, User
from tests import cast
from tests.web.conftest import As, code, definition_form
from tests.web.seed import Seeded


@pytest.fixture
def version(project: Project, alice: User) -> DefinitionVersion:
    return cast.definition(project, by=alice)


def typed(**changes: Any) -> dict[str, Any]:
    """What the script sends of the form of a definition: all but the file."""
    return definition_form(upload=None, sent_bytes="300", scripts=json.dumps(["main.py", "net.py"]), **changes)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"command": "train.py"}, "command"),
        ({"command": "torchrun main.py"}, "command"),
        ({"command": "main.py 'x"}, "command"),
        ({"max_slots": "0"}, "max_slots"),
        ({"name": "x" * 300}, "name"),
        ({"name": "a\x01b"}, "name"),
    ],
)
def test_the_sentences_are_those_of_the_submit(changes: dict[str, str], field: str, project: Project, bob: User, as_: As) -> None:
    files = {"main.py": "print(1)\n", "net.py": ""}
    said = as_(bob).post(reverse("check_definition", args=[project.pk]), typed(**changes)).json()
    assert list(said["errors"]) == [field]
    sent = definition_form(upload=code({**files}), **changes)
    form = as_(bob).post(reverse("new_definition", args=[project.pk]), sent).context["form"]
    assert {name: list(words) for name, words in form.errors.items()} == said["errors"]


def test_what_is_right_is_not_remarked_on_and_nothing_is_stored(project: Project, bob: User, as_: As) -> None:
    said = as_(bob).post(reverse("check_definition", args=[project.pk]), typed()).json()
    assert said == {"errors": {}, "notes": {}}
    assert not TrainingDefinition.objects.exists()
    assert not DataUpload.objects.exists()


def test_a_missing_file_and_one_that_is_chosen(project: Project, bob: User, as_: As) -> None:
    address = reverse("check_definition", args=[project.pk])
    assert "Choose a .zip" in as_(bob).post(address, definition_form(upload=None)).json()["errors"]["upload"][0]
    unknown = as_(bob).post(address, definition_form(upload=None, sent_bytes="5", scripts="[[", command="else.py")).json()
    assert unknown["errors"] == {}, "which scripts there are in it is not known"


def test_a_name_that_is_taken_is_a_note_of_what_one_may_see(studio: Seeded, as_: As) -> None:
    for name, args, taken in (
        ("check_project", [], "digits"),
        ("check_definition", [studio.digits.pk], "LeNet, elastic"),
        ("check_experiment", [studio.digits.pk], "Learning  rates"),
        ("check_data", [studio.digits.pk], "handwritten digits"),
    ):
        said = as_(studio.alice).post(reverse(name, args=args), {"name": taken}).json()
        assert "already" in said["notes"]["name"][0], name
        assert "name" not in said["errors"], name
    other = as_(studio.alice).post(reverse("check_project"), {"name": studio.cifar.name}).json()
    assert other["notes"] == {}, "of projects of others nobody learns here"


def test_a_version_is_checked_against_the_code_that_it_keeps(project: Project, bob: User, version: DefinitionVersion, as_: As) -> None:
    address = reverse("check_version", args=[version.definition.pk])
    sent = definition_form(upload=None, name=None, command="train.py")
    assert "train.py is not in the zip" in as_(bob).post(address, sent).json()["errors"]["command"][0]
    newer = {**sent, "sent_bytes": "9", "scripts": json.dumps(["train.py"])}
    assert as_(bob).post(address, newer).json()["errors"] == {}


def test_each_line_of_an_experiment_has_its_own_sentence(project: Project, bob: User, version: DefinitionVersion, as_: As) -> None:
    command = f"command-{version.pk}"
    sent = {"name": "e", "versions": [version.pk] * 2, command: ["main.py --epochs 1", "gone.py"], "idempotency_key": str(uuid.uuid4())}
    said = as_(bob).post(reverse("check_experiment", args=[project.pk]), sent).json()["errors"]
    assert set(said) == {"versions", f"{command}#1"}
    assert said[f"{command}#1"] == said["versions"]
    assert not Experiment.objects.exists()


def test_a_run_with_changes_says_that_least_is_more_than_most(studio: Seeded, as_: As) -> None:
    sent = {"version": studio.version.pk, "command": "main.py", "min_slots": 3, "max_slots": 2, "priority": 5000}
    said = as_(studio.alice).post(reverse("check_rerun", args=[studio.failed.pk]), sent).json()["errors"]
    assert said["min_slots"] == ["3 is more than the maximum of 2: lower it, or raise the maximum."]
    sent["max_slots"] = 3
    assert "min_slots" not in as_(studio.alice).post(reverse("check_rerun", args=[studio.failed.pk]), sent).json()["errors"]


def test_a_full_disk_quota_is_said_before_anything_is_sent(project: Project, bob: User, dora: User, as_: As) -> None:
    services.set_policy(by=dora, policy="fair_share", project_disk={str(project.pk): 1})
    facts = {"files": 1, "size_bytes": 2 * 10**9, "sha256": "0" * 64, "created_by": bob}
    DataAsset.objects.create(project=project, series=DataSeries.objects.create(project=project), version=1, name="large", **facts)
    said = as_(bob).post(reverse("check_definition", args=[project.pk]), typed()).json()["errors"]["upload"]
    assert "takes 2.0 GB of the 1.0 GB of disk" in said[0]
    form = as_(bob).post(reverse("new_definition", args=[project.pk]), definition_form()).context["form"]
    assert list(form.errors["upload"]) == said


def test_who_is_logged_out_gets_no_session_that_could_take_the_place_of_a_login(project: Project, client: Client) -> None:
    address = reverse("check_definition", args=[project.pk])
    answer = client.post(address, typed(), headers={"Accept": "application/json"})
    assert answer.status_code == 302
    assert settings.SESSION_COOKIE_NAME not in answer.cookies
