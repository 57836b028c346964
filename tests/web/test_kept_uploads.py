"""A file that came with a form which was refused for something else is not chosen again."""

from __future__ import annotations

import datetime as dt
import os
import re
from typing import Any

import pytest
from django.conf import settings
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import connection
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from experiments import services
from experiments.files import datastore, pruning
from experiments.files.datastore import Part
from experiments.models import DataAsset, DataUpload, DefinitionVersion, Experiment, Project, TrainingDefinition, User
from experiments.ops import installation
from tests import cast
from tests.conftest import SentMessages
from tests.web.conftest import As, code, definition_form
from tests.web.text import one_line


@pytest.fixture
def version(project: Project, alice: User) -> DefinitionVersion:
    return cast.definition(project, by=alice)


def kept_in(page: str) -> int:
    found = re.search(r'name="(?:new-)?kept" value="(\d+)"', page)
    assert found, "the form names no file"
    return int(found[1])


def refused(client: Client, project: Project, **changes: Any) -> str:
    answer = client.post(reverse("new_definition", args=[project.pk]), definition_form(**{"name": "", **changes}))
    assert answer.status_code == 200
    return answer.content.decode()


def test_a_zip_is_kept_when_the_form_is_refused_for_another_field(project: Project, bob: User, as_: As) -> None:
    page = refused(as_(bob), project, upload=code(name="mnist.zip"))
    size = len(cast.zipped().getvalue())
    assert f"mnist.zip</bdi>, {size} B, uploaded" in page
    assert "Choose another" in page
    assert "id_upload_error" not in page
    sent = definition_form(upload=None, kept=kept_in(page))
    for _ in range(2):
        assert as_(bob).post(reverse("new_definition", args=[project.pk]), sent).status_code == 302, "sent twice, it makes one"
    version = DefinitionVersion.objects.get()
    assert (version.file_name, version.bundle.size_bytes) == ("mnist.zip", size)
    assert not DataUpload.objects.exists()


def test_no_transaction_waits_for_a_file_that_is_kept(project: Project, bob: User, as_: As, monkeypatch: pytest.MonkeyPatch) -> None:
    append, depths = datastore.append, [len(connection.savepoint_ids)]  # the test's own

    def watched(*given: Any, **said: Any) -> int:
        depths.append(len(connection.savepoint_ids))
        return append(*given, **said)

    monkeypatch.setattr(datastore, "append", watched)
    kept_in(refused(as_(bob), project, upload=code(name="mnist.zip")))
    assert depths == [depths[0]] * 2, "with it nobody else could write to SQLite, and PostgreSQL would give it up"


def test_what_the_service_refuses_keeps_the_zip_too_unless_it_is_what_is_wrong(project: Project, bob: User, as_: As) -> None:
    page = refused(as_(bob), project, name="net", command="train.py")
    assert "train.py is not in the zip" in page
    kept = kept_in(page)
    answer = as_(bob).post(reverse("new_definition", args=[project.pk]), definition_form(upload=None, kept=kept))
    assert answer.status_code == 302
    assert 'name="kept" value=' not in refused(as_(bob), project, name="net", upload=code({"../evil.py": "x"}))
    assert not DataUpload.objects.exists()


def test_another_file_takes_the_place_of_the_kept_one(project: Project, bob: User, as_: As) -> None:
    first = kept_in(refused(as_(bob), project, upload=code(name="one.zip")))
    page = refused(as_(bob), project, upload=code({"main.py": "print(2)\n"}, name="two.zip"), kept=first)
    assert "two.zip</bdi>" in page
    assert [upload.name for upload in DataUpload.objects.all()] == ["two.zip"]
    sent = definition_form(upload=code({"main.py": "print(3)\n"}, name="three.zip"), kept=kept_in(page))
    assert as_(bob).post(reverse("new_definition", args=[project.pk]), sent).status_code == 302
    assert DefinitionVersion.objects.get().file_name == "three.zip"
    assert not DataUpload.objects.exists()


def test_without_script_a_box_says_that_the_kept_file_is_not_wanted(project: Project, bob: User, as_: As) -> None:
    kept = kept_in(refused(as_(bob), project))
    answer = as_(bob).post(reverse("new_definition", args=[project.pk]), definition_form(upload=None, kept=kept, forget="on"))
    assert "Choose a .zip" in answer.content.decode().split('id="id_upload_error"')[1]
    assert not TrainingDefinition.objects.exists()


def test_nobody_else_takes_a_kept_file_not_even_a_colleague(project: Project, alice: User, bob: User, charlie: User, as_: As) -> None:
    kept = kept_in(refused(as_(bob), project))
    address = reverse("new_definition", args=[project.pk])
    taken = as_(alice).post(address, definition_form(upload=None, kept=kept))
    assert taken.status_code == 200
    assert "uploaded" not in taken.content.decode().split("data-drop-name")[1][:200]
    assert as_(alice).get(address, {"kept": kept}).content.decode().count("uploaded") == 0
    assert as_(alice).get(reverse("upload", args=[kept])).status_code == 403
    assert as_(charlie).post(address, definition_form(upload=None, kept=kept)).status_code == 404
    assert not TrainingDefinition.objects.exists()
    assert DataUpload.objects.get().pk == kept, "and it is still Bob's"


def test_a_colleague_who_names_a_kept_file_with_one_of_their_own_does_not_remove_it(
    project: Project, alice: User, bob: User, as_: As
) -> None:
    kept = kept_in(refused(as_(bob), project))
    assert as_(alice).post(reverse("new_definition", args=[project.pk]), definition_form(kept=kept)).status_code == 302
    assert DataUpload.objects.get().pk == kept


def test_a_version_keeps_its_zip_too(project: Project, bob: User, version: DefinitionVersion, as_: As) -> None:
    address = reverse("new_version", args=[version.definition.pk])
    page = as_(bob).post(address, definition_form(max_slots="0", upload=code({"main.py": "print(2)\n"}))).content.decode()
    assert as_(bob).post(address, definition_form(upload=None, kept=kept_in(page), command="main.py")).status_code == 302
    assert version.definition.newest().number == 2
    assert version.definition.newest().bundle != version.bundle


def test_without_script_the_definition_on_the_experiments_form_keeps_its_zip(
    project: Project, alice: User, said: SentMessages, as_: As
) -> None:
    address = reverse("new_experiment", args=[project.pk])
    sent = {f"new-{name}": value for name, value in definition_form().items()} | {
        "idempotency_key": definition_form()["idempotency_key"],
        "name": "",
    }
    page = as_(alice).post(address, sent).content.decode()
    again = {**sent, "name": "first", "new-kept": kept_in(page)}
    del again["new-upload"]
    assert as_(alice).post(address, again).status_code == 302
    assert Experiment.objects.get().versions.get().file_name == "code.zip"
    assert not DataUpload.objects.exists()


def test_data_files_are_kept_and_become_the_data_asset(project: Project, bob: User, as_: As) -> None:
    address, files = reverse("new_data", args=[project.pk]), [SimpleUploadedFile("a.csv", b"1,2\n"), SimpleUploadedFile("b.csv", b"")]
    page = as_(bob).post(address, {"name": "", "description": "d", "upload": files}).content.decode()
    assert "2 files, 4 B, uploaded" in one_line(page)
    sent = {"name": "digits", "description": "d", "kept": kept_in(page)}
    addresses = {as_(bob).post(address, sent).url for _ in range(2)}
    asset = DataAsset.objects.get()
    assert addresses == {reverse("data", args=[asset.pk])}
    assert (asset.name, asset.files, asset.size_bytes) == ("digits", 2, 4)
    assert not DataUpload.objects.exists()


def test_nobody_else_takes_kept_data(project: Project, alice: User, bob: User, as_: As) -> None:
    address = reverse("new_data", args=[project.pk])
    page = as_(bob).post(address, {"name": "", "upload": SimpleUploadedFile("a.csv", b"1,2\n")}).content.decode()
    answer = as_(alice).post(address, {"name": "mine", "kept": kept_in(page)})
    assert answer.status_code == 200
    assert not DataAsset.objects.exists()
    assert DataUpload.objects.count() == 1


def test_of_too_many_kept_files_the_oldest_makes_room(project: Project, bob: User, as_: As, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("experiments.services.data.MOST_UNFINISHED", 1)
    refused(as_(bob), project)
    last = kept_in(refused(as_(bob), project))
    assert DataUpload.objects.get().pk == last


def test_beside_too_many_uploads_on_their_way_no_file_is_kept(
    project: Project, bob: User, as_: As, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("experiments.services.data.MOST_UNFINISHED", 1)
    waits = services.begin_upload(project, by=bob, name="letters", parts=[Part("letters.csv", 4)])
    page = refused(as_(bob), project)
    assert "Choose the file with the code again" in page.split('id="id_upload_error"')[1]
    assert DataUpload.objects.get() == waits


def test_a_form_that_is_left_leaves_no_line_under_assets(project: Project, bob: User, as_: As, monkeypatch: pytest.MonkeyPatch) -> None:
    client, assets = as_(bob), reverse("assets", args=[project.pk])
    kept = kept_in(refused(client, project))
    client.post(reverse("new_data", args=[project.pk]), {"name": "", "upload": [SimpleUploadedFile("a.csv", b"1,2\n")]})
    assert DataUpload.objects.count() == 2
    assert "upload-" not in client.get(assets).content.decode()
    monkeypatch.setattr("experiments.files.datastore.WHOLE_BYTES", 3)
    page = one_line(client.get(assets).content.decode())
    assert f'href="{reverse("new_definition", args=[project.pk])}?kept={kept}">Make one' in page, "what took long to send is not lost"


def test_a_kept_file_goes_after_a_week_and_nothing_else_does(project: Project, bob: User, version: DefinitionVersion, as_: As) -> None:
    kept, fresh = (kept_in(refused(as_(bob), project, upload=code(name=name))) for name in ("old.zip", "fresh.zip"))
    week_ago = timezone.now() - dt.timedelta(days=8)
    DataUpload.objects.filter(pk=kept).update(created_at=week_ago)
    folder = settings.EDT_HOME / "uploads" / DataUpload.objects.get(pk=kept).key.hex
    for path in folder.iterdir():
        os.utime(path, (week_ago.timestamp(),) * 2)
    installation.bind()
    pruning.prune(timezone.now())
    assert [upload.pk for upload in DataUpload.objects.all()] == [fresh]
    assert version.definition.newest() == version
    answer = as_(bob).post(reverse("new_definition", args=[project.pk]), definition_form(upload=None, kept=kept))
    assert answer.status_code == 200, "and the form says so"
