"""Notebooks that train in a studio, with everything real: Jupyter executes them, the studio's processes train, the weights come back."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from playwright.sync_api import Page

from edt_client.credentials import Studio as Named
from edt_client.studio import Client
from tests.e2e.studio import Studio, wait_until
from tests.notebooks.execution import Notebook, html, picture, text
from tests.notebooks.sources import PREPARE, TRAIN
from training_runtime.fabric.notebook import packing

pytestmark = [pytest.mark.e2e, pytest.mark.shared_studio, pytest.mark.timeout(600)]
ROOT = Path(__file__).resolve().parents[2]


def newest(studio: Studio) -> int:
    """The run that was submitted last; 0: none was."""
    return int(studio.rows("SELECT COALESCE(MAX(id), 0) FROM experiments_trainingrun")[0][0])


@pytest.fixture
def token(studio: Studio) -> str:
    return log_on(studio)


@pytest.fixture
def notebook(studio: Studio, token: str, tmp_path: Path) -> Iterator[Notebook]:
    opened = Notebook(tmp_path, EDT_STUDIO=studio.url, EDT_TOKEN=token)
    try:
        yield opened
    finally:
        opened.close()


def test_train_in_a_notebook_submits_to_the_studio_and_the_model_gets_the_weights(
    studio: Studio, notebook: Notebook, tmp_path: Path
) -> None:
    notebook.run(PREPARE)
    cell = notebook.run(TRAIN)
    assert re.search(r"Completed: epoch 3 of 3, step \d+ of \d+", html(cell)), html(cell)
    assert f'href="{studio.url}/runs/{newest(studio)}/"' in html(cell)
    assert "<polyline" in picture(cell)
    assert ">loss<" in picture(cell)
    assert "train loss" in text(cell)
    assert "▁" in text(cell), "a curve for where there is no HTML"
    found = notebook.run("torch.save(model.state_dict(), 'after.pt'); print(same_object, changed(), model.weight.dtype)")
    assert "True True torch.float64" in text(found)
    mine = torch.load(tmp_path / "after.pt", weights_only=True)
    theirs = torch.load(studio.folder(newest(studio)) / "model" / "train" / "model_epoch_final.pth", weights_only=True)
    assert all(torch.equal(mine[name], theirs[name]) for name in theirs)
    assert mine.keys() == theirs.keys()


LONG = "EPOCHS = 100_000"
HELD = """
class Held:
    def on_epoch_begin(self, epoch):
        while not os.path.exists(os.path.join(os.environ["RESULT_DIR"], "go")):
            threading.Event().wait(0.01)


fabric = FabricModel(model, data, torch.nn.functional.cross_entropy, optimizer, user_callback=[Held()])
"""


def state(studio: Studio, run: int) -> str:
    return str(studio.rows("SELECT state FROM experiments_trainingrun WHERE id = ?", run)[0][0])


def test_the_stop_button_stops_the_run_and_the_model_has_the_weights_so_far(
    studio: Studio, token: str, notebook: Notebook, tmp_path: Path
) -> None:
    notebook.run(PREPARE)
    notebook.run(LONG)
    cell = notebook.run_until(TRAIN, lambda cell: "<polyline" in picture(cell), notebook.interrupt)
    assert "KeyboardInterrupt" in text(cell)
    step = int(re.search(r"Stopped: .*step (\d+) of", html(cell))[1])  # type: ignore[index]
    assert f"The model has the weights of step {step}." in html(cell)
    assert state(studio, newest(studio)) == "stopped"
    notebook.run("torch.save(model.state_dict(), 'after.pt'); assert changed()")
    theirs = torch.load(studio.folder(newest(studio)) / "model" / "train" / "model_stopped.pth", weights_only=True)
    mine = torch.load(tmp_path / "after.pt", weights_only=True)
    assert all(torch.equal(mine[name], theirs[name]) for name in theirs)
    assert "stopped" in text(notebook.run("print(fabric.training.state, len(fabric.training.history['train loss']))"))
    client = Client(Named(studio.url, token))
    cell = notebook.run_until(TRAIN, lambda cell: "<polyline" in picture(cell), lambda: client.stop(f"wmla-{newest(studio)}"))
    assert f"TrainingFailed: Run wmla-{newest(studio)} was stopped:" in text(cell)
    assert "The model has the weights of step" in text(cell)


def test_a_run_outlives_its_kernel_and_another_one_takes_its_weights(studio: Studio, token: str, tmp_path: Path) -> None:
    first, second = (tmp_path / name for name in ("first", "second"))
    first.mkdir()
    second.mkdir()
    notebook = Notebook(first, EDT_STUDIO=studio.url, EDT_TOKEN=token)
    try:
        notebook.run(PREPARE + HELD)
        notebook.run_until(TRAIN, lambda _: studio.held().get(newest(studio)), notebook.kernel.kill)
    finally:
        notebook.close()
    run = newest(studio)
    assert state(studio, run) in ("starting", "running")
    notebook = Notebook(second, EDT_STUDIO=studio.url, EDT_TOKEN=token)
    try:
        notebook.run(PREPARE)
        cell = notebook.run_until(f"fabric.attach('wmla-{run}')", html, lambda: (studio.folder(run) / "go").touch())
        assert "Completed: epoch 3 of 3" in html(cell), text(cell)
        notebook.run("assert changed()")
        assert "Save model:" in text(notebook.run("path = fabric.download('.')"))
        assert (second / f"wmla-{run}.zip").stat().st_size > 1000
    finally:
        notebook.close()


LEAVES_A_MARK = """
import os, pathlib
for folder in {folders!r} + [os.getcwd(), os.environ.get("RESULT_DIR", "/nowhere")]:
    try:
        pathlib.Path(folder, "unpickled").touch()
    except OSError:
        pass
"""


class Hostile:
    """Does what it likes in whoever unpickles it."""

    def __init__(self, *folders: Path) -> None:
        self.code = LEAVES_A_MARK.format(folders=[str(folder) for folder in folders])

    def __reduce__(self) -> tuple[object, ...]:
        return exec, (self.code,)


def test_nobody_but_the_run_itself_reads_what_a_notebook_sends(
    studio: Studio, person: Callable[..., Page], tmp_path_factory: pytest.TempPathFactory
) -> None:
    page, code = person("alice"), tmp_path_factory.mktemp("code")
    alice = Named(studio.url, log_on(studio))
    open_to_all = studio.home / "open"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    about = {"version": packing.VERSION, "python": ".".join(map(str, sys.version_info[:3])), "torch": torch.__version__, "python_path": []}
    (code / packing.SCRIPT).write_text(packing.SOURCE)
    (code / packing.ABOUT).write_text(json.dumps(about))
    torch.save(Hostile(studio.home, open_to_all, ROOT), code / packing.PAYLOAD)
    packing.bundle(code, code / "notebook.zip")
    client = Client(alice)
    job = client.submit(f"--exec-start edtPyTorch --model-main {packing.SCRIPT} --model-dir hostile", code / "notebook.zip")
    wait_until(lambda: client.job(job["id"])["runState"] == "failed", lambda: str(client.job(job["id"])), deadline_s=120)
    run = newest(studio)
    version = studio.rows("SELECT version_id FROM experiments_trainingrun WHERE id = ?", run)[0][0]
    page.goto(f"{studio.url}/runs/{run}/")
    page.goto(f"{studio.url}/runs/{run}/results/")
    page.goto(f"{studio.url}/versions/{version}/code/")
    for name in (packing.PAYLOAD, packing.SCRIPT, packing.ABOUT):
        page.goto(f"{studio.url}/versions/{version}/code/?file={name}")
    client.save(job["id"], code / "result.zip")
    marks = [path for folder in (studio.home, ROOT) for path in folder.rglob("unpickled") if ".venv" not in path.parts]
    assert marks, "the payload has run where it should"
    assert all(path.is_relative_to(studio.folder(run)) for path in marks), marks


def log_on(studio: Studio) -> str:
    return Client(Named(studio.url)).log_on("alice", studio.account("alice"))


def test_the_commands_of_the_guide_log_in_and_out_and_a_token_that_is_over_says_what_to_do(studio: Studio, tmp_path: Path) -> None:
    password, environment = studio.account("alice"), {"HOME": str(tmp_path), "PATH": "/usr/bin"}

    def edt(line: str) -> subprocess.CompletedProcess[str]:
        words = shlex.split(line.replace("https://studio.example.org", studio.url))
        assert words[0] == ".venv/bin/edt"
        command = [sys.executable, "-m", "edt_client", *words[1:]]
        return subprocess.run(command, cwd=ROOT, env=environment, input=f"{password}\n", capture_output=True, text=True, check=False)

    log_in, log_out = printed(".venv/bin/edt")
    done = edt(f"{log_in} --password-stdin")
    assert done.returncode == 0, done.stderr
    assert f"Logged in to {studio.url} as alice until 20" in done.stdout
    kept = tmp_path / ".config" / "edt" / "credentials.json"
    assert oct(kept.stat().st_mode)[-3:] == "600"
    assert password not in kept.read_text() + done.stdout
    notebook = Notebook(tmp_path)
    try:
        notebook.run(PREPARE)
        assert "Completed" in html(notebook.run(TRAIN))
        notebook.run(LONG)
        token = json.loads(kept.read_text())["studios"][studio.url]["token"]
        cell = notebook.run_until(TRAIN, lambda cell: "<polyline" in picture(cell), Client(Named(studio.url, token)).log_off)
        run = newest(studio)
        assert f"UserError: {studio.url} does not accept your token any more: run edt login {studio.url}." in text(cell)
        assert f"The run goes on without this cell: {studio.url}/runs/{run}/. attach('wmla-{run}')" in text(cell)
        assert state(studio, run) == "running"
        cell = notebook.fails("os.environ['EDT_TOKEN'] = 'a.b.c'\nos.environ['EDT_STUDIO'] = '" + studio.url + "'\nfabric.train(1, 10, 2)")
        assert "does not accept your token any more: set EDT_TOKEN to a new one." in text(cell)
        assert newest(studio) == run
    finally:
        notebook.close()
    assert edt(log_out).returncode == 0
    assert not json.loads(kept.read_text())["studios"]


def printed(beginning: str) -> list[str]:
    """The lines of the guide that are to be typed and begin like that."""
    lines = (ROOT / "docs" / "notebooks.md").read_text().splitlines()
    return [line.strip() for line in lines if line.startswith("    ") and line.strip().startswith(beginning)]
