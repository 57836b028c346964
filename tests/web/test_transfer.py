"""Export and import on pages and by the API: who may, in pieces or whole, and what the page of an import says."""

from __future__ import annotations

import io
import json
import uuid
from pathlib import Path
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from experiments import services
from experiments.files import bundles, pruning
from experiments.models import Project, ProjectImport, User
from experiments.services import imports
from experiments.transfer import importing
from tests import cast, transferred
from tests.conftest import SentMessages
from tests.web import api
from tests.web.conftest import As

State = ProjectImport.State


@pytest.fixture
def packed(project: Project, alice: User, said: SentMessages) -> bytes:
    cast.experiment(project, by=alice)
    return transferred.exported(project)


def begun(client: Client, size: int) -> dict[str, Any]:
    said = json.dumps({"name": None, "files": [{"path": "digits.zip", "size": size}]})
    answer = client.post(reverse("begin_import"), said, content_type="application/json")
    assert answer.status_code == 201, answer.content
    return dict(answer.json())


def put(client: Client, address: str, data: bytes, offset: int) -> Any:
    return client.put(f"{address}files/0?offset={offset}", data, content_type="application/octet-stream")


def test_who_may_read_a_project_takes_it_away_and_a_stranger_does_not(
    project: Project, victor: User, charlie: User, as_: As, packed: bytes
) -> None:
    answer = as_(victor).get(reverse("export_project", args=[project.pk]))
    assert answer["Content-Disposition"].startswith('attachment; filename="project-digits-')
    assert "Content-Length" not in answer, "it is made while it is sent"
    archive = transferred.Archive.of(b"".join(answer))
    assert archive.manifest["name"] == "Digits"
    assert as_(charlie).get(reverse("export_project", args=[project.pk])).status_code == 404
    assert b"".join(api.of(victor, "read").get(f"/projects/{project.pk}/export"))[:2] == b"PK"


def test_a_project_whose_code_is_gone_says_so_before_anything_is_sent(project: Project, alice: User, as_: As, packed: bytes) -> None:
    bundle = project.definitions.get().newest().bundle
    bundles.zip_path(bundle.sha256).unlink()
    answer = as_(alice).get(reverse("export_project", args=[project.pk]), follow=True)
    assert "is not in the studio&#x27;s folder bundles" in answer.content.decode()
    assert api.of(alice).get(f"/projects/{project.pk}/export").status_code == 400


def test_an_archive_arrives_in_pieces_and_its_page_says_what_becomes_of_it(
    packed: bytes, charlie: User, as_: As, said: SentMessages, django_capture_on_commit_callbacks: Any
) -> None:
    client = as_(charlie)
    state = begun(client, len(packed))
    half = len(packed) // 2
    assert put(client, state["upload"], packed[:half], 0).json() == {"size": half}
    assert put(client, state["upload"], packed[:half], 0).status_code == 409
    assert "Choose the same file again" in client.get(state["upload"]).content.decode()
    assert client.get(state["upload"], headers={"Accept": "application/json"}).json()["received"] == [half]
    unfinished = client.post(f"{state['upload']}finish/", "{}", content_type="application/json")
    assert (unfinished.status_code, "go on with the upload" in str(unfinished.json())) == (400, True)
    assert put(client, state["upload"], packed[half:], half).json() == {"size": len(packed)}
    for _ in range(2):
        with django_capture_on_commit_callbacks(execute=True):
            finished = client.post(f"{state['upload']}finish/", json.dumps({"sha256": ["0" * 64]}), content_type="application/json")
        assert finished.json() == {"to": state["upload"]}
    assert said.task_names().count("import_projects") == 1
    assert "Waiting" in client.get(state["upload"]).content.decode()
    assert put(client, state["upload"], b"more", len(packed)).status_code == 400
    importing.go_on(timezone.now)
    page = client.get(state["upload"]).content.decode()
    assert "The project is there" in page
    made = Project.objects.get(name="Digits", created_by=charlie)
    assert reverse("project", args=[made.pk]) in page
    assert "Digits" in client.get(reverse("import_project"), {"part": "list"}).content.decode()


def test_without_script_an_archive_comes_with_its_form(packed: bytes, charlie: User, as_: As, said: SentMessages) -> None:
    client, sent = as_(charlie), {"idempotency_key": str(uuid.uuid4())}
    for _ in range(2):  # a second click
        answer = client.post(reverse("import_project"), {**sent, "upload": SimpleUploadedFile("digits.zip", packed)})
        assert answer.url == reverse("project_import", args=[ProjectImport.objects.get().pk])
    importing.go_on(timezone.now)
    assert ProjectImport.objects.get().state == State.DONE
    assert "Choose the archive" in client.post(reverse("import_project"), sent).content.decode()


def test_what_is_refused_is_said_on_its_page(charlie: User, as_: As, said: SentMessages) -> None:
    order = transferred.imported(cast.zipped({"main.py": "x"}).getvalue(), charlie)
    page = as_(charlie).get(reverse("project_import", args=[order.pk])).content.decode()
    assert "It was refused, and nothing of it is kept" in page
    assert "it has no manifest.json" in page


def test_the_api_takes_an_archive_and_says_how_far_it_is(packed: bytes, charlie: User, said: SentMessages) -> None:
    script = api.of(charlie, "write")
    begun_ = script.post(
        "/projects/imports", {"file": "digits.zip", "size": len(packed), "name": "Mine"}, **{"Idempotency-Key": "k"}
    ).json()
    again = script.post("/projects/imports", {"file": "digits.zip", "size": len(packed), "name": "Mine"}, **{"Idempotency-Key": "k"}).json()
    assert again["id"] == begun_["id"]
    address = f"/projects/imports/{begun_['id']}"
    assert script.send("PUT", f"{address}/archive?offset=0", packed[:10]).json() == {"received": 10}
    wrong = script.send("PUT", f"{address}/archive?offset=0", packed)
    assert (wrong.status_code, wrong.json()["received"]) == (409, 10)
    assert script.post(f"{address}/finish").status_code == 400
    assert script.send("PUT", f"{address}/archive?offset=10", packed[10:]).json() == {"received": len(packed)}
    assert script.post(f"{address}/finish").json()["state"] == "waiting"
    importing.go_on(timezone.now)
    done = script.get(address).json()
    assert (done["state"], done["says"]) == ("done", "")
    assert script.get(f"/projects/{done['project']}").json()["name"] == "Mine"
    assert [each["id"] for each in script.get("/projects/imports").json()["items"]] == [begun_["id"]]
    assert script.send("DELETE", address).status_code == 204
    assert Project.objects.filter(pk=done["project"]).exists()


@pytest.mark.parametrize("size", [0, 1 << 59])
def test_an_archive_of_no_size_or_too_large_is_not_begun(size: int, charlie: User, said: SentMessages) -> None:
    answer = api.of(charlie).post("/projects/imports", {"file": "a.zip", "size": size})
    assert (answer.status_code, list(answer.json()["errors"])) == (400, ["upload"])
    assert not ProjectImport.objects.exists()


def test_a_person_has_a_few_unfinished_imports(charlie: User, said: SentMessages) -> None:
    script = api.of(charlie)
    for _ in range(imports.MOST_UNFINISHED):
        assert script.post("/projects/imports", {"file": "a.zip", "size": 9}).status_code == 201
    refused = script.post("/projects/imports", {"file": "a.zip", "size": 9})
    assert "unfinished imports" in refused.json()["detail"]


def test_an_import_is_given_up_with_what_has_arrived_but_not_while_it_is_taken_in(
    charlie: User, as_: As, home: Path, said: SentMessages
) -> None:
    order = imports.begin_import(by=charlie, file_name="a.zip", size_bytes=9)
    imports.receive_archive(order, offset=0, body=io.BytesIO(b"PK"))
    ProjectImport.objects.update(state=State.CHECKING)
    as_(charlie).post(reverse("drop_import", args=[order.pk]))
    assert ProjectImport.objects.exists()
    ProjectImport.objects.update(state=State.ARRIVING)
    as_(charlie).post(reverse("drop_import", args=[order.pk]))
    assert not ProjectImport.objects.exists()
    cast.empty_trash()
    assert cast.stored(home / "uploads") == []


def test_what_nobody_goes_on_with_expires(charlie: User, home: Path, said: SentMessages) -> None:
    now = timezone.now()
    old, fresh = (
        imports.begin_import(by=charlie, file_name="a.zip", size_bytes=9, now=now - age) for age in (pruning.UPLOAD_KEPT * 2, pruning.KEPT)
    )
    services.create_project(by=charlie, name="another")
    pruning.installation.bind()
    pruning.prune(now)
    assert list(ProjectImport.objects.values_list("pk", flat=True)) == [fresh.pk]
    assert old.pk != fresh.pk
