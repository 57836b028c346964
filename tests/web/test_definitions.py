"""Training definitions in the browser: upload, versions, code."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
import uuid
import zipfile
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.urls import reverse

from experiments import services
from experiments.models import DataUpload, DefinitionVersion, Project, TrainingDefinition, TrainingRun, User
from tests import cast
from tests.web.conftest import As, code, definition_form
from tests.web.text import one_line
from training_runtime.elastic.driver import advice


def test_it_keeps_a_training_definition_and_shows_it(project: Project, bob: User, as_: As) -> None:
    answer = as_(bob).post(reverse("new_definition", args=[project.pk]), definition_form())
    version = DefinitionVersion.objects.get()
    assert answer.url == reverse("definition", args=[version.definition.pk])
    page = as_(bob).get(answer.url).content.decode()
    assert '<span class="word">main.py</span> <span class="word">--epochs</span> <span class="word">3</span>' in page, "whole options"
    assert version.max_slots == 4


@pytest.mark.parametrize(
    ("kind", "slots", "shown", "plan"),
    [
        ("torchrun_elastic", 4, "torchrun elastic", "torchrun elastic, up to 4 slots"),
        ("torchrun", 4, "torchrun", "torchrun, 4 slots"),
        ("single", 1, "Single process", "single process, 1 slot"),
    ],
)
def test_how_a_script_is_run_is_chosen_and_shown(
    kind: str, slots: int, shown: str, plan: str, project: Project, bob: User, as_: As
) -> None:
    form = as_(bob).get(reverse("new_definition", args=[project.pk])).content.decode()
    assert f'<option value="{kind}">{shown}</option>' in form
    assert "one process that sees the GPUs of all its slots" in form
    answer = as_(bob).post(reverse("new_definition", args=[project.pk]), definition_form(distributed=kind, max_slots=""))
    assert DefinitionVersion.objects.get().max_slots == slots
    page = as_(bob).get(answer.url).content.decode()
    assert f"<dt>Distributed training type</dt><dd>{shown}</dd>" in page
    assert f"Any slot, {plan}" in one_line(page)


def test_whose_trainer_the_code_uses_is_said_with_what_its_type_makes_of_it(project: Project, bob: User, as_: As) -> None:
    lightning = cast.zipped({"main.py": "import lightning as L\nL.Trainer(max_epochs=3).fit(model)\n"}).getvalue()
    said = {"elastic": "Lightning&#x27;s Trainer, whose steps are its own", "torchrun_elastic": "save what they have", "single": ""}
    for kind, words in said.items():
        form = definition_form(name=kind, distributed=kind, max_slots="", upload=SimpleUploadedFile("l.zip", lightning))
        page = as_(bob).get(as_(bob).post(reverse("new_definition", args=[project.pk]), form).url).content.decode()
        assert words in page and ("Trainer" in page) == bool(words)


@pytest.mark.parametrize(
    ("changes", "field", "said"),
    [
        ({"command": "torchrun main.py"}, "command", "as the distributed training type"),
        ({"command": "torchrun --nope main.py", "distributed": "torchrun"}, "command", "torchrun has no option --nope"),
        ({"distributed": "mpi"}, "distributed", "Select a valid choice"),
        ({"name": "x" * 300}, "name", "at most 120"),
        ({"upload": None}, "upload", "Choose a .zip, .tar, .tar.gz, .py or .ipynb"),
        ({"max_slots": "0"}, "max_slots", "Give a whole number from 1 to 4096."),
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


def test_a_bad_zip_is_refused_and_not_kept(project: Project, bob: User, as_: As) -> None:
    sent = definition_form(upload=code({"../evil.py": "x"}))
    page = as_(bob).post(reverse("new_definition", args=[project.pk]), sent).content.decode()
    assert 'id="id_upload_error"' in page
    assert "evil.py" in page
    assert not DataUpload.objects.exists()


def test_the_same_form_sent_twice_makes_one(project: Project, bob: User, as_: As) -> None:
    idempotency_key = str(uuid.uuid4())
    for _ in range(2):
        as_(bob).post(reverse("new_definition", args=[project.pk]), definition_form(idempotency_key=idempotency_key))
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
    sent = {"project": mine.pk, "idempotency_key": str(uuid.uuid4())}
    answers = {as_(victor).post(address, sent).url for _ in range(2)}
    copy = mine.definitions.get()
    assert answers == {reverse("definition", args=[copy.pk])}
    assert (copy.name, copy.newest().bundle, copy.newest().command) == ("lenet", version.bundle, version.command)
    assert as_(bob).post(address, {**sent, "idempotency_key": str(uuid.uuid4())}).status_code == 404  # he is not in Victor's
    theirs = services.create_project(by=alice, name="Looked at")
    services.add_member(theirs, by=alice, username="victor", role="viewer")
    assert as_(victor).post(address, {"project": theirs.pk, "idempotency_key": str(uuid.uuid4())}).status_code == 403
    assert TrainingDefinition.objects.count() == 2
    assert as_(bob).post(address, {}).url == reverse("definition", args=[version.definition.pk])


def test_a_tar_and_a_script_are_taken_and_given_back_as_a_zip(project: Project, bob: User, as_: As) -> None:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as archive:
        for name, data in (("resnet/main.py", b"x = 1"), ("resnet/net.py", b"y = 2")):
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    for name, data, shown in (("resnet.modelDir.tar", content.getvalue(), "resnet.zip"), ("main.py", b"print(1)", "main.zip")):
        upload = SimpleUploadedFile(name, data)
        answer = as_(bob).post(reverse("new_definition", args=[project.pk]), definition_form(name=shown, upload=upload))
        assert answer.status_code == 302, answer.content.decode()
        version = DefinitionVersion.objects.get(definition__name=shown)
        assert version.file_name == name
        taken = as_(bob).get(reverse("download_version", args=[version.pk]))
        assert f'filename="{shown}"' in taken["Content-Disposition"]
        with zipfile.ZipFile(io.BytesIO(b"".join(taken))) as zip_:
            assert zip_.testzip() is None


def arrive(client: Client, project: Project, content: bytes, name: str = "code.zip") -> int:
    """Send a zip in two pieces, as the page does with a large one; the number by which a form names it."""
    said = json.dumps({"code": True, "files": [{"path": name, "size": len(content)}]})
    began = client.post(reverse("begin_upload", args=[project.pk]), said, content_type="application/json")
    address, half = began.json()["upload"], len(content) // 2
    client.put(f"{address}files/0?offset=0", content[:half], content_type="application/octet-stream")
    again = client.post(reverse("begin_upload", args=[project.pk]), said, content_type="application/json").json()
    assert (again["upload"], again["received"]) == (address, [half]), "chosen again, it is gone on with"
    client.put(f"{address}files/0?offset={half}", content[half:], content_type="application/octet-stream")
    hashed = json.dumps({"sha256": [hashlib.sha256(content).hexdigest()]})
    answer = client.post(f"{address}finish/", hashed, content_type="application/json").json()
    assert answer["to"] == f"{reverse('new_definition', args=[project.pk])}?kept={answer['kept']}"
    return int(answer["kept"])


def test_a_zip_that_arrived_in_pieces_is_taken_by_a_definition_and_by_a_version(project: Project, bob: User, as_: As) -> None:
    client, content = as_(bob), cast.zipped().getvalue()
    kept = arrive(client, project, content)
    address = reverse("new_definition", args=[project.pk])
    assert f"code.zip</bdi>, {len(content)} B, uploaded" in client.get(address, {"kept": kept}).content.decode()
    wrong = client.post(address, definition_form(upload=None, kept=kept, max_slots="0")).content.decode()
    assert "B, uploaded" in wrong
    assert "Choose the file" not in wrong
    sent = definition_form(upload=None, kept=kept)
    for _ in range(2):
        assert client.post(address, sent).status_code == 302, "sent twice, it finds what came of it"
    version = DefinitionVersion.objects.get()
    assert (version.file_name, version.bundle.sha256) == ("code.zip", hashlib.sha256(content).hexdigest())
    assert not DataUpload.objects.exists()
    newer = cast.zipped({"main.py": "print(2)\n"}).getvalue()
    sent = definition_form(upload=None, kept=arrive(client, project, newer), command="main.py")
    client.post(reverse("new_version", args=[version.definition.pk]), sent)
    assert version.definition.newest().bundle.sha256 == hashlib.sha256(newer).hexdigest()
    cast.empty_trash()
    assert cast.stored(settings.EDT_HOME / "uploads") == []


def test_a_zip_that_arrived_and_is_refused_must_be_sent_again(project: Project, bob: User, as_: As) -> None:
    kept = arrive(as_(bob), project, cast.zipped({"../evil.py": "x"}).getvalue())
    page = as_(bob).post(reverse("new_definition", args=[project.pk]), definition_form(upload=None, kept=kept)).content.decode()
    assert "evil.py" in page.split('id="id_upload_error"')[1]
    assert not DataUpload.objects.exists()
    again = as_(bob).post(reverse("new_definition", args=[project.pk]), definition_form(upload=None, kept=kept)).content.decode()
    assert "is empty" in again.split('id="id_upload_error"')[1]


def test_nobody_takes_anothers_zip_or_one_of_another_project(project: Project, alice: User, bob: User, as_: As) -> None:
    kept = arrive(as_(bob), project, cast.zipped().getvalue())
    elsewhere = services.create_project(by=bob, name="Elsewhere")
    for person, into in ((alice, project), (bob, elsewhere)):
        answer = as_(person).post(reverse("new_definition", args=[into.pk]), definition_form(upload=None, kept=kept))
        assert answer.status_code == 200
    assert not TrainingDefinition.objects.exists()
    assert DataUpload.objects.count() == 1


def test_a_zip_that_is_too_large_or_changed_on_the_way_is_refused(project: Project, bob: User, as_: As, settings: Any) -> None:
    client, begin = as_(bob), reverse("begin_upload", args=[project.pk])
    settings.EDT_MAX_UPLOAD_BYTES = 1 << 20
    said = {"code": True, "files": [{"path": "code.zip", "size": 2 << 20}]}
    answer = client.post(begin, json.dumps(said), content_type="application/json")
    assert (answer.status_code, "larger than 1 MiB" in answer.json()["errors"]["upload"][0]) == (400, True)
    two = {"code": True, "files": [{"path": "a.zip", "size": 1}, {"path": "b.zip", "size": 1}]}
    assert client.post(begin, json.dumps(two), content_type="application/json").status_code == 400
    said["files"] = [{"path": "code.zip", "size": 3}]
    address = client.post(begin, json.dumps(said), content_type="application/json").json()["upload"]
    wrong = json.dumps({"sha256": ["00"]})
    early = client.post(f"{address}finish/", wrong, content_type="application/json").json()["errors"]["upload"][0]
    assert "only what is missing" in early
    client.put(f"{address}files/0?offset=0", b"zip", content_type="application/octet-stream")
    late = client.post(f"{address}finish/", wrong, content_type="application/json").json()["errors"]["upload"][0]
    assert "did not arrive as it was sent" in late
    assert not DataUpload.objects.exists()


def test_an_empty_zip_is_refused_when_it_is_announced_and_its_number_leads_nowhere(project: Project, bob: User, as_: As) -> None:
    client = as_(bob)
    said = json.dumps({"code": True, "files": [{"path": "code.zip", "size": 0}]})
    answer = client.post(reverse("begin_upload", args=[project.pk]), said, content_type="application/json")
    assert (answer.status_code, "is empty" in answer.json()["errors"]["upload"][0]) == (400, True)
    upload = DataUpload.objects.create(project=project, name="code.zip", parts=[["code.zip", 0]], for_code=True, created_by=bob)
    refused = client.post(reverse("new_definition", args=[project.pk]), definition_form(upload=None, kept=upload.pk))
    assert refused.status_code == 200
    assert 'id="id_upload_error"' in refused.content.decode()


def test_who_has_all_packages_already_has_none_built_and_later_versions_neither(project: Project, bob: User, as_: As) -> None:
    client, files = as_(bob), {"main.py": cast.MAIN_PY, "requirements.txt": "-e ./mine\ntqdm\n"}
    address = reverse("new_definition", args=[project.pk])
    assert "editable packages" in client.post(address, definition_form(upload=code(files))).content.decode()
    client.post(address, definition_form(upload=code(files), packages="studio"))
    definition = TrainingDefinition.objects.get()
    assert (definition.newest().requirements, definition.newest().packages) == ("", "studio")
    shown = client.get(reverse("definition", args=[definition.pk])).content.decode()
    assert "what its code requires is not built" in shown
    form = client.get(reverse("new_version", args=[definition.pk])).content.decode()
    assert '<option value="studio" selected>' in form
    add = reverse("new_version", args=[definition.pk])
    client.post(add, definition_form(upload=None, packages="studio"))
    assert (definition.newest().number, definition.newest().requirements) == (2, "")
    client.post(add, definition_form(upload=code({"main.py": cast.MAIN_PY, "requirements.txt": "tqdm\n"})))
    assert (definition.newest().packages, definition.newest().requirements) == ("own", "tqdm  # requirements.txt:1\n")
    changes = client.get(reverse("changes", args=[definition.newest().pk])).content.decode()
    assert "The studio&#x27;s packages alone" in changes
    assert "packages" in client.post(add, definition_form(upload=None, packages="others")).content.decode()
    assert definition.newest().number == 3


def test_a_run_that_failed_for_want_of_the_network_leads_to_a_version_that_asks_for_it(project: Project, alice: User, as_: As) -> None:
    version = cast.definition(project, by=alice)
    run = services.run_experiment(cast.experiment(project, by=alice, versions=[version]), by=alice)[0]
    TrainingRun.objects.filter(pk=run.pk).update(state="failed", error_message=f"URLError: no such name. {advice.NO_NETWORK}.")
    address = f"{reverse('new_version', args=[version.definition.pk])}?network=outward"
    client = as_(alice)
    assert f'href="{address}">Save a version that reaches the internet' in client.get(reverse("run", args=[run.pk])).content.decode()
    assert '<option value="outward" selected>' in client.get(address).content.decode()
    assert '<option value="none" selected>' in client.get(address.replace("outward", "intranet")).content.decode()
    client.post(reverse("new_version", args=[version.definition.pk]), definition_form(upload=None, network="outward"))
    newest = version.definition.newest()
    assert newest.network == "outward"
    assert "The internet" in client.get(reverse("changes", args=[newest.pk])).content.decode()
    page = client.get(reverse("definition", args=[version.definition.pk])).content.decode()
    assert "without private networks" in page
    services.set_policy(by=alice, policy="fair_share", without_network=[str(project.pk)])
    assert "its runs cannot start" in client.get(reverse("definition", args=[version.definition.pk])).content.decode()
