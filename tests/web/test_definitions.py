"""Training definitions in the browser: upload, versions, code."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest
from django.urls import reverse

from experiments import services
from experiments.models import DefinitionVersion, Project, TrainingDefinition, User
from tests import cast
from tests.web.conftest import As, code, definition_form


def test_it_keeps_a_training_definition_and_shows_it(project: Project, bob: User, as_: As) -> None:
    answer = as_(bob).post(reverse("new_definition", args=[project.pk]), definition_form())
    version = DefinitionVersion.objects.get()
    assert answer.url == reverse("definition", args=[version.definition.pk])
    page = as_(bob).get(answer.url).content.decode()
    assert "main.py --epochs 3" in page
    assert version.max_slots == 4


@pytest.mark.parametrize(
    ("changes", "field", "said"),
    [
        ({"name": "x" * 300}, "name", "at most 120"),
        ({"upload": None}, "upload", "Choose a .zip file"),
        ({"max_slots": "0"}, "max_slots", "greater than or equal to 1"),
        ({"max_slots": "many"}, "max_slots", "whole number"),
        ({"command": "train.py"}, "command", "main.py"),
        ({"framework": "caffe"}, "framework", "Select a valid choice"),
    ],
)
def test_bad_input_is_said_beside_its_field_and_nothing_is_kept(
    changes: dict[str, Any], field: str, said: str, project: Project, bob: User, as_: As
) -> None:
    page = (
        as_(bob).post(reverse("new_definition", args=[project.pk]), definition_form(description="typed before", **changes)).content.decode()
    )
    after = page.split(f'id="id_{field}_error"', 1)
    assert len(after) == 2, f"no error beside {field}"
    assert said in after[1][:600]
    assert "typed before" in page
    assert not TrainingDefinition.objects.exists()


def test_a_bad_zip_is_refused_and_the_file_must_be_chosen_again(project: Project, bob: User, as_: As) -> None:
    sent = definition_form(upload=code({"../evil.py": "x"}))
    page = as_(bob).post(reverse("new_definition", args=[project.pk]), sent).content.decode()
    assert 'id="id_upload_error"' in page
    assert "evil.py" in page
    again = as_(bob).post(reverse("new_definition", args=[project.pk]), definition_form(max_slots="0")).content.decode()
    assert "Choose the .zip file again" in again


def test_the_same_form_sent_twice_makes_one(project: Project, bob: User, as_: As) -> None:
    request_id = str(uuid.uuid4())
    for _ in range(2):
        as_(bob).post(reverse("new_definition", args=[project.pk]), definition_form(request_id=request_id))
    assert TrainingDefinition.objects.count() == 1


def test_the_side_panel_gets_a_row_or_the_fields_with_what_is_wrong(project: Project, bob: User, as_: As) -> None:
    address = reverse("new_definition", args=[project.pk])
    wrong = as_(bob).post(address, definition_form(name=""), headers={"HX-Request": "true"})
    assert wrong.status_code == 200
    assert b"panel_name_error" in wrong.content
    assert b"<html" not in wrong.content
    row = as_(bob).post(address, definition_form(), headers={"HX-Request": "true"})
    assert row.status_code == 201
    assert f'name="versions" value="{DefinitionVersion.objects.get().pk}"' in row.content.decode()


def test_a_new_version_keeps_the_code_when_no_zip_is_chosen(project: Project, bob: User, as_: As) -> None:
    first = cast.definition(project, by=bob)
    sent = definition_form(upload=None, command="main.py --epochs 9", max_slots="2")
    as_(bob).post(reverse("new_version", args=[first.definition.pk]), sent)
    newest = first.definition.newest()
    assert (newest.number, newest.bundle, newest.command, newest.max_slots) == (2, first.bundle, "main.py --epochs 9", 2)


def test_code_is_shown_as_text_and_only_files_of_the_version(project: Project, bob: User, as_: As) -> None:
    files: dict[str, str | bytes] = {"main.py": "x = '<script>alert(1)</script>'\n", "a/weights.bin": b"\0\1"}
    version = cast.definition(project, by=bob, files=files)
    address = reverse("code", args=[version.pk])
    page = as_(bob).get(address).content.decode()
    assert "<script>alert" not in page
    assert "&lt;script&gt;" in page
    assert "not shown" in as_(bob).get(address, {"path": "a/weights.bin"}).content.decode()
    for path in ("../../../secrets/secret_key", "/etc/passwd", "a/../main.py", "nothing.py", "a"):
        assert as_(bob).get(address, {"path": path}).status_code == 404, path


def test_the_zip_comes_back_as_it_was_uploaded(project: Project, bob: User, as_: As) -> None:
    version = cast.definition(project, by=bob)
    answer = as_(bob).get(reverse("download_version", args=[version.pk]))
    assert b"".join(answer) == cast.zipped().getvalue()
    assert answer["Content-Disposition"].startswith("attachment")


def test_a_used_definition_is_not_deleted_and_the_page_says_why(project: Project, bob: User, as_: As) -> None:
    version = cast.definition(project, by=bob)
    cast.experiment(project, by=bob, versions=[version])
    client = as_(bob)
    assert client.post(reverse("delete_definition", args=[version.definition.pk])).url == reverse(
        "definition", args=[version.definition.pk]
    )
    assert "note-error" in client.get(reverse("definition", args=[version.definition.pk])).content.decode()
    client.post(reverse("update_definition", args=[version.definition.pk]), {"name": "renamed", "description": ""})
    assert TrainingDefinition.objects.get().name == "renamed"


def test_changes_between_versions_are_shown_line_by_line_and_as_text(project: Project, bob: User, as_: As) -> None:
    first = cast.definition(project, by=bob, files={"main.py": "a = 1\nb = 2\n", "old.py": "", "w.bin": b"\0\1", "same.bin": b"\0"})
    zipped = cast.zipped({"main.py": "a = 1\nb = '<b>'\n", "new.py": "c = 3\n", "w.bin": b"\0\2", "same.bin": b"\0"})
    second = services.add_version(first.definition, by=bob, upload=zipped, file_name="code.zip", command="main.py --fast", max_slots=2)
    page = as_(bob).get(reverse("changes", args=[second.pk])).content.decode()
    for wanted in ("-b = 2", "+b = &#x27;&lt;b&gt;&#x27;", "+c = 3", "old.py", "w.bin", "main.py --fast"):
        assert wanted in page, wanted
    assert "same.bin" not in page
    assert "+b = '<b>'" not in page
    assert "first version" in as_(bob).get(reverse("changes", args=[cast.definition(project, by=bob, name="other").pk])).content.decode()


def test_folders_of_the_data_root_are_offered(project: Project, bob: User, home: Path, as_: As) -> None:
    (home / "data" / "mnist" / "raw").mkdir(parents=True)
    (home / "data" / "outside").symlink_to("/etc")
    page = as_(bob).get(reverse("new_experiment", args=[project.pk])).content.decode()
    assert '<option value="mnist/raw">' in page
    assert "outside" not in page


def test_scripts_are_listed_with_their_arguments(project: Project, alice: User, as_: As) -> None:
    script = 'import argparse\np = argparse.ArgumentParser()\np.add_argument("--lr", type=float, default=0.1, help="<b>rate</b>")\n'
    version = cast.definition(project, by=alice, files={"main.py": script, "net.py": "class Net: ...\n"}, command="main.py")
    page = as_(alice).get(reverse("definition", args=[version.definition.pk])).content.decode()
    listed = page.split('id="scripts-title"')[1].split('id="versions-title"')[0]
    assert "--lr" in listed
    assert "&lt;b&gt;rate" in listed
    assert "net.py" not in listed


def test_it_is_copied_to_a_project_that_one_may_write(project: Project, alice: User, bob: User, victor: User, as_: As) -> None:
    version = cast.definition(project, by=alice, name="lenet")
    mine = services.create_project(by=victor, name="Mine")
    address = reverse("copy_definition", args=[version.definition.pk])
    sent = {"project": mine.pk, "request_id": str(uuid.uuid4())}
    answers = {as_(victor).post(address, sent).url for _ in range(2)}
    copy = mine.definitions.get()
    assert answers == {reverse("definition", args=[copy.pk])}
    assert (copy.name, copy.newest().bundle, copy.newest().command) == ("lenet", version.bundle, version.command)
    assert as_(bob).post(address, {**sent, "request_id": str(uuid.uuid4())}).status_code == 404  # he is not in Victor's
    theirs = services.create_project(by=alice, name="Looked at")
    services.add_member(theirs, by=alice, username="victor", role="viewer")
    assert as_(victor).post(address, {"project": theirs.pk, "request_id": str(uuid.uuid4())}).status_code == 403
    assert TrainingDefinition.objects.count() == 2
    assert as_(bob).post(address, {}).url == reverse("definition", args=[version.definition.pk])
