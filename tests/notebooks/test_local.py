"""A notebook without a studio: train() starts a process of its own, the kernel stays alive, and nothing is left of it."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import torch

from tests.e2e.studio import wait_until
from tests.engine.test_laptop import laptop
from tests.notebooks.execution import Notebook, html, picture, text
from tests.notebooks.sources import PREPARE, TRAIN

pytestmark = pytest.mark.timeout(300)
LONG = "EPOCHS = 100_000"


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Notebook]:
    opened = Notebook(tmp_path_factory.mktemp("home"))
    try:
        yield opened
    finally:
        opened.close()


@pytest.fixture
def notebook(opened: Notebook, tmp_path: Path) -> Iterator[Notebook]:
    """In a folder of its own, with all of `PREPARE` done. The kernel is the same: to start one takes longer than most of the tests."""
    opened.run(f"import os\nos.chdir({str(tmp_path)!r})")
    opened.run(PREPARE)
    yield opened
    for child in opened.children():
        child.kill()


def trained(folder: Path) -> dict[str, torch.Tensor]:
    (found,) = folder.glob("edt-results/*/model/train/model_epoch_final.pth")
    return torch.load(found, weights_only=True)


def of(folder: Path) -> list[psutil.Process]:
    """Processes that train for a notebook in the folder, wherever their parents are."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.status() != psutil.STATUS_ZOMBIE and process.environ().get("RESULT_DIR", "").startswith(str(folder)):
                found.append(process)
        except psutil.Error:
            continue
    return found


def test_it_trains_what_a_script_would_train_and_leaves_no_process(notebook: Notebook, tmp_path: Path) -> None:
    cell = notebook.run(TRAIN)
    assert re.search(r"Completed: epoch 3 of 3, step \d+ of \d+", html(cell)), text(cell)
    assert "<polyline" in picture(cell)
    assert notebook.children() == []
    notebook.run("torch.save(model.state_dict(), 'after.pt'); assert same_object and changed()")
    mine = torch.load(tmp_path / "after.pt", weights_only=True)
    assert all(torch.equal(mine[name], value) for name, value in trained(tmp_path).items())
    script = tmp_path / "script"
    script.mkdir()
    process = laptop(script, code=PREPARE + TRAIN)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0, output
    assert all(torch.equal(mine[name], value) for name, value in trained(script).items()), "hooks and callbacks have travelled"


def test_meanwhile_the_kernel_is_alive_and_the_process_is_none_of_its_forks(notebook: Notebook) -> None:
    seen: list[list[str]] = []

    def look() -> object:
        seen.extend(child.cmdline() for child in notebook.kernel.children())
        return notebook.interrupt()

    notebook.run(LONG)
    notebook.run_until(TRAIN, lambda cell: "<polyline" in picture(cell) and notebook.is_beating(), look)
    (command,) = seen
    assert command[-1].endswith("edt_notebook.py")
    assert command[0] == sys.executable


def test_the_stop_button_stops_it_at_a_step_and_the_model_has_the_weights_so_far(notebook: Notebook, tmp_path: Path) -> None:
    notebook.run(LONG)
    cell = notebook.run_until(TRAIN, lambda cell: "<polyline" in picture(cell), notebook.interrupt)
    assert "KeyboardInterrupt" in text(cell)
    assert re.search(r"Stopped: .*step \d+ of \d+.*The model has the weights of step \d+\.", html(cell)), html(cell)
    assert of(tmp_path) == []
    notebook.run("torch.save(model.state_dict(), 'after.pt'); assert changed()")
    (stopped,) = tmp_path.glob("edt-results/*/model/train/model_stopped.pth")
    theirs, mine = (torch.load(path, weights_only=True) for path in (stopped, tmp_path / "after.pt"))
    assert all(torch.equal(mine[name], theirs[name]) for name in theirs)
    assert "Completed" in html(notebook.run("EPOCHS = 1\n" + TRAIN)), "and the next one trains"


def test_a_second_stop_ends_it_at_once(notebook: Notebook, tmp_path: Path) -> None:
    notebook.run("EPOCHS = 1\nhang = lambda out, y: threading.Event().wait() and out.sum()\nfabric.loss_function = hang")

    async def twice() -> None:
        await notebook.interrupt()
        await notebook.until(lambda cell: "Interrupt again to end it at once" in html(cell))
        await notebook.interrupt()

    cell = notebook.run_until(TRAIN, lambda _: len(of(tmp_path)) > 2, twice)
    assert "KeyboardInterrupt" in text(cell)
    assert "Ended at once: the model is as it was before." in html(cell)
    wait_until(lambda: not of(tmp_path), lambda: f"gone are all but {of(tmp_path)}", deadline_s=60)
    notebook.run("assert not changed()")


def test_it_ends_with_its_kernel(tmp_path: Path) -> None:
    notebook = Notebook(tmp_path)
    try:
        notebook.run(PREPARE + LONG)
        notebook.run_until(TRAIN, lambda cell: "<polyline" in picture(cell), notebook.kernel.kill)
    finally:
        notebook.close()
    wait_until(lambda: not of(tmp_path), lambda: f"gone are all but {of(tmp_path)}", deadline_s=60)


def test_an_error_in_what_it_was_given_is_said_in_the_cell(notebook: Notebook, tmp_path: Path) -> None:
    cell = notebook.fails("def data():\n    raise ValueError('no such rows')\n\nfabric.datasets_function = data\nfabric.train(1, 10, 2)")
    assert "TrainingFailed: Training on this machine failed:" in text(cell)
    assert "no such rows" in text(cell)
    assert of(tmp_path) == []
    notebook.run("assert not changed()")


KERAS = """
import keras, numpy
rows = numpy.random.default_rng(0).normal(size=(32, 8)).astype("float32")
pairs = [(row, int(row.sum() > 0)) for row in rows]


class Scaled(keras.layers.Layer):
    def call(self, inputs):
        return 0.5 * inputs


model = keras.Sequential([Scaled(), keras.layers.Dense(2)])
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
fabric = FabricModel(model, lambda: (pairs, pairs), loss, "adam", metrics=["accuracy"])
training = fabric.train(2, 8, 2)
final = keras.saving.load_model(f"{training.folder}/model/train/model_epoch_final.keras", custom_objects={"Scaled": Scaled})
assert all((one == other).all() for one, other in zip(final.get_weights(), model.get_weights(), strict=True))
"""


def test_a_keras_model_with_a_layer_of_the_notebook_has_the_weights_too(notebook: Notebook) -> None:
    assert re.search(r"Completed: epoch 2 of 2, step 4 of 4", html(notebook.run(KERAS)))


def test_what_cannot_travel_is_named_with_the_way_to_it(notebook: Notebook) -> None:
    notebook.run("make = lambda: (lock, torch.zeros(4, 8, dtype=torch.float64))[1]\nlock = threading.Lock()")
    cell = notebook.fails(TRAIN)
    assert "UserError: train: datasets_function > make > lock cannot be sent to the process that trains: it is a _thread.lock" in text(cell)
    assert "Open or make it inside the function that uses it" in text(cell)


def test_modules_beside_the_notebook_are_found_and_each_training_has_its_own_folder(notebook: Notebook, tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_text("import torch\n\n\ndef rows():\n    return torch.ones(40, 8, dtype=torch.float64)\n")
    notebook.run("import helper\nmake = helper.rows\nEPOCHS = 1")
    notebook.run(TRAIN)
    notebook.run(TRAIN)
    assert len(list(tmp_path.glob("edt-results/*/model/train/model_epoch_final.pth"))) == 2
    assert "Save model:" in text(notebook.run("assert os.path.getsize(fabric.download('.')) > 1000"))


FIRST_RELEASE = """
class Logger:
    def log_train_metrics(self, loss, acc, completed_batch, worker=0):
        pass

    def log_test_metrics(self, loss, acc, completed_batch, worker=0):
        print("accuracy in percent:", acc > 1)

    def on_train_end(self):
        print("the logger is done")


fabric = FabricModel(model, data, torch.nn.functional.cross_entropy, optimizer, Logger(), None, [Decay(0.5)])
nodes = {"nodes": {"num_nodes": 2, "gpu": {"num_gpu": 1}}}
fabric.train(epochs=2, batch_size=10, hardware_spec=nodes, driver_memory="1G", validation_freq=2, checkpoint_freq=0)
"""


def test_the_words_of_every_release_are_understood_and_what_callbacks_print_is_in_the_cell(notebook: Notebook, tmp_path: Path) -> None:
    cell = notebook.run(FIRST_RELEASE)
    assert "Completed: epoch 2 of 2, step 40 of 40" in html(cell), text(cell)
    assert "accuracy in percent: True" in text(cell)
    assert "the logger is done" in text(cell)
    assert not [*tmp_path.glob("edt-results/*/model/train/model_epoch_1.pth")], "checkpoint_freq=0"


def test_a_plain_script_imports_neither_ipython_nor_cloudpickle(tmp_path: Path) -> None:
    code = PREPARE + "EPOCHS = 1\n" + TRAIN
    code += "import sys\nassert training is None\nassert not {'IPython', 'cloudpickle', 'edt_client'} & set(sys.modules)\nprint('clean')"
    process = laptop(tmp_path, code=code)
    output, _ = process.communicate(timeout=120)
    assert "clean" in output, output
    assert isinstance(process, subprocess.Popen)
