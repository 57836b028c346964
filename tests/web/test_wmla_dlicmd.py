"""dlicmd.py as a program: fetched from a live studio, run by itself with nothing but the standard library."""

from __future__ import annotations

import ast
import json
import os
import random
import stat
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from experiments.files import runfiles
from experiments.models import RunState, TrainingRun, User
from experiments.runs import states
from experiments.wmla.program import FILE
from tests import cast
from tests.conftest import SentMessages
from tests.domain.test_search_choices import LR, algo
from tests.web.test_request_limits import Server
from tests.web.wmla import DL

pytestmark = pytest.mark.django_db(transaction=True)
START = ["--exec-start", "edtPyTorch", "--cs-datastore-meta", "type=fs,data_path=mnist", "--numWorker", "2"]


class Shell:
    """Somebody's terminal, in a folder of their own."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url, self.folder = url, folder
        (folder / "dlicmd.py").write_bytes(urllib.request.urlopen(f"{url}/ui/tools/dlicmd.py").read())

    def run(self, *words: str, status: int = 0, host: str = "") -> str:
        """What it prints; to where it complains for a status that is not 0."""
        command = [sys.executable, "-I", "-S", "dlicmd.py", *words, "--rest-host", host or self.url]
        if "--" in words:
            at = words.index("--")
            command = [*command[:4], *words[:at], "--rest-host", host or self.url, *words[at:]]
        environment = {"HOME": str(self.folder), "PATH": os.environ["PATH"]}
        said: dict[str, Any] = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True, "timeout": 120, "check": False}
        done = subprocess.run(command, cwd=self.folder, env=environment, **said)
        assert done.returncode == status, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return done.stderr if status else done.stdout

    def json(self, *words: str) -> Any:
        return json.loads(self.run(*words))


@pytest.fixture
def shell(tmp_path: Path, alice: User, home: Path, said: SentMessages, node: object) -> Iterator[Shell]:
    (home / "data" / "mnist").mkdir()
    folder = tmp_path / "alice"
    folder.mkdir()
    with Server() as server:
        yield Shell(f"http://127.0.0.1:{server.port}", folder)


@pytest.fixture
def logged_on(shell: Shell) -> Shell:
    assert shell.run("--logon", "--username", "alice", "--password", cast.PASSWORD) == "Logon succeed.\n"
    return shell


def started(shell: Shell, *words: str) -> TrainingRun:
    """The run of a job that was submitted, by what is printed."""
    printed = shell.run(*words)
    lines = printed.splitlines()
    assert lines[0] == "Copying files and directories ..."
    assert lines[1].startswith("Content size: ")
    found = json.loads("\n".join(lines[2:]))
    assert found["execId"] == found["appId"]
    return TrainingRun.objects.get(pk=int(found["execId"].removeprefix("wmla-")))


def model(shell: Shell, name: str = "pytorch-mnist", **files: str) -> Path:
    folder = shell.folder / name
    folder.mkdir()
    for path, text in {"main.py": cast.MAIN_PY, **files}.items():
        (folder / path).write_text(text)
    return folder


def test_the_program_is_one_that_python_3_8_understands() -> None:
    tree = ast.parse(FILE.read_text(), feature_version=(3, 8))
    newer = {"removeprefix", "removesuffix"}
    assert not [node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr in newer]
    modules = {alias.name.partition(".")[0] for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    modules |= {str(node.module).partition(".")[0] for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert modules <= sys.stdlib_module_names | {"__future__"}


def test_it_is_started_by_its_name_as_guides_and_self_tests_do(logged_on: Shell) -> None:
    (logged_on.folder / "dlicmd.py").chmod(0o755)
    environment = {"HOME": str(logged_on.folder), "PATH": os.environ["PATH"]}
    command = ["./dlicmd.py", "--exec-get-all", "--rest-host", logged_on.url]
    done = subprocess.run(command, cwd=logged_on.folder, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("id  submit_user")


def test_a_folder_is_packed_submitted_watched_and_its_model_fetched(logged_on: Shell) -> None:
    folder = model(logged_on, "pytorch-mnist", **{"net.py": "X = 1\n"})
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__" / "net.pyc").write_bytes(b"\0")
    (folder / "link.py").symlink_to(folder / "net.py")
    words = [
        *START,
        "--model-dir",
        str(folder),
        "--model-main",
        "main.py",
        "--msd-env",
        "A=b c",
        "--",
        "--epochs",
        "5",
        "--note",
        "two words",
    ]
    run = started(logged_on, *words)
    assert run.command == "main.py --epochs 5 --note 'two words'"
    assert (run.max_slots, run.data_folder, run.environment, run.experiment.name) == (2, "mnist", {"A": "b c"}, "pytorch-mnist")
    assert (run.version.bundle.root, run.version.bundle.scripts) == ("pytorch-mnist", ["link.py", "main.py", "net.py"])

    name = f"wmla-{run.pk}"
    assert logged_on.json("--exec-get", name)["state"] == "PENDING_CRD_SCHEDULER"
    assert logged_on.run("--exec-stop", name) == f"Stop exec {name} succeed. HTTP:204 \n"
    assert logged_on.json("--exec-get", name)["state"] == "KILLED"

    weights = runfiles.make(run) / "model" / "model_epoch_final.pth"
    weights.parent.mkdir()
    weights.write_bytes(b"\x80" * 5000)
    printed = logged_on.run("--exec-trainresult", name)
    assert printed.startswith("Train result is saved to dlpd-model-")
    assert (logged_on.folder / printed.split()[-1]).stat().st_size > 5000
    assert logged_on.run("--exec-delete", name) == f"Delete exec {name} succeed. HTTP:204 \n"
    assert logged_on.run("--exec-get", name, status=1) == f"Cannot find task {name}. HTTP:400\n"


def test_a_large_folder_is_taken_of_who_says_who_they_are(logged_on: Shell) -> None:
    folder = model(logged_on)
    (folder / "weights.bin").write_bytes(random.Random(1).randbytes(3 << 20))
    run = started(logged_on, *START, "--model-dir", "pytorch-mnist", "--model-main", "main.py")
    assert run.version.bundle.size_bytes > 3 << 20
    said = logged_on.run("--jwt-token", "x.y.z", *START, "--model-dir", "pytorch-mnist", "--model-main", "main.py", status=1)
    assert TrainingRun.objects.count() == 1, said


def test_one_script_needs_no_folder(logged_on: Shell) -> None:
    (logged_on.folder / "train.py").write_text(cast.MAIN_PY)
    run = started(
        logged_on, "--exec-start", "PyTorch", "--model-main", "train.py", "--data-source", '[{"type":"fs","location":{"paths":"mnist"}}]'
    )
    assert (run.command, run.data_folder, run.version.distributed) == ("train.py", "mnist", "single")


def test_a_search_is_started_watched_stopped_and_deleted(logged_on: Shell) -> None:
    model(logged_on, "pytorch-hpo")
    (logged_on.folder / "search.json").write_text(
        json.dumps({"modelSpec": {"args": "--exec-start PyTorch --model-main main.py"}, "algoDef": algo(), "hyperParams": [LR]})
    )
    assert "Say where the model is" in logged_on.run("--hpo-start", "search.json", status=1)
    printed = logged_on.run("--hpo-start", "search.json", "--model-dir", "pytorch-hpo")
    name = json.loads(printed.split("Start hypersearch with id: ")[1])["uid"]
    assert logged_on.json("--hpo-get", name)["experiments"][0]["state"] == "SUBMITTED"
    head, row = logged_on.run("--hpo-get-all").splitlines()
    assert head.split()[:4] == ["name", "state", "running", "progress"]
    assert row.split()[:4] == [name, "SUBMITTED", "0", "0/4"]
    assert "submit it anew" in logged_on.run("--hpo-restart", name, status=1)
    assert logged_on.run("--hpo-stop", name) == f"Stop hpo {name} succeed. HTTP:204 \n"
    assert logged_on.run("--hpo-delete", name) == f"Delete hpo {name} succeed. HTTP:204 \n"
    assert "Hyperband" in logged_on.run("--hpo-algorithm-get-all")


def test_what_is_wrong_is_said_in_a_sentence(shell: Shell, logged_on: Shell) -> None:
    assert "--exec-get-all" in shell.run("--help")
    for words, says in (
        (["--nonsense"], "Say what to do"),
        (["--exec-get"], "Say which one"),
        (["--exec-get", "wmla-999"], "Cannot find task wmla-999"),
        (["--exec-start", "edtPyTorch", "--model-dir", "nowhere"], "There is no nowhere here"),
        (["--exec-start", "ddlCaffe"], "Framework ddlCaffe is not available"),
        (["--pj-get-all"], "The studio has no parallel jobs"),
        (["--hpo-get", "alice-hpo-999"], "Cannot find hpo task alice-hpo-999"),
        (["--hpo-start", "nowhere.json"], "Name a file with the search as JSON"),
        (["--exec-get-all", "--jwt-token", "x"], "log on again"),
        (["--logon", "--username", "alice", "--password", "wrong"], "The username or the password is wrong"),
    ):
        assert says in shell.run(*words, status=1), words
    assert "Say who you are" in shell.run("--status", status=1, host="http://127.0.0.1:1")
    refused = shell.run("--status", "--jwt-token", "x", status=1, host="http://127.0.0.1:1")
    assert refused.startswith("http://127.0.0.1:1 cannot be reached")
    assert "file:// is not possible" in shell.run("--status", "--jwt-token", "x", status=1, host="file:///etc")


def test_the_token_is_kept_for_its_owner_alone_until_logged_off(logged_on: Shell) -> None:
    kept = logged_on.folder / ".dlicmd"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    (token,) = json.loads(kept.read_text()).values()
    assert logged_on.json("--status") == {"status": "OK"}
    assert logged_on.run("--logoff") == "Logoff succeed.\n"
    assert json.loads(kept.read_text()) == {}
    assert "log on again" in logged_on.run("--status", "--jwt-token", token, status=1)


def test_a_command_line_of_before_with_https_and_a_port_works_on_ones_own_machine(shell: Shell) -> None:
    _, _, port = shell.url.rpartition(":")
    words = ["--username", "alice", "--password", cast.PASSWORD, "--rest-port", port]
    assert json.loads(shell.run("--status", *words, host="localhost")) == {"status": "OK"}


def test_lists_are_tables_or_json_or_the_columns_that_are_named(logged_on: Shell) -> None:
    (logged_on.folder / "train.py").write_text(cast.MAIN_PY)
    one, two = (started(logged_on, "--exec-start", kind, "--model-main", "train.py") for kind in ("edtPyTorch", "PyTorch"))
    states.transition(one, RunState.COMPLETED, reason="done", now=one.submitted_at)
    head, *rows = [line.split() for line in logged_on.run("--exec-get-all").splitlines()]
    assert head == ["id", "submit_user", "name", "framework", "type", "state", "num", "submit_time", "age"]
    assert [row[:6] for row in rows] == [
        [f"wmla-{one.pk}", "alice", "ElasticPyTorchTrain", "edtPyTorch", "ELASTIC", "FINISHED"],
        [f"wmla-{two.pk}", "alice", "SingleNodePytorchTrain", "PyTorch", "PARALLEL", "PENDING_CRD_SCHEDULER"],
    ]
    asked = ["--query-args", "limit=10&state=FINISHED&sort_by=id:desc"]
    assert [each["id"] for each in logged_on.json("--exec-get-all", *asked, "-o", "json")] == [f"wmla-{one.pk}"]
    assert logged_on.run("--exec-get-all", *asked, "-o", "custom-columns=ID:.id,ST:.state").split() == [
        "ID",
        "ST",
        f"wmla-{one.pk}",
        "FINISHED",
    ]
    assert [line.split()[0] for line in logged_on.run("--app-get-all").splitlines()] == ["id", f"wmla-{two.pk}"]
    assert len(logged_on.run("--app-history-get-all").splitlines()) == 3
    assert logged_on.run("--app-wait", f"wmla-{one.pk}") == "FINISHED\n"
    assert logged_on.json("--app-analyze", f"wmla-{one.pk}")["reason"] == "done"
    assert logged_on.run("--app-stop-all").startswith(f"Stop application wmla-{two.pk} succeed.")
    assert logged_on.run("--exec-delete-all").startswith("Delete all execs succeed.")
    assert not TrainingRun.objects.exists()


def test_logs_are_printed_as_they_were_written(logged_on: Shell) -> None:
    (logged_on.folder / "train.py").write_text(cast.MAIN_PY)
    run = started(logged_on, "--exec-start", "PyTorch", "--model-main", "train.py")
    folder = runfiles.make(run) / "log" / "driver"
    folder.mkdir(parents=True)
    (folder / "console.log").write_text("hello\nUsing pytorch backend.\n")
    (folder / "stdout").write_text("Train,\tTimestamp: 1\n")
    name = f"wmla-{run.pk}"
    assert logged_on.run("--exec-trainoutlogs", name) == "Train,\tTimestamp: 1\n"
    assert logged_on.run("--exec-trainlogs", name) == logged_on.run("--exec-trainerrlogs", name) == "hello\nUsing pytorch backend.\n"
    assert logged_on.run("--exec-outlogs", name) == "==== driver ====\nhello\nUsing pytorch backend.\n"
    assert logged_on.run("--app-errlogs", name, "--query-args", "lastlines=1") == "==== driver ====\nUsing pytorch backend.\n"
    assert "Submitted by alice." in logged_on.run("--exec-launcherlogs", name)
    assert "--exec-start edtPyTorch" in logged_on.run("--dl-frameworks")
    assert logged_on.json("--rp-get", "alice")["shareRatio"] == 1.0
    assert DL in FILE.read_text()
