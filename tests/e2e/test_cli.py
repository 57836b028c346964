"""`edt`, the client in Python and the API, by their documentation: every command of it is typed, every program of it is run."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
import pexpect
import pytest
from nbclient import NotebookClient

from tests.e2e.kept_elsewhere import KEPT, keep_runs
from tests.e2e.studio import REPOSITORY, Studio, wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.shared_studio, pytest.mark.timeout(600)]
EXAMPLE = "https://studio.example.org"
# Where the tests run in the background of a shell they ignore Ctrl-C, and so would what they start.
HEARD: dict[str, Any] = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)}
SCRIPT = """
import argparse

import torch
from fabric_model import FabricModel
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=1)
parser.add_argument("--lr", type=float, default=0.1)
args = parser.parse_args()
print("hello from", args)
torch.manual_seed(1)
points = torch.arange(240.0).remainder(7).reshape(120, 2)
whole = torch.utils.data.TensorDataset(points, (points.sum(1) > 6).long())
model = nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)
FabricModel(model, lambda: (whole, whole), nn.functional.cross_entropy, optimizer).train(args.epochs, 12, 2)
"""


@dataclass
class Shell:
    """Somebody's terminal, in a folder with a script and with data."""

    studio: Studio
    folder: Path
    environment: dict[str, str]

    def run(self, command: str, *, status: int = 0, typed: str = "") -> str:
        """What it printed. `typed`: its standard input."""
        done = subprocess.run(
            ["sh", "-c", command],
            cwd=self.folder,
            env=self.environment,
            input=typed,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == status, f"{command}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr, done.stderr
        return done.stdout if status == 0 else done.stderr

    def said(self, command: str) -> Any:
        return json.loads(self.run(command))

    def log_in(self, command: str = f"edt login {EXAMPLE} --username alice") -> None:
        typed = self.studio.account("alice") + "\n"
        self.run(command.replace(EXAMPLE, self.studio.url) + " --password-stdin", typed=typed)

    def token(self) -> str:
        kept = json.loads((self.folder.parent / "config" / "edt" / "credentials.json").read_text())
        return str(kept["studios"][self.studio.url]["token"])


@pytest.fixture
def shell(studio: Studio, tmp_path: Path) -> Iterator[Shell]:
    folder = tmp_path / "letters"
    (folder / "data").mkdir(parents=True)
    (folder / "main.py").write_text(SCRIPT)
    (folder / ".gitignore").write_text("data/\nmore-data/\n*.log\n*.zip\n")
    (folder / "data" / "letters.csv").write_text("a,b\n")
    (folder / "more-data").mkdir()
    (folder / "more-data" / "letters.csv").write_text("a,b\nc,d\n")
    bin_ = str(Path(sys.executable).parent)
    own = {"PATH": f"{bin_}:{os.environ['PATH']}", "XDG_CONFIG_HOME": str(tmp_path / "config"), "HOME": str(tmp_path), "TERM": "dumb"}
    yield Shell(studio, folder, own)


def blocks(page: str, language: str) -> list[str]:
    found = re.findall(rf"^```{language}\n(.*?)^```", (REPOSITORY / "docs" / page).read_text(), re.MULTILINE | re.DOTALL)
    assert found, f"docs/{page} has no {language}"
    return found


def told(shell: Shell, project: str) -> list[dict[str, Any]]:
    """What is the same of a project's runs wherever it is."""
    runs = shell.said(f'edt ls --project "{project}" --json')
    return [{name: run[name] for name in ("name", "state", "command", "metrics", "started_at", "ended_at")} for run in runs]


def searched(shell: Shell, said: str) -> int:
    """The experiment of a search with three trials, of which a line each was said."""
    runs = shell.said("edt ls -n 3 --json")
    assert said.count("test loss ") == 3
    assert all(f"lr={re.findall('--lr ([0-9.]+)', run['command'])[0]}" in said for run in runs)
    return int(runs[0]["experiment"])


def check_output(command: str, said: str) -> None:
    """That a command printed what its page says."""
    if command.startswith("edt metrics 7 loss --plot"):
        assert "train loss:" in said
    if command.startswith("edt logs"):
        assert "hello from" in said
    if command.startswith("edt trials"):
        assert len(said.splitlines()) == 4, "a head, and the three of them"
    if command.startswith("edt completion"):
        assert "_EDT_COMPLETE" in said


def test_every_command_of_its_page_does_what_the_page_says(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    commands = [line for block in blocks("cli.md", "sh") for line in block.splitlines()]
    assert [line for line in commands if not line.startswith("edt ")] == ["pip install edt-studio"]
    numbers: dict[str, int] = {}
    keep_runs(shell.folder)
    (shell.folder / "sweep.yaml").write_text(blocks("cli.md", "yaml")[0])

    def with_numbers(command: str) -> str:
        return re.sub(r"(?<= )[789](?= |$)", lambda found: str(numbers[found[0]]), command)

    for command in commands[1:]:
        if command.startswith("edt login"):
            shell.log_in(command)
            continue
        if command.startswith("edt priority"):  # from here on the page changes a run that lives, and goes on with one that has ended
            numbers |= {"7": shell.said("edt run . --detach --json -- --epochs 100000")["run"], "8": numbers["7"]}
        if command.startswith("edt export"):
            wait_until(lambda: not shell.said('edt ls --project "My digits" --state live --json'), lambda: "its run ends", every_s=0.3)
        said = shell.run(with_numbers(command))
        if not numbers and command.startswith("edt run"):
            numbers |= dict.fromkeys("78", shell.said("edt ls -n 1 --json")[0]["id"])
        if command.startswith("edt search"):
            numbers["9"] = searched(shell, said)
        check_output(command, said)
        if command.startswith("edt import project"):
            assert told(shell, "My digits, again") == told(shell, "My digits") != []
        elif command.startswith("edt import"):
            assert "completed, " in said
            brought = {run["name"]: run for run in shell.said('edt ls --project "Old runs" --json')}
            assert "it is there already" in shell.run(command)
        if command.startswith("edt verify"):
            assert shell.said(f"{command} --json")["problem"] == ""
    assert {name: run["metrics"] for name, run in brought.items()} == KEPT
    assert {run["state"] for run in brought.values()} == {"completed"}
    assert (shell.folder / "results.zip").stat().st_size > 1000
    assert "hello from" in (shell.folder / "driver.log").read_text()
    assert "not logged in" in shell.run("edt ls", status=1)


def test_a_run_is_followed_and_its_outcome_is_the_exit_status(shell: Shell) -> None:
    shell.log_in()
    lines = [json.loads(line) for line in shell.run("edt run . --json -- --epochs 3").splitlines()]
    assert lines[0]["event"] == "submitted"
    assert lines[-1]["state"] == "completed"
    assert [line["state"] for line in lines if line["event"] == "state"][-1] == "completed"
    assert any(line["event"] == "metrics" and "train loss" in line["metrics"] for line in lines)
    text = "".join(line["text"] for line in lines if line["event"] == "log")
    assert text == shell.run(f"edt logs {lines[0]['run']} -n 10000"), "each byte of the log once"
    again = shell.said("edt run . --detach --json -- --epochs 3")
    assert shell.said(f"edt show {again['run']} --json")["version"] == shell.said(f"edt show {lines[0]['run']} --json")["version"]
    (shell.folder / "broken.py").write_text("raise ValueError('no such optimizer')")
    said = shell.run("edt run . broken.py --type single", status=1)
    assert "failed" in said
    assert "no such optimizer" in said


@pytest.mark.parametrize(("answer", "status", "state"), [("s", 130, "stopped"), ("l", 130, "running")])
def test_ctrl_c_asks_what_is_to_become_of_the_run(shell: Shell, answer: str, status: int, state: str) -> None:
    shell.log_in()
    environment: Any = {**shell.environment, "TERM": "xterm"}
    words = ["run", ".", "--", "--epochs", "100000"]
    terminal = pexpect.spawn("edt", words, cwd=str(shell.folder), env=environment, timeout=90, encoding="utf-8", **HEARD)
    try:
        terminal.expect("epoch 1 test")
        terminal.sendintr()
        terminal.expect("or .g.o on watching")
        terminal.sendline(answer)
        terminal.expect(pexpect.EOF)
    finally:
        terminal.close(force=True)
    assert terminal.exitstatus == status
    assert shell.said("edt ls -n 1 --json")[0]["state"] == state


def test_top_draws_a_lane_for_each_slot_until_it_is_interrupted(shell: Shell) -> None:
    shell.log_in()
    environment: Any = {**shell.environment, "TERM": "xterm"}
    terminal = pexpect.spawn("edt", ["top"], env=environment, timeout=60, encoding="utf-8", dimensions=(30, 120), **HEARD)
    try:
        for _ in range(2):  # it is drawn again
            terminal.expect(r"of 4 slots held")
        terminal.sendintr()
        terminal.expect(pexpect.EOF)
    finally:
        terminal.close(force=True)
    assert terminal.exitstatus == 130


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("edt run nowhere", "is no folder"),
        ("edt run . other.py", "has no other.py to send"),
        ("edt run . --env NONSENSE", "has no value: write NAME=VALUE"),
        ("edt run . --data nothing", "edt upload makes one"),
        ("edt ls --project 'no such thing'", "edt projects lists them"),
        ("edt show 999999", "There is no such run."),
        ("edt sweep . main.py", "Say what differs"),
        ("edt search . main.py --metric 'test loss'", "Say what to search for"),
        ("edt search . main.py lr=2..1 --metric 'test loss'", "give the smaller one first"),
        ("edt search . main.py lr=1..3 lr=3..5 --metric 'test loss'", "lr is there twice"),
        ("edt trials 999999", "There is no such experiment."),
    ],
)
def test_what_is_wrong_is_one_sentence(shell: Shell, command: str, says: str) -> None:
    shell.log_in()
    said = shell.run(command, status=1)
    assert says in said.splitlines()[-1]


def test_a_studio_that_is_away_is_said_with_what_to_check(shell: Shell) -> None:
    shell.environment |= {"EDT_STUDIO": "http://127.0.0.1:9", "EDT_TOKEN": "edt_x"}
    assert "cannot be reached" in shell.run("edt ls", status=1)


def test_the_program_of_the_python_page_runs(shell: Shell) -> None:
    shell.log_in()
    shutil.copytree(REPOSITORY / "examples" / "digits", shell.folder / "digits")
    program = "\n".join(blocks("python-client.md", "python"))
    (shell.folder.parent / "program.py").write_text(program)
    shell.run(f"{sys.executable} ../program.py")
    assert "hello" not in (shell.folder / "driver.log").read_text()


def test_the_commands_and_the_program_of_the_models_page_run(shell: Shell) -> None:
    shell.log_in()
    run = str(shell.said("edt run . --detach --json -- --epochs 1")["run"])
    shell.run(f"edt logs -f {run}")
    for command in "".join(blocks("models.md", "sh")).splitlines():
        shell.run(re.sub(r"(?<= )7(?= |$)", run, command))
    names = {"model_epoch_final.pth", "model_epoch_final.safetensors"}
    assert {path.name for path in (shell.folder / "first").iterdir()} == names
    newest = shell.said("edt models digits --json")[0]["number"]
    assert {path.name for path in (shell.folder / f"digits-{newest}").iterdir()} == names
    program = "\n".join(blocks("models.md", "python")).replace("get_run(7)", f"get_run({run})")
    (shell.folder.parent / "program.py").write_text(program)
    assert f"digits {newest + 1} " in shell.run(f"{sys.executable} ../program.py")
    assert {path.name for path in (shell.folder / "champion").iterdir()} == names


def test_the_examples_of_the_api_page_run(shell: Shell) -> None:
    shell.log_in()
    run = shell.said("edt run . --detach --json -- --epochs 1")
    project = shell.said(f"edt show {run['run']} --json")["project"]
    shell.run(f"edt logs -f {run['run']}")
    shell.environment |= {"EDT_STUDIO": shell.studio.url, "EDT_TOKEN": shell.token(), "PASSWORD": shell.studio.account("alice")}
    answers = []
    for block in blocks("api.md", "sh"):
        typed = block.replace("runs/7", f"runs/{run['run']}").replace("projects/1/", f"projects/{project}/")
        answers.append(shell.run(typed))
    made, me, listed, refused, nightly, found, points, media, foreseen, definition, elsewhere, moved, stream = answers
    assert json.loads(made)["token"].startswith("edt_")
    assert json.loads(me)["username"] == "alice"
    assert "items" in json.loads(listed)
    assert json.loads(refused)["errors"] == {"name": ["Give a name."]}
    assert json.loads(nightly)["name"] == "Nightly"
    assert {each["values"]["state"] for each in json.loads(found)["items"]} == {"completed"}
    assert points.startswith("group,name,step")
    assert json.loads(media) == {"items": [], "next": None}
    assert json.loads(foreseen).keys() == {"sentences", "differences"}
    assert json.loads(definition)["newest"]["number"] == 1
    assert (json.loads(elsewhere)["state"], json.loads(elsewhere)["metrics"]) == ("completed", {"train loss": 0.5})
    address = f"/projects/imports/{json.loads(moved)['id']}"
    wait_until(
        lambda: shell.said(f"edt api {address}")["state"] == "done",
        lambda: f"it is imported: {shell.run(f'edt api {address}')}",
        every_s=0.3,
    )
    assert "event: subscribed" in stream
    (program,) = blocks("api.md", "python")
    (shell.folder.parent / "arrow.py").write_text(program.replace("runs/7", f"runs/{run['run']}"))
    assert "value" in shell.run(f"{sys.executable} ../arrow.py")


def test_the_call_of_the_triggers_page_runs_an_experiment(shell: Shell) -> None:
    shell.log_in()
    run = shell.said("edt run . --detach --json -- --epochs 1")
    facts = shell.said(f"edt show {run['run']} --json")
    body = json.dumps({"event": "call", "experiment": facts["experiment"]})
    made = shell.said(f"edt api /projects/{facts['project']}/triggers --method POST --body '{body}'")
    shell.environment |= {"SECRET": made["secret"], "ADDRESS": made["address"]}
    (call,) = blocks("triggers.md", "sh")
    first, again = json.loads(shell.run(call)), json.loads(shell.run(call))
    assert first["delivery"] == again["delivery"]

    def outcome() -> str:
        return str(shell.said(f"edt api /triggers/{made['id']}/deliveries")["items"][0]["outcome"])

    wait_until(lambda: outcome().endswith(" is run."), lambda: f"the delivery is acted on: {outcome()}", every_s=0.3)
    (newest,) = shell.said("edt ls -n 1 --json")
    assert newest["id"] > run["run"]
    assert newest["command"] == facts["command"]


def test_the_notebooks_of_the_examples_run(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    shell.log_in()
    monkeypatch.setenv("EDT_STUDIO", shell.studio.url)
    monkeypatch.setenv("EDT_TOKEN", shell.token())
    copied = shutil.copytree(REPOSITORY / "examples", shell.folder.parent / "examples")
    for path in sorted((copied / "notebooks").glob("*.ipynb")):
        notebook = nbformat.read(path, as_version=4)
        NotebookClient(notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(path.parent)}}).execute()
        drawn = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
        assert any("image/svg+xml" in str(output.get("data", {}).get("text/html", "")) for output in drawn), "curves in a cell"
