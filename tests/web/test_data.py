"""Data assets in the browser: added in one form or in pieces, looked into safely, read by an experiment."""

from __future__ import annotations

import hashlib
import json
import uuid
from pathlib import Path
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.urls import reverse

from experiments.files import datastore
from experiments.models import DataAsset, DataUpload, Experiment, Project, User
from tests import cast
from tests.disk import small_disk
from tests.web import api
from tests.web.conftest import As
from tests.web.seed import PICTURE, Seeded

pytestmark = pytest.mark.usefixtures("said")


def add(client: Client, project: Project, *files: tuple[str, bytes], **changes: str) -> Any:
    sent = {"name": "digits", "description": "", "upload": [SimpleUploadedFile(name, data) for name, data in files], **changes}
    return client.post(reverse("new_data", args=[project.pk]), sent)


def begin(client: Client, project: Project, *files: tuple[str, int], name: str = "digits") -> Any:
    said = {"name": name, "description": "", "files": [{"path": path, "size": size} for path, size in files]}
    return client.post(reverse("begin_upload", args=[project.pk]), json.dumps(said), content_type="application/json")


def put(client: Client, address: str, data: bytes, offset: int = 0, place: int = 0) -> Any:
    return client.put(f"{address}files/{place}?offset={offset}", data, content_type="application/octet-stream")


def test_ten_thousand_files_with_long_names_are_announced_at_once(project: Project, bob: User, as_: As) -> None:
    client = as_(bob)
    client.handler.enforce_csrf_checks = True
    client.cookies["csrftoken"] = "a" * 32
    files = [{"path": f"{'deep/' * 50}{number}.png", "size": 1} for number in range(10_000)]
    said = json.dumps({"name": "digits", "files": files})
    assert len(said) > 2 << 20
    answer = client.post(
        reverse("begin_upload", args=[project.pk]), said, content_type="text/plain;charset=UTF-8", headers={"X-CSRFToken": "a" * 32}
    )
    assert answer.status_code == 201, answer.content[:300]
    assert len(DataUpload.objects.get().parts) == 10_000


def test_without_script_data_is_added_in_one_form(project: Project, bob: User, as_: As) -> None:
    answer = add(as_(bob), project, ("digits.zip", cast.zipped({"train/a.csv": "1,2\n"}).getvalue()))
    asset = DataAsset.objects.get()
    assert answer.url == reverse("data", args=[asset.pk])
    assert "a.csv" in as_(bob).get(answer.url, {"path": "train"}).content.decode()
    assert "digits" in as_(bob).get(reverse("assets", args=[project.pk])).content.decode()


@pytest.mark.parametrize(
    ("files", "changes", "said_there"),
    [
        ((), {}, "Choose a .zip file, or the files themselves."),
        ((("x.zip", b"not a zip"),), {}, "is not a zip file"),
        ((("a.csv", b"1"), ("A.csv", b"1")), {}, "differ only in capitals"),
    ],
)
def test_what_is_wrong_is_said_beside_the_field(
    files: tuple[tuple[str, bytes], ...], changes: dict[str, str], said_there: str, project: Project, bob: User, as_: As
) -> None:
    assert said_there in add(as_(bob), project, *files, **changes).content.decode()
    assert not DataAsset.objects.exists()
    assert not DataUpload.objects.exists()


def test_files_arrive_in_pieces_and_the_answers_say_where_to_go_on(project: Project, bob: User, as_: As) -> None:
    client, content = as_(bob), b"one,two\n" * 1000
    began = begin(client, project, ("train/a.csv", len(content)), ("empty", 0))
    assert began.status_code == 201
    address = began.json()["upload"]
    assert put(client, address, content[:5000]).json() == {"size": 5000}
    again = put(client, address, content[:5000])
    assert (again.status_code, again.json()) == (409, {"size": 5000})
    assert client.get(address, headers={"Accept": "application/json"}).json()["received"] == [5000, 0]
    assert "5.0 KB of 8.0 KB" in client.get(address).content.decode()
    early = client.post(f"{address}finish/", "{}", content_type="application/json")
    assert (early.status_code, "has not arrived in full" in early.json()["errors"]["upload"][0]) == (400, True)
    put(client, address, content[5000:], offset=5000)
    hashes = json.dumps({"sha256": [hashlib.sha256(content).hexdigest(), None]})
    answer = client.post(f"{address}finish/", hashes, content_type="application/json").json()
    asset = DataAsset.objects.get()
    assert answer == {"to": reverse("data", args=[asset.pk])}
    again = client.post(f"{address}finish/", hashes, content_type="application/json")
    assert (again.status_code, again.json()) == (200, answer), "the answer was lost on its way"
    assert (datastore.root(asset) / "train" / "a.csv").read_bytes() == content


def test_a_finish_of_somebody_elses_upload_is_not_answered_again(project: Project, bob: User, alice: User, charlie: User, as_: As) -> None:
    client = as_(bob)
    address = begin(client, project, ("a", 1)).json()["upload"]
    put(client, address, b"x")
    client.post(f"{address}finish/", "{}", content_type="application/json")
    assert DataAsset.objects.count() == 1
    for other in (alice, charlie):
        assert as_(other).post(f"{address}finish/", "{}", content_type="application/json").status_code == 404


def test_a_wrong_hash_is_refused_and_the_upload_is_given_up(project: Project, bob: User, as_: As) -> None:
    client = as_(bob)
    address = begin(client, project, ("a", 1)).json()["upload"]
    put(client, address, b"x")
    wrong = client.post(f"{address}finish/", json.dumps({"sha256": ["00"]}), content_type="application/json")
    assert wrong.json() == {"errors": {"upload": ["a did not arrive as it was sent: choose it again."]}, "gone": True}
    assert address not in client.get(reverse("assets", args=[project.pk])).content.decode()


def test_an_upload_can_be_removed(project: Project, bob: User, as_: As) -> None:
    client = as_(bob)
    address = begin(client, project, ("a", 2)).json()["upload"]
    put(client, address, b"x")
    assert address in client.get(reverse("assets", args=[project.pk])).content.decode()
    assert client.post(f"{address}drop/").url == reverse("assets", args=[project.pk])
    assert not DataUpload.objects.exists()


@pytest.mark.parametrize(
    "sent", ["", "[]", "nonsense", '{"files": 3}', '{"files": [{"path": "a"}]}', '{"files": [{"path": "a", "size": -1}]}',
             '{"files": [{"path": "../a", "size": 1}], "name": "x"}', '{"name": "x"}'],
)  # fmt: skip
def test_what_is_not_an_announcement_is_refused(sent: str, project: Project, bob: User, as_: As) -> None:
    answer = as_(bob).post(reverse("begin_upload", args=[project.pk]), sent, content_type="application/json")
    assert answer.status_code == 400
    assert not DataUpload.objects.exists()


def test_a_piece_for_no_file_or_of_too_many_bytes_is_refused(project: Project, bob: User, as_: As) -> None:
    client = as_(bob)
    address = begin(client, project, ("a", 1)).json()["upload"]
    assert put(client, address, b"x", place=1).status_code == 404
    assert put(client, address, b"xx").status_code == 400
    assert put(client, address, b"x" * ((16 << 20) + 1)).status_code == 413


def test_a_viewer_and_a_colleague_cannot_write_and_a_stranger_sees_nothing(
    project: Project, alice: User, bob: User, victor: User, charlie: User, as_: As
) -> None:
    address = begin(as_(bob), project, ("a", 1)).json()["upload"]
    assert {put(as_(person), address, b"x").status_code for person in (alice, victor)} == {403}
    assert put(as_(charlie), address, b"x").status_code == 404
    add(as_(bob), project, ("a", b"1"))
    asset = DataAsset.objects.get()
    assert as_(victor).get(reverse("data", args=[asset.pk])).status_code == 200
    assert as_(victor).post(reverse("delete_data", args=[asset.pk])).status_code == 403
    assert begin(as_(victor), project, ("a", 1)).status_code == 403
    assert as_(charlie).get(reverse("data_download", args=[asset.pk]), {"path": "a"}).status_code == 404


@pytest.mark.parametrize("path", ["../secrets", "train/../../secrets", "/etc/passwd", "train//labels.csv", "nul\0", "x" * 2000, "..%2f.."])
def test_no_path_leads_out_of_the_data(path: str, studio: Seeded, as_: As) -> None:
    for name in ("data", "data_download", "data_image"):
        assert as_(studio.alice).get(reverse(name, args=[studio.data.pk]), {"path": path}).status_code == 404
        assert as_(studio.alice).get(reverse(name.replace("data", "shared_data", 1)), {"path": path}).status_code == 404


def test_text_is_shown_escaped_and_a_picture_only_by_its_content(project: Project, alice: User, as_: As) -> None:
    page = b"<script>alert(1)</script>"
    add(as_(alice), project, ("a.html", page), ("b.png", page), ("c.txt", PICTURE), ("d.svg", b"<svg onload='alert(1)'/>"))
    asset, client = DataAsset.objects.get(), as_(alice)
    shown = client.get(reverse("data", args=[asset.pk]), {"path": "a.html"}).content
    assert b"&lt;script&gt;alert(1)" in shown
    assert page not in shown
    assert b"&lt;script&gt;alert(1)" in client.get(reverse("data", args=[asset.pk]), {"path": "a.html", "as": "text"}).content
    image = reverse("data_image", args=[asset.pk])
    assert {client.get(image, {"path": path}).status_code for path in ("a.html", "b.png", "d.svg")} == {404}
    picture = client.get(image, {"path": "c.txt"})
    assert (picture["Content-Type"], picture["X-Content-Type-Options"]) == ("image/png", "nosniff")
    assert "sandbox" in picture["Content-Security-Policy"]
    taken = client.get(reverse("data_download", args=[asset.pk]), {"path": "a.html"})
    assert taken["Content-Disposition"].startswith("attachment")


def test_a_table_of_data_is_shown_as_one_or_as_text(studio: Seeded, as_: As) -> None:
    client, address = as_(studio.alice), reverse("data", args=[studio.data.pk])
    shown = client.get(address, {"path": "train/labels.csv"}).content.decode()
    assert '<th scope="col" class="number">digit</th>' in shown
    assert 'href="?path=train%2Flabels.csv&amp;as=text"' in shown
    assert "image,digit,mean\n" in client.get(address, {"path": "train/labels.csv", "as": "text"}).content.decode()


def test_no_link_in_the_shared_data_is_followed(alice: User, home: Path, tmp_path: Path, as_: As) -> None:
    (tmp_path / "secret").write_text("s3cret")
    (home / "data" / "out").symlink_to(tmp_path)
    (home / "data" / "file").symlink_to(tmp_path / "secret")
    (home / "data" / "open.txt").write_text("for everybody")
    client = as_(alice)
    page = client.get(reverse("shared_data")).content.decode()
    assert "open.txt" in page
    assert "out" not in page.split("<tbody>")[1]
    for path in ("out/secret", "file"):
        assert client.get(reverse("shared_data"), {"path": path}).status_code == 404
        assert client.get(reverse("shared_data_download"), {"path": path}).status_code == 404


def test_an_experiment_is_made_that_reads_it_and_keeps_it_from_being_deleted(project: Project, alice: User, as_: As) -> None:
    client, version = as_(alice), cast.definition(project, by=alice)
    add(client, project, ("digits.zip", cast.zipped({"train/a.csv": "1"}).getvalue()))
    asset = DataAsset.objects.get()
    assert f'value="{asset.pk}" selected' in client.get(reverse("new_experiment", args=[project.pk]), {"data": asset.pk}).content.decode()
    sent = {
        "idempotency_key": str(uuid.uuid4()),
        "name": "reads",
        "versions": [version.pk],
        "data_asset": asset.pk,
        "source_folder": "train",
    }
    assert client.post(reverse("new_experiment", args=[project.pk]), sent).status_code == 302
    experiment = Experiment.objects.get()
    assert (experiment.data_asset, experiment.source_folder) == (asset, "train")
    assert asset.name in client.get(reverse("experiment_overview", args=[experiment.pk])).content.decode()
    client.post(reverse("delete_data", args=[asset.pk]))
    assert DataAsset.objects.exists()
    assert "reads it" in client.get(reverse("data", args=[asset.pk])).content.decode()


def test_it_is_renamed(project: Project, alice: User, as_: As) -> None:
    add(as_(alice), project, ("a", b"1"))
    asset = DataAsset.objects.get()
    as_(alice).post(reverse("update_data", args=[asset.pk]), {"name": "letters", "description": "new"})
    asset.refresh_from_db()
    assert (asset.name, asset.description) == ("letters", "new")


def test_a_full_disk_is_said_to_page_and_program_as_what_it_is_and_the_upload_goes_on_when_there_is_room(
    project: Project, bob: User, as_: As, home: Path
) -> None:
    client, script, data = as_(bob), api.of(bob), b"x" * 300_000
    (home / "uploads").mkdir(exist_ok=True)
    with small_disk(home / "uploads", 1 << 20) as disk:
        address = begin(client, project, ("big.bin", len(data))).json()["upload"]
        upload = DataUpload.objects.get().pk
        disk.fill(but=100_000)
        answer = put(client, address, data)
        assert (answer.status_code, "disk is full" in answer.json()["errors"]["upload"][0]) == (507, True)
        path = f"/api/v1/uploads/{upload}/files/0?offset="
        has = script.get(f"/uploads/{upload}").json()["files"][0]["received"]
        answer = script.client.put(f"{path}{has}", data[has:], content_type="application/octet-stream", headers=script.headers)
        assert (answer.status_code, "disk is full" in answer.json()["detail"]) == (507, True)
        disk.make_room()
        has = script.get(f"/uploads/{upload}").json()["files"][0]["received"]
        assert put(client, address, data[has:], offset=has).json() == {"size": len(data)}
