"""Submitting as notebooks and dlicmd.py of both generations do: ordinary experiments and runs come of it."""

from __future__ import annotations

import gzip
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from experiments import services
from experiments.models import DefinitionVersion, Experiment, Project, TrainingDefinition, TrainingRun, User
from experiments.services import outside
from tests import cast
from tests.conftest import SentMessages
from tests.web import wmla
from tests.web.conftest import As
from tests.web.submitting import GEN_A, GEN_B, MAIN, part, run_of, submit, tar
from tests.web.wmla import DL, Script, basic

FLAT = {
    "id",
    "args",
    "submissionId",
    "creator",
    "state",
    "schedulerUrl",
    "workDir",
    "appId",
    "appName",
    "createTime",
    "elastic",
    "nameSpace",
}


@pytest.fixture
def script(alice: User, said: SentMessages) -> Script:
    return wmla.of(alice)


@pytest.fixture
def data(home: Path) -> None:
    (home / "data" / "pytorch-mnist").mkdir()


def test_the_first_generation_submits_a_folder_as_tar_and_finds_three_ids(
    alice: User, data: None, said: SentMessages, django_capture_on_commit_callbacks: Any
) -> None:
    files = {"pytorch-mnist-edt-model/pytorch_mnist_EDT.py": MAIN, "pytorch-mnist-edt-model/elog.py": ""}
    content = tar(files)
    with django_capture_on_commit_callbacks(execute=True):
        answer = submit(Script(basic("alice")), GEN_A, part(content, "pytorch-mnist-edt-model.modelDir.tar"), query="sigName=dli-edt&")
    run, said_ = run_of(answer), answer.json()
    assert {said_["id"], said_["submissionId"], said_["appId"]} == {f"wmla-{run.pk}"}
    assert said_["sigName"] == "dli-edt"
    assert len(said_["sigId"]) == 36
    assert (run.command, run.data_folder, run.max_slots) == ("pytorch_mnist_EDT.py --epochs 10", "pytorch-mnist", 3)
    assert (run.version.distributed, run.version.definition.name) == ("elastic", "pytorch-mnist-edt-model")
    assert "schedule" in said.task_names()


@pytest.mark.parametrize("slash", ["", "/"])
@pytest.mark.parametrize("mode", ["w:gz", "w"])
def test_the_second_generation_submits_with_a_token_with_and_without_a_slash(script: Script, mode: str, slash: str) -> None:
    answer = submit(script, GEN_B, part(tar({"resnet-wmla/elastic-main.py": MAIN}, mode)), slash=slash)
    assert run_of(answer).command == "elastic-main.py"
    found = script.json(f"{DL}/execs/{answer.json()['id']}{slash}")
    assert found == answer.json()
    assert not FLAT - set(found)
    assert all(isinstance(value, str | int | float | bool) for value in found.values()), "notebooks make one row of a table of it"
    assert (found["state"], found["framework"], found["appName"]) == ("PENDING_CRD_SCHEDULER", "edtPyTorch", "ElasticPyTorchTrain")
    assert (found["creator"], found["numWorker"], found["elastic"], found["args"]) == ("alice", 2, True, GEN_B)


@pytest.mark.parametrize(
    ("files", "main"),
    [
        (lambda: part(tar({"./main.py": MAIN, "./net.py": ""}, "w")), "main.py"),
        (lambda: part(tar({"model/main.py": MAIN, "other/net.py": ""})), "model/main.py"),
        (lambda: part(cast.zipped({"model/main.py": MAIN}).getvalue(), "model.zip"), "main.py"),
        (lambda: part(cast.zipped({"main.py": MAIN, "net.py": ""}).getvalue(), "model.zip", field="model.zip"), "main.py"),
        (lambda: part(MAIN.encode(), "main.py"), "main.py"),
        (lambda: part(MAIN.encode(), "main.py", field="main.py") | part(b"X = 1\n", "net.py", field="net.py"), "main.py"),
        (lambda: part(MAIN.encode(), "main.py") | part(b"name: edt\n", "conda.yaml", field="conda"), "main.py"),
    ],
)
def test_code_arrives_as_tar_zip_or_scripts_under_any_field_name(script: Script, files: Any, main: str) -> None:
    run = run_of(submit(script, "--exec-start PyTorch --model-dir model --model-main main.py -- --numWorker 9 --lr=0.1 'a b'", files()))
    assert run.command == f"{main} --numWorker 9 --lr=0.1 'a b'"
    assert (run.version.distributed, run.max_slots) == ("single", 1)


def test_a_notebook_is_a_script(script: Script) -> None:
    run = run_of(submit(script, "--exec-start edtPyTorch --numWorker 2 --model-main mnist.ipynb --lr 0.1", part(b"{}", "mnist.ipynb")))
    assert (run.command, run.experiment.name, run.version.distributed) == ("mnist.ipynb --lr 0.1", "mnist", "elastic")


@pytest.mark.parametrize(
    ("said", "slots"), [("", 1), ("--numWorker 3", 1), ("--workerDeviceNum 2", 2), ("--gpuPerWorker 3 --numWorker 2", 3)]
)
def test_a_single_process_has_the_devices_of_one_worker(said: str, slots: int, script: Script) -> None:
    run = run_of(submit(script, f"--exec-start PyTorch {said} --model-main main.py", part(MAIN.encode(), "main.py")))
    assert (run.version.distributed, run.min_slots, run.max_slots) == ("single", slots, slots)


def test_a_script_for_torch_distributed_gets_all_its_workers_or_none(script: Script) -> None:
    args = "--exec-start distPyTorch --numWorker 3 --workerDeviceNum 2 --model-main main.py --epochs 5"
    answer = submit(script, args, part(MAIN.encode(), "main.py"))
    run = run_of(answer)
    assert (run.version.distributed, run.command) == ("torchrun", "main.py --epochs 5")
    assert (run.min_slots, run.max_slots) == (6, 6)
    found = answer.json()
    assert (found["framework"], found["appName"], found["elastic"]) == ("distPyTorch", "DistributePyTorchTrain", False)


def test_a_run_of_the_pages_for_torchrun_reads_as_the_nearest_framework(script: Script, project: Project, alice: User) -> None:
    run = cast.run(project, by=alice, distributed="torchrun_elastic")
    found = script.call("get", f"{DL}/execs/wmla-{run.pk}").json()
    assert (found["framework"], found["elastic"], found["numWorker"]) == ("distPyTorch", True, 4)


def test_a_script_without_a_file_name_is_the_one_that_the_args_name(script: Script) -> None:
    """As the Python SDK of IBM's REST interface sends it."""
    run = run_of(submit(script, "--exec-start PyTorch --model-main ./train.py --epochs 2", {"file": MAIN}))
    assert run.command == "train.py --epochs 2"
    assert run_of(submit(script, "--exec-start PyTorch --model-main main.py", {"file": MAIN})).command == "main.py"
    refused = submit(script, "--exec-start PyTorch --model-main main.py", {"file": tar({"m/main.py": MAIN}).decode(errors="replace")})
    assert (refused.status_code, "The part file has no file name" in refused.json()["message"]) == (400, True)


def test_a_file_that_is_not_used_is_said(script: Script) -> None:
    files = part(MAIN.encode(), "main.py") | part(b"name: edt\n", "conda.yaml", field="conda")
    run = run_of(submit(script, "--exec-start edtPyTorch", files))
    assert run.experiment.description == "Sent along and not used: conda.yaml."


def test_later_clients_say_it_in_a_field_of_the_form(script: Script, data: None) -> None:
    spec = {
        "args": "--exec-start edtPyTorch --model-main main.py --numWorker 2",
        "hardwareSpec": {"nodes": {"num_nodes": 4, "mem": {"size": "16g"}, "gpu": {"num_gpu": 2}, "cpu": {"units": "0.25"}}},
        "dataSource": [{"type": "fs", "location": {"paths": "pytorch-mnist"}}],
    }
    sent = {**part(MAIN.encode(), "main.py"), "data": json.dumps(spec)}
    answer = script.call("post", f"{DL}/execs", sent, Accept="application/json")
    run = run_of(answer)
    assert (run.max_slots, run.data_folder, answer.json()["args"]) == (8, "pytorch-mnist", spec["args"])


def test_a_submission_is_an_ordinary_run_of_an_ordinary_project(script: Script, alice: User, bob: User, as_: As) -> None:
    answer = submit(script, GEN_B, part(tar({"resnet-wmla/elastic-main.py": MAIN})))
    run, client = run_of(answer), as_(alice)
    project = run.experiment.project
    assert (project.name, project.created_by, run.name) == ("WMLA submissions", alice, "resnet-wmla")
    assert "resnet-wmla" in client.get(f"/projects/{project.pk}/jobs/").content.decode()
    assert client.get(f"/runs/{run.pk}/").status_code == 200
    assert answer.json()["url"].endswith(f"/runs/{run.pk}/")
    assert as_(bob).get(f"/runs/{run.pk}/").status_code == 404


def test_the_same_code_is_one_definition_and_changed_code_its_next_version(script: Script, alice: User) -> None:
    first = part(tar({"m/main.py": MAIN}))
    args = "--exec-start edtPyTorch --model-dir m --model-main main.py --epochs "
    runs = [run_of(submit(script, f"{args}{epochs}", part(tar({"m/main.py": MAIN})))) for epochs in (1, 2)]
    runs.append(run_of(submit(script, f"{args}3", part(tar({"m/main.py": MAIN + "# better\n"})))))
    assert first
    assert [run.version.number for run in runs] == [1, 1, 2]
    assert (Project.objects.count(), TrainingDefinition.objects.count(), Experiment.objects.count()) == (1, 1, 3)
    Project.objects.update(name="Mine")
    assert run_of(submit(script, f"{args}4", part(tar({"m/main.py": MAIN})))).experiment.project.name == "Mine", "it was given another name"


def test_who_is_no_member_of_their_own_project_any_more_is_told(script: Script, alice: User, bob: User) -> None:
    project = run_of(submit(script, "--exec-start PyTorch", part(MAIN.encode(), "main.py"))).experiment.project
    services.add_member(project, by=alice, username="bob", role="admin")
    services.remove_member(project, by=bob, username="alice")
    answer = submit(script, "--exec-start PyTorch", part(MAIN.encode(), "main.py"))
    assert (answer.status_code, "ask one of its admins" in answer.json()["message"]) == (400, True)
    assert TrainingRun.objects.count() == 1


def test_variables_and_the_priority_reach_the_run(script: Script) -> None:
    args = "--exec-start edtPyTorch --msd-env EDT_PULL_WEIGHT_TIME_OUT=600 --msd-env OPTS=a=b --msd-priority 7000 --model-main main.py"
    run = run_of(submit(script, args, part(MAIN.encode(), "main.py")))
    assert (run.environment, run.priority) == ({"EDT_PULL_WEIGHT_TIME_OUT": "600", "OPTS": "a=b"}, 7000)


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ("--model-main main.py", "--exec-start"),
        ("--exec-start ddlCaffe --model-main main.py", "edtPyTorch, distPyTorch, PyTorch, edtTensorflow"),
        ("--exec-start edtPyTorch --model-main other.py", "other.py is not in the zip"),
        ("--exec-start edtPyTorch --model-main main.py --numWorker two", "whole number"),
        ("--exec-start edtPyTorch --model-main main.py --numWorker 5000", "4096"),
        ("--exec-start edtPyTorch --model-main main.py --cs-datastore-meta type=fs,data_path=nowhere", "no folder nowhere"),
        ("--exec-start edtPyTorch --model-main main.py --cs-datastore-meta type=fs,data_path=../..", "outside the data"),
        ("--exec-start edtPyTorch --model-main main.py --cs-datastore-meta type=cos,bucket=x", "type cos"),
        ("--exec-start edtPyTorch --model-main main.py --msd-env PATH=/tmp", "PATH could change"),
        ("--exec-start edtPyTorch --model-main main.py --msd-env DATA_DIR=/tmp", "DATA_DIR is set by the studio"),
        ("--exec-start edtPyTorch --model-main main.py --msd-env A", "NAME=VALUE"),
        ("--exec-start edtPyTorch --model-main main.py --msd-priority 0", "1 to 10000"),
        ("--exec-start edtPyTorch --user-cmd -- make all", "for all else name a Python script with --model-main"),
        ("--exec-start edtPyTorch --user-cmd", "for all else name a Python script with --model-main"),
        ("--exec-start distPyTorch --user-cmd -- torchrun --nope 1 main.py", "torchrun has no option --nope"),
        (
            "--exec-start distPyTorch --user-cmd -- bash bash_torchrun.sh main.py",
            "bash_torchrun.sh is no file of the code that does nothing but",
        ),
        ("--exec-start edtPyTorch --pbmodel-name MNIST", "prebuilt"),
        ("--exec-start edtPyTorch --model-main 'main.py", "quotation mark"),
        ("--exec-start", "has no value"),
        ("--exec-start edtPyTorch --model-main main.py --data-source [", "JSON"),
        ("", "--exec-start"),
    ],
)
def test_what_cannot_be_is_refused_with_a_sentence_and_leaves_nothing(script: Script, args: str, says: str) -> None:
    answer = submit(script, args, part(MAIN.encode(), "main.py"))
    assert answer.status_code == 400, answer.content
    assert says in answer.json()["message"]
    assert not TrainingRun.objects.exists()
    assert not DefinitionVersion.objects.exists()
    plain = script.call("post", f"{DL}/execs", part(MAIN.encode(), "main.py"), Accept="text/plain")
    assert plain.content.decode().startswith("Error 400: ")


HANDS_ON = "#!/bin/bash\n\ntorchrun --nnodes $WMLA_NWORKER --node_rank=$NODE_RANK --master_port $MASTER_PORT $@\n"


@pytest.mark.parametrize(
    ("args", "kind", "command"),
    [
        (
            "distPyTorch --msd-image-name a/b --user-cmd -- bash run.sh main.py --deepspeed ds.config",
            "torchrun",
            "main.py --deepspeed ds.config",
        ),
        ("distPyTorch --user-cmd -- torchrun --nproc-per-node 2 main.py --ig 3", "torchrun", "main.py --ig 3"),
        ("PyTorch --user-cmd python3 -u main.py", "single", "main.py"),
    ],
)
def test_a_command_of_ones_own_that_begins_a_python_script_is_run(script: Script, args: str, kind: str, command: str) -> None:
    sent = tar({"main.py": MAIN, "run.sh": HANDS_ON})
    run = run_of(submit(script, f"--exec-start {args}", part(sent, "m.modelDir.tar")))
    assert (run.command, run.version.distributed) == (command, kind)


def test_a_file_that_does_more_than_to_hand_its_arguments_on_is_refused(script: Script) -> None:
    for more in ("export NCCL_DEBUG=INFO\n", "cd src\n"):
        sent = part(tar({"main.py": MAIN, "run.sh": more + HANDS_ON}), "m.modelDir.tar")
        answer = submit(script, "--exec-start distPyTorch --user-cmd -- bash run.sh main.py", sent)
        assert answer.status_code == 400 and "does nothing but hand its arguments to torchrun" in answer.json()["message"]


@pytest.mark.parametrize(
    ("files", "says"),
    [
        (lambda: {}, "No code was sent"),
        (lambda: part(tar({"m/main.py": MAIN, "m/link": ""}, kind={"m/link": tarfile.SYMTYPE})), "m/link is a symbolic link"),
        (lambda: part(tar({"m/main.py": MAIN, "m/null": ""}, kind={"m/null": tarfile.CHRTYPE})), "special file"),
        (lambda: part(tar({"../main.py": MAIN})), "leads out of the folder"),
        (lambda: part(tar({"/etc/main.py": MAIN})), "absolute path"),
        (lambda: part(tar({"m/main.py": MAIN})[:-30]), "damaged"),
        (lambda: part(gzip.compress(b"\0" * 3000)), "holds no files"),
        (lambda: part(gzip.compress(b"nothing of a tar" * 100)), "damaged"),
        (lambda: part(tar({"m/main.py": MAIN}) + b"x", "m.tar") | part(MAIN.encode(), "main.py", field="b"), "Several files"),
        (lambda: part(b"\x7fELF", "main"), "is no tar, zip"),
        (lambda: part(huge_name()), "a header of it is too large"),
        (lambda: part(b"PK\x05\x06", "m.zip"), "zip"),
    ],
)
def test_files_that_are_not_model_code_are_refused(script: Script, files: Any, says: str) -> None:
    answer = submit(script, "--exec-start edtPyTorch --model-main main.py", files())
    assert answer.status_code == 400, answer.content
    assert says in answer.json()["message"], answer.json()
    assert not TrainingRun.objects.exists()


def huge_name() -> bytes:
    """A header that says that the name which follows has a gigabyte."""
    info = tarfile.TarInfo("././@LongLink")
    info.type, info.size = tarfile.GNUTYPE_LONGNAME, 1 << 30
    return gzip.compress(info.tobuf(tarfile.GNU_FORMAT) + bytes(8192))


def test_a_tar_that_unpacks_to_more_than_is_allowed_is_refused(script: Script, settings: Any) -> None:
    settings.EDT_MAX_UNPACKED_BYTES = 1 << 20
    bomb = part(tar({"m/main.py": MAIN, "m/data.txt": "0" * (2 << 20)}))
    answer = submit(script, "--exec-start edtPyTorch --model-main main.py", bomb)
    assert (answer.status_code, "unpacks to more than 1 MiB" in answer.json()["message"]) == (400, True)
    settings.EDT_MAX_UPLOAD_ENTRIES = 1
    many = part(tar({"m/main.py": MAIN, "m/net.py": ""}))
    assert "over 1 entries" in submit(script, "--exec-start edtPyTorch --model-main main.py", many).json()["message"]


def test_a_body_that_is_no_form_is_refused(script: Script) -> None:
    for kind in ("application/json", "multipart/form-data", "multipart/form-data; boundary=\u00ff", "text/plain"):
        answer = script.client.post(f"{DL}/execs?args=--exec-start%20PyTorch", b"\xff{", content_type=kind, headers=script.headers)
        assert answer.status_code == 400, kind
    for field in ("[]", "{", "[" * 5000, '{"args": 5}', '{"args": "--exec-start PyTorch", "hardwareSpec": 5, "dataSource": 7}'):
        answer = script.call("post", f"{DL}/execs", {**part(MAIN.encode(), "main.py"), "data": field}, Accept="application/json")
        assert answer.status_code == 400, field[:20]


def test_a_run_that_somebody_logs_from_outside_is_in_the_list(script: Script, project: Project, alice: User) -> None:
    """The whole list was refused where there was one: a command of nothing names no script."""
    run = outside.begin_run(project, by=alice, name="laptop", began_at=timezone.now(), now=timezone.now())
    [found] = script.json(f"{DL}/execs")
    assert (found["id"], found["args"], found["state"]) == (f"wmla-{run.pk}", "", "RUNNING")
