"""Models on pages and by the API: registered by editors, downloaded by viewers, deleted by admins; named by number and by alias."""

from __future__ import annotations

import io
import json
import uuid
import zipfile
from typing import Any

import pytest
import torch
from django.urls import reverse

from edt_client import receipts as client_receipts
from experiments import services
from experiments.files import runfiles
from experiments.models import ModelVersion, RegisteredModel, TrainingRun, User
from experiments.templatetags.studio import gist
from tests.web import api, wmla
from tests.web.conftest import As
from tests.web.seed import Seeded
from tests.web.test_every_address import version_of

FINAL = "model/train/model_epoch_final.pth"


def write_model(run: TrainingRun) -> bytes:
    file = io.BytesIO()
    torch.save({"weight": torch.ones(3)}, file)
    at = runfiles.folder(run) / FINAL
    at.parent.mkdir(parents=True, exist_ok=True)
    at.write_bytes(file.getvalue())
    return file.getvalue()


def form(**changes: Any) -> dict[str, Any]:
    sent = {"path": FINAL, "name": "LeNet", "aliases": "champion, best", "note": "**good**", "tags": "a=1\nb"}
    return {"idempotency_key": str(uuid.uuid4()), **sent, **changes}


def test_a_run_is_registered_from_its_page_and_shown_with_all_that_is_known(studio: Seeded, as_: As) -> None:
    write_model(studio.completed)
    client, sent = as_(studio.bob), form()
    address = reverse("register_model", args=[studio.completed.pk])
    for page in (reverse("run_results", args=[studio.completed.pk]), reverse("run", args=[studio.completed.pk])):
        assert address in client.get(page).content.decode()
    offered = client.get(address).content.decode()
    assert offered.index(f'value="{FINAL}"') < offered.index('value="model/model_epoch_20.pth"'), "the final model is proposed"
    made = client.post(address, sent)
    assert made.url == client.post(address, sent).url, "sent twice, it is made once"
    version = ModelVersion.objects.get()
    assert (version.tags, sorted(alias.name for alias in version.aliases.all())) == ({"a": "1", "b": ""}, ["best", "champion"])
    shown = client.get(made.url).content.decode()
    for said in (
        "<strong>good</strong>",
        "model_epoch_final.safetensors",
        "the studio",
        "No ONNX beside it",
        f'href="{reverse("run", args=[studio.completed.pk])}"',
        studio.version.bundle.sha256[:16],
        "98.61",
        f'edt download model "LeNet@{version.number}"',
    ):
        assert said in shown, said
    listed = client.get(reverse("models", args=[studio.digits.pk])).content.decode()
    assert "LeNet" in listed
    assert "champion" in listed
    assert made.url in client.get(reverse("run_results", args=[studio.completed.pk])).content.decode()


def test_what_is_wrong_is_said_beside_its_field(studio: Seeded, as_: As) -> None:
    write_model(studio.completed)
    client, address = as_(studio.bob), reverse("register_model", args=[studio.completed.pk])
    for changes, says in (
        ({"name": "a@b"}, "has a @ in it"),
        ({"aliases": "latest"}, "always the newest"),
        ({"path": "log/driver/console.log"}, "Select a valid choice"),
        ({"tags": "a=1\na=2"}, "A tag is there twice"),
    ):
        assert says in client.post(address, form(**changes)).content.decode(), changes
    assert not RegisteredModel.objects.exists()
    assert "Nothing to register" in client.get(reverse("register_model", args=[studio.queued.pk])).content.decode()


def test_viewers_download_by_number_and_by_alias_and_change_nothing(studio: Seeded, as_: As) -> None:
    model = version_of(studio).model
    client = as_(User.objects.get(username="victor"))
    for which in ("1", "champion", "latest"):
        answer = client.get(reverse("model_file", args=[model.pk, which, "model_epoch_20.pth"]))
        assert wmla.body(answer) == b"\x80" * 184_320
    with zipfile.ZipFile(io.BytesIO(wmla.body(client.get(reverse("model_archive", args=[model.pk, "champion"]))))) as archive:
        assert archive.namelist() == ["lenet-1/model_epoch_20.pth"]
    with zipfile.ZipFile(io.BytesIO(wmla.body(client.get(reverse("model_code", args=[model.pk, "1"]))))) as archive:
        assert "main.py" in archive.namelist()
    sealed = client.get(reverse("model_receipt", args=[model.pk, "1"])).content
    assert client_receipts.check(sealed).problem == ""
    assert json.loads(sealed)["card"]["files"][0]["sha256"] == version_of(studio).files.get().sha256
    for which in ("2", "nobody", "v1", "9" * 30):
        assert client.get(reverse("model_version", args=[model.pk, which])).status_code == 404
    shown = client.get(reverse("model_version", args=[model.pk, "1"])).content.decode()
    assert "Set alias" not in shown
    assert "Delete" not in shown


def test_editors_move_aliases_and_admins_delete(studio: Seeded, as_: As) -> None:
    version = version_of(studio)
    bob, alice, model = as_(studio.bob), as_(studio.alice), version.model
    assert bob.post(reverse("delete_model_version", args=[model.pk, 1])).status_code == 403
    refused = alice.post(reverse("delete_model_version", args=[model.pk, 1]), follow=True)
    assert "champion points to it" in refused.content.decode()
    bob.post(reverse("drop_alias", args=[model.pk, "champion"]))
    bob.post(reverse("set_alias", args=[model.pk, 1]), {"alias": "shadow"})
    assert [alias.name for alias in model.aliases.all()] == ["shadow"]
    assert "point to version 1" in bob.get(reverse("model", args=[model.pk])).content.decode()
    assert "would be taken for a version" in bob.post(
        reverse("set_alias", args=[model.pk, 1]), {"alias": "v1"}, follow=True
    ).content.decode()  # fmt: skip
    bob.post(reverse("update_model", args=[model.pk]), {"name": "LeNet 5", "note": "n", "tags": "a=b"})
    bob.post(reverse("update_model_version", args=[model.pk, 1]), {"note": "m", "tags": ""})
    model.refresh_from_db()
    version.refresh_from_db()
    assert (model.name, model.tags, version.note, version.tags) == ("LeNet 5", {"a": "b"}, "m", {})
    bob.post(reverse("drop_alias", args=[model.pk, "shadow"]))
    alice.post(reverse("delete_model_version", args=[model.pk, 1]))
    assert not ModelVersion.objects.exists()
    assert "deleted version 1" in alice.get(reverse("model", args=[model.pk])).content.decode()
    assert alice.post(reverse("delete_model", args=[model.pk])).url == reverse("models", args=[studio.digits.pk])
    assert not RegisteredModel.objects.exists()


@pytest.mark.parametrize(
    ("note", "line"), [("# 98 %\n\nmore", "98 %"), ("\n- *two* `nets`", "two nets"), ("***", ""), ("a_b and 2*3", "a_b and 2*3"), ("", "")]
)
def test_of_a_note_its_first_line_stands_in_a_row(note: str, line: str) -> None:
    assert gist(note) == line


def test_a_version_of_a_deleted_run_says_so(studio: Seeded, as_: As) -> None:
    version = version_of(studio)
    services.delete_run(studio.completed, by=studio.alice)
    shown = as_(studio.bob).get(reverse("model_version", args=[version.model_id, 1])).content.decode()
    assert "(deleted)" in shown
    assert f'href="{reverse("run", args=[studio.completed.pk])}"' not in shown


def test_the_api_registers_what_looks_most_like_the_model(studio: Seeded) -> None:
    content = write_model(studio.completed)
    script = api.of(studio.bob, "write")
    offered = script.get(f"/runs/{studio.completed.pk}/registrable").json()["items"]
    assert offered[0] == {"path": FINAL, "kind": "final", "size_bytes": len(content)}
    sent = {"name": "digits", "aliases": ["champion"], "tags": {"a": "1"}}
    made = script.post(f"/runs/{studio.completed.pk}/models", sent, **{"Idempotency-Key": "k"})
    again = script.post(f"/runs/{studio.completed.pk}/models", sent, **{"Idempotency-Key": "k"})
    assert (made.status_code, made.json()["id"]) == (201, again.json()["id"])
    said = made.json()
    assert (said["path"], said["aliases"], said["number"]) == (FINAL, ["champion"], 1)
    assert said["lineage"]["code"]["sha256"] == studio.version.bundle.sha256
    model = f"/models/{said['model']}"
    file = script.get(f"{model}/versions/champion/files/model_epoch_final.pth", Range="bytes=2-5")
    assert (file.status_code, wmla.body(file)) == (206, content[2:6])
    assert script.get("/models?name=digits").json()["items"][0]["aliases"] == {"champion": 1}
    assert script.get(f"/projects/{studio.cifar.pk}/models").json()["items"] == []
    assert script.get(f"/runs/{studio.completed.pk}/models").json()["items"][0]["id"] == said["id"]
    assert script.get(f"{model}/events").json()["items"][0]["what"] == "bob let champion point to version 1."
    assert script.post(f"/runs/{studio.queued.pk}/models", {"name": "digits"}).status_code == 404


def test_the_api_changes_and_deletes(studio: Seeded) -> None:
    model = version_of(studio).model
    address = f"/models/{model.pk}"
    bob, alice = api.of(studio.bob, "write"), api.of(studio.alice, "write")
    assert bob.send("PATCH", address, {"note": "n"}).json()["note"] == "n"
    assert bob.send("PATCH", address, {"note": "o"}, **{"If-Match": '"stale"'}).status_code == 412
    assert bob.send("PATCH", f"{address}/versions/1", {"tags": {"x": "y"}}).json()["tags"] == {"x": "y"}
    assert bob.send("PUT", f"{address}/aliases/latest", {"version": 1}).status_code == 400
    assert bob.send("PUT", f"{address}/aliases/next", {"version": 2}).status_code == 404
    assert bob.send("DELETE", f"{address}/versions/1").status_code == 403
    assert alice.send("DELETE", f"{address}/versions/champion").status_code == 400, "by its number"
    assert alice.send("DELETE", f"{address}/versions/1").status_code == 400, "an alias points to it"
    assert bob.send("DELETE", f"{address}/aliases/champion").status_code == 204
    assert alice.send("DELETE", f"{address}/versions/1").status_code == 204
    assert alice.send("DELETE", address).status_code == 204
    assert bob.post(f"/projects/{studio.digits.pk}/models", {"name": "empty"}).json()["versions"] == 0
    assert bob.post(f"/projects/{studio.digits.pk}/models", {"name": "empty"}).status_code == 400
