"""Versions of a data set on pages and in the API: added, told apart, chosen for an experiment, deleted."""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.urls import reverse

from experiments import services
from experiments.models import DataAsset, DataUpload, Experiment, Project, User
from experiments.selectors import receipts
from tests import cast
from tests.web import api
from tests.web.conftest import As
from tests.web.seed import Seeded
from tests.web.test_every_address import version_of
from tests.web.test_kept_uploads import kept_in

pytestmark = pytest.mark.usefixtures("said")


@pytest.fixture
def first(project: Project, bob: User) -> DataAsset:
    content = SimpleUploadedFile("a.csv", b"one")
    return services.add_data(project, by=bob, name="digits", description="1,797", files=[("a.csv", 3, content)])


def add(client: Client, of: DataAsset, content: bytes | None, **changes: object) -> Any:
    sent = {"note": "", **({} if content is None else {"upload": [SimpleUploadedFile("a.csv", content)]}), **changes}
    return client.post(reverse("new_data_version", args=[of.pk]), sent)


def second_of(client: Client, first: DataAsset, note: str = "") -> DataAsset:
    assert add(client, first, b"two", note=note).status_code == 302
    return DataAsset.objects.get(series=first.series, version=2)


def page_of(client: Client, name: str, *args: int, **asked: object) -> str:
    answer = client.get(reverse(name, args=args), asked)
    assert answer.status_code == 200
    return str(answer.content.decode())


def words(page: str) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", page).split())


def test_without_script_a_version_is_added_in_one_form(first: DataAsset, project: Project, bob: User, as_: As) -> None:
    client = as_(bob)
    assert f'data-next-of="{first.pk}"' in page_of(client, "new_data_version", first.pk)
    answer = add(client, first, b"two", note="twice as many")
    second = DataAsset.objects.get(version=2)
    assert answer.url == reverse("data", args=[second.pk])
    shown = words(page_of(client, "data", second.pk))
    assert "digits v2" in shown
    assert "v2 newest this one twice as many" in shown
    old = words(page_of(client, "data", first.pk))
    assert "v1 of 2, newest is v2" in old
    listed = page_of(client, "assets", project.pk).split('id="data-title"')[1]
    assert listed.count("<bdi>digits</bdi>") == 1
    assert "digits 1,797 2 of 2 1 3 B" in words(listed)
    assert page_of(client, "search", q="digits").count("<bdi>digits</bdi>") == 1


def test_the_files_of_the_newest_version_are_refused_beside_the_field(first: DataAsset, bob: User, as_: As) -> None:
    page = add(as_(bob), first, b"one", note="nothing").content.decode()
    assert "These are the files of digits v1, the newest version" in page.split('id="id_upload_error"')[1]
    assert DataAsset.objects.count() == 1
    assert not DataUpload.objects.exists()


def test_files_are_kept_when_the_note_is_refused(first: DataAsset, bob: User, as_: As) -> None:
    page = add(as_(bob), first, b"two", note="n" * 201).content.decode()
    assert "a.csv</bdi>, 3 B, uploaded" in page
    kept = kept_in(page)
    for _ in range(2):
        answer = add(as_(bob), first, None, note="short", kept=kept)
        assert answer.status_code == 302, "sent twice, it makes one"
    assert [(each.version, each.note) for each in DataAsset.objects.order_by("version")] == [(1, ""), (2, "short")]


def test_the_form_is_checked_while_it_is_filled_in(first: DataAsset, bob: User, as_: As) -> None:
    address = reverse("check_data_version", args=[first.pk])
    assert f'data-check="{address}"' in page_of(as_(bob), "new_data_version", first.pk)
    said = as_(bob).post(address, {"note": "n" * 201, "sent_bytes": "3"}).json()
    assert set(said["errors"]) == {"note"}
    assert as_(bob).post(address, {"note": "short", "sent_bytes": "3"}).json()["errors"] == {}


def test_a_version_arrives_in_pieces(first: DataAsset, project: Project, bob: User, as_: As) -> None:
    client = as_(bob)
    said = {"next_of": first.pk, "note": "pieces", "files": [{"path": "a.csv", "size": 3}]}
    began = client.post(reverse("begin_upload", args=[project.pk]), json.dumps(said), content_type="application/json").json()
    client.put(f"{began['upload']}files/0?offset=0", b"two", content_type="application/octet-stream")
    hashes = json.dumps({"sha256": [hashlib.sha256(b"two").hexdigest()]})
    answers = [client.post(f"{began['upload']}finish/", hashes, content_type="application/json").json() for _ in range(2)]
    second = DataAsset.objects.get(version=2)
    assert answers == [{"to": reverse("data", args=[second.pk])}] * 2
    assert (second.series, second.note) == (first.series, "pieces")


@pytest.mark.parametrize("wrong", [True, "1", -1, 10**9, [1]])
def test_a_version_of_nothing_is_refused(wrong: object, first: DataAsset, project: Project, bob: User, as_: As) -> None:
    said = json.dumps({"next_of": wrong, "files": [{"path": "a", "size": 1}]})
    answer = as_(bob).post(reverse("begin_upload", args=[project.pk]), said, content_type="application/json")
    assert answer.status_code in (400, 404)
    assert not DataUpload.objects.exists()


def test_nobody_adds_to_the_data_of_another_project(first: DataAsset, bob: User, charlie: User, as_: As) -> None:
    theirs = services.create_project(by=charlie, name="Theirs")
    said = {"next_of": first.pk, "files": [{"path": "a", "size": 1}]}
    begin = reverse("begin_upload", args=[theirs.pk])
    assert as_(charlie).post(begin, json.dumps(said), content_type="application/json").status_code == 404
    services.add_member(theirs, by=charlie, username="bob", role="editor")
    assert as_(bob).post(begin, json.dumps(said), content_type="application/json").status_code == 404
    assert not DataUpload.objects.exists()


def test_an_experiment_chooses_a_version_the_newest_first(first: DataAsset, project: Project, bob: User, as_: As) -> None:
    client = as_(bob)
    second = second_of(client, first)
    other = services.add_data(project, by=bob, name="other", files=[("b", 1, SimpleUploadedFile("b", b"b"))])
    form = page_of(client, "new_experiment", project.pk, data=second.pk)
    choices = form.split('name="data_asset"')[1].split("</select>")[0]
    assert re.findall(r'<option value="(\d*)"( selected)?>\s*([^<]*?)\s*</option>', choices) == [
        ("", "", "Shared data"),
        (str(other.pk), "", "other v1"),
        (str(second.pk), " selected", "digits v2, newest"),
        (str(first.pk), "", "digits v1"),
    ]
    assert re.findall(r'<optgroup label="([^"]*)">', choices) == ["digits"]


def test_what_reads_an_older_version_says_so_and_is_made_again_on_the_newest(
    first: DataAsset, project: Project, bob: User, victor: User, as_: As
) -> None:
    client, version = as_(bob), cast.definition(project, by=bob)
    old = services.create_experiment(project, by=bob, name="reads", data_asset=first, versions=[version])
    run = services.run_experiment(old, by=bob)[0]
    pages = (("experiment_overview", old.pk), ("run_overview", run.pk))
    for name, pk in pages:
        shown = words(page_of(client, name, pk))
        assert "digits v1" in shown
        assert "newest version" not in shown
    second = second_of(client, first)
    again = f"{reverse('new_experiment', args=[project.pk])}?like={old.pk}&amp;data={second.pk}"
    for name, pk in pages:
        page = page_of(client, name, pk)
        assert "The newest version is v2" in words(page)
        assert again in page
        assert again not in page_of(as_(victor), name, pk), "who may not make one is not offered it"
    form = client.get(again.replace("&amp;", "&")).content.decode()
    assert f'value="{second.pk}" selected' in form
    assert 'value="reads (copy)"' in form
    sent = {"idempotency_key": str(uuid.uuid4()), "name": "reads more", "versions": [version.pk], "data_asset": second.pk}
    assert client.post(reverse("new_experiment", args=[project.pk]), sent).status_code == 302
    assert Experiment.objects.get(name="reads more").data_asset == second
    data = receipts.inputs(run)["data"]
    assert (data["name"], data["version"], data["sha256"]) == ("digits", 1, first.sha256)


def test_a_model_says_which_version_it_was_computed_with(studio: Seeded, as_: As) -> None:
    made = version_of(studio)
    made.lineage = {**made.lineage, "data": {"name": "digits", "version": 2, "sha256": "0" * 64, "folder": ""}}
    made.save(update_fields=["lineage"])
    shown = as_(studio.alice).get(reverse("model_version", args=[made.model_id, "1"])).content.decode()
    assert "digits v2" in words(shown)


def test_one_version_is_deleted_or_all_of_them(first: DataAsset, project: Project, bob: User, as_: As) -> None:
    client = as_(bob)
    assert "Delete all" not in page_of(client, "data", first.pk)
    second = second_of(client, first)
    assert "Delete all 2 versions" in page_of(client, "data", second.pk)
    assert client.post(reverse("delete_data", args=[second.pk])).url == reverse("data", args=[first.pk])
    assert list(DataAsset.objects.all()) == [first]
    assert add(client, first, b"two").url == reverse("data", args=[DataAsset.objects.get(version=3).pk])
    assert client.post(reverse("delete_data_versions", args=[first.pk])).url == reverse("assets", args=[project.pk])
    assert not DataAsset.objects.exists()


def test_the_api_does_the_same(first: DataAsset, project: Project, bob: User) -> None:
    script = api.of(bob, "write")
    begun = script.post(f"/data/{first.pk}/versions", {"note": "by a script", "files": [{"path": "a.csv", "size": 3}]}).json()
    script.send("PUT", f"/uploads/{begun['id']}/files/0?offset=0", b"two")
    made = script.post(f"/uploads/{begun['id']}/finish", {}).json()["data"]
    assert (made["name"], made["version"], made["note"], made["versions"], made["newest"]) == ("digits", 2, "by a script", 2, made["id"])
    listed = script.get(f"/projects/{project.pk}/data").json()["items"]
    assert [(each["id"], each["version"], each["versions"]) for each in listed] == [(made["id"], 2, 2)]
    versions = script.get(f"/data/{first.pk}/versions").json()["items"]
    assert [(each["version"], each["newest"], each["series"]) for each in versions] == [(n, made["id"], first.series_id) for n in (2, 1)]
    assert script.get(f"/data/{first.pk}").json()["newest"] == made["id"]
    same = script.post(f"/data/{first.pk}/versions", {"files": [{"path": "a.csv", "size": 3}]}).json()
    script.send("PUT", f"/uploads/{same['id']}/files/0?offset=0", b"two")
    refused = script.post(f"/uploads/{same['id']}/finish", {})
    assert refused.status_code == 400
    assert "digits v2, the newest version" in refused.json()["detail"]
    assert script.send("PATCH", f"/data/{first.pk}", {"name": "letters"}).status_code == 200
    assert script.get(f"/data/{made['id']}").json()["name"] == "letters"
    assert script.send("DELETE", f"/data/{made['id']}").status_code == 204
    assert script.send("DELETE", f"/data/{first.pk}/versions").status_code == 204
    assert not DataAsset.objects.exists()
