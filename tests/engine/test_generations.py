"""Scripts in the form of each release of the original: what they import, how they build FabricModel, call train() and log. Written from the
interface's description alone."""

from __future__ import annotations

import json
import re
import zipfile

import pytest

from tests.engine.test_laptop import laptop
from training_runtime.errors import UserError
from training_runtime.fabric.arguments import engines_asked

BODY = """
import torch, torch.nn.functional as F
from torch import nn
def get_datasets():
    g = torch.Generator().manual_seed(3)
    x = torch.randn(96, 4, generator=g)
    y = (x[:, 0] > 0).long()
    return torch.utils.data.TensorDataset(x[:64], y[:64]), torch.utils.data.TensorDataset(x[64:], y[64:])
model = nn.Sequential(nn.Linear(4, 2), nn.LogSoftmax(1))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
"""
IMPORTS = """
import os, sys
path = os.path.join(os.getenv("FABRIC_HOME"), "libs", "fabric.zip")
sys.path.insert(0, path)
from fabric_model import FabricModel
from callbacks import LoggerCallback, Callback
"""
FIRST = (
    IMPORTS
    + BODY
    + """
import argparse
from edtcallback import EDTLoggerCallback
parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=5)
parser.add_argument("--batchsize", type=int, default=64)
parser.add_argument("--numWorker", type=int, default=16)
args = parser.parse_args()
class Worker(LoggerCallback):
    def log_train_metrics(self, loss, acc, completed_batch, worker=0):
        open(os.environ["LOG_DIR"] + "/mine", "a").write("line")
    def log_test_metrics(self, loss, acc, completed_batch, worker=0):
        pass
class Schedule(Callback):
    def on_epoch_begin(self, epoch):
        self.params["optimizer"].param_groups[0]["lr"] /= 2
edt_m = FabricModel(model, get_datasets, F.nll_loss, optimizer, CONSTRUCTED)
edt_m.train(args.epochs, args.batchsize, args.numWorker)
"""
)
OWN_FILES = {
    "edtcallback.py": """
import json, os
from callbacks import LoggerCallback
from emetrics import EMetrics
from elog import ELog
class EDTLoggerCallback(LoggerCallback):
    def __init__(self):
        self.steps = []
    def log_train_metrics(self, loss, acc, completed_batch, worker=0):
        acc = acc / 100.0
        self.steps.append({"steps": completed_batch, "loss": float(loss)})
        with ELog.open() as log:
            log.mine(float(loss))
        with EMetrics.open() as metrics:
            metrics.record(EMetrics.TRAIN_GROUP, completed_batch, {"loss": loss, "accuracy": acc})
    def log_test_metrics(self, loss, acc, completed_batch, worker=0):
        pass
    def on_train_end(self):
        with open(os.path.join(os.environ["RESULT_DIR"], "val_dict_list.json"), "w") as file:
            json.dump(self.steps, file)
""",
    "elog.py": """
import os
class ELog:
    def __init__(self, file):
        self.file = file
    @staticmethod
    def open():
        return ELog(open(os.path.join(os.environ["LOG_DIR"], "stdout"), "a"))
    def __enter__(self):
        return self
    def __exit__(self, *_):
        self.file.close()
    def mine(self, loss):
        self.file.write(f"my own line {loss:.3f}\\n")
""",
}
BY_NAME = "driver_logger=EDTLoggerCallback(), worker_logger=Worker(), user_callback=[Schedule()], enable_onnx=False"
BY_PLACE = "EDTLoggerCallback(), Worker(), [Schedule()], False"


@pytest.fixture
def fabric_home(tmp_path, monkeypatch):
    """As the set-up leaves it, also where this environment is from before."""
    from training_runtime.host.runs import fabric

    (tmp_path / "venv").mkdir()
    return {"FABRIC_HOME": str(fabric.build(tmp_path / "venv"))}


@pytest.mark.parametrize("constructed", [BY_NAME, BY_PLACE])
def test_the_first_release_with_its_own_helper_files_which_win_over_ours(start, tmp_path, constructed):
    code = tmp_path / "code"
    code.mkdir()
    for name, text in {**OWN_FILES, "main.py": FIRST.replace("CONSTRUCTED", constructed)}.items():
        (code / name).write_text(text)
    from training_runtime.host.runs import fabric

    run = start(code, "--epochs", "2", "--batchsize", "2", env={"FABRIC_HOME": str(fabric.build(tmp_path))})
    run.members(0, 1)
    assert run.wait() == 0, run.tail()
    assert (run.folder / "stdout").read_text().startswith("my own line")
    records = [json.loads(line) for line in (run.folder / "evaluation-metrics.txt").read_text().splitlines()]
    assert len(records) == len(run.events("train"))
    assert all(0 <= float(record["values"]["accuracy"]["value"]) <= 1 for record in records)
    assert len(json.loads((run.result_dir / "val_dict_list.json").read_text())) == len(records)
    assert (run.result_dir / "log/worker-0/mine").exists()
    assert run.events("started")[0].engines == 16


def test_a_script_without_helper_files_finds_ours(start):
    text = f"{BODY}\nfrom fabric_model import FabricModel\nfrom edtcallback import EDTLoggerCallback\n"
    text += "FabricModel(model, get_datasets, F.nll_loss, optimizer, driver_logger=EDTLoggerCallback()).train(2, 8, 2)"
    run = start(text)
    run.members(0)
    assert run.wait() == 0, run.tail()
    assert [each["steps"] for each in json.loads((run.result_dir / "val_dict_list.json").read_text())] == [1, 2]
    columns = (run.folder / "stdout").read_text().splitlines()[0].replace(":", ",").split(",")
    assert [float(columns[i]) for i in (6, 8)] == [1, 2]
    assert "Test,\tTimestamp" in (run.folder / "stdout").read_text()


LAST = """
from pyedt.fabric_model import FabricModel
edt_m = FabricModel(model, get_datasets, F.nll_loss, optimizer, metrics=None, worker_logger_callback=None, driver_logger_callback=None,
    save_to_onnx=False, fn_batch_collate=None)
edt_m.train(epoch_number=1, batch_size=8, engines_number=7, num_dataloader_threads=0, validation_freq=1, checkpoint_freq=1,
    worker_memory="16G", driver_memory="1G", hardware_spec={"nodes": {"num_nodes": 2, "cpu": {"units": "1"}, "gpu": {"num_gpu": 2}}})
print("is at", edt_m.download(OUT))
"""


def test_the_last_release_with_its_hardware_and_memory_and_a_download(start, tmp_path):
    run = start(BODY + LAST.replace("OUT", repr(str(tmp_path / "out"))), env={"DLI_EXECID": "41"})
    run.members(0, 1)
    assert run.wait() == 0, run.tail()
    assert run.events("started")[0].engines == 4, "hardware_spec counts before engines_number"
    said = run.log.read_text()
    assert f"Save model:  {tmp_path}/out/41.zip\nis at {tmp_path}/out/41.zip" in said
    assert "worker_memory reserves no memory here" in said
    assert "does not know" not in said
    assert said.index("Using pytorch backend.") < said.index("--------START TRAINING--------")
    assert re.search(r"^--------END TRAINING: completed epoch 1 in time [\d.]+ --------$", said, re.MULTILINE)
    done = [(run.result_dir / f"log/worker-{slot}/console.log").read_text() for slot in (0, 1)]
    assert sum(int(re.search(r"END TRAINING: completed (\d+) iterations", each)[1]) for each in done) == 8, "batches of all workers"
    with zipfile.ZipFile(tmp_path / "out/41.zip") as archive:
        assert archive.testzip() is None
        assert "model/train/model_epoch_final.pth" in archive.namelist()


def test_a_download_without_a_training_says_what_to_do(start):
    text = BODY + "from fabric_model import FabricModel\nFabricModel(model, get_datasets, F.nll_loss, optimizer).download()"
    run = start(text)
    assert run.wait() == 1
    assert run.events("error")[0].message == "UserError: download: nothing was trained yet, call train() first"


def test_engines_by_every_name_that_there_was():
    def asked(engines=None, **others):
        found = engines_asked(engines, others)
        assert not others
        return found

    assert asked(hardware_spec={"nodes": {"num_nodes": "3"}}) == 3
    assert asked(5, hardware_spec={"nodes": {"num_drivers": 1}}) == 5
    assert asked(5, worker_num=2) == 5
    assert asked(worker_num=2, worker_device_num=4) == 8
    assert asked() is None
    for wrong in ({"nodes": {"num_nodes": "many"}}, {"nodes": {"num_nodes": 0}}, {"nodes": [1]}, {}, "four"):
        with pytest.raises(UserError, match="hardware_spec"):
            asked(hardware_spec=wrong)


FORM = """
import os
import pth_parameter_mgr as form
from fabric_model import FabricModel
from torch import nn
import torch
x = torch.randn(40, 4)
for name in ("train", "test"):
    torch.save((x, (x[:, 0] > 0).long()), os.path.join(os.environ["DATA_DIR"], name + ".pt"))
model = nn.Linear(4, 2)
optimizer = form.getOptimizer(model)
print(type(optimizer).__name__, form.getLearningRate(), form.getTrainBatchSize(), len(form.getTrainData()))
def data():
    return form.getTrainData(False), form.getTestData(False)
FabricModel(model, data, nn.functional.cross_entropy, optimizer).train(form.getEpoch(), form.getTrainBatchSize(), 2)
"""


def test_parameters_of_a_form_come_from_the_command_line_and_data_from_the_data_folder(start):
    run = start(FORM, "--epochs", "3", "--learning-rate=0.25", "--batch-size", "5", "--optimizer", "adam")
    run.members(0)
    assert run.wait() == 0, run.tail()
    assert "Adam 0.25 5 8" in run.log.read_text()
    assert run.events("started")[0].epochs == 3


def test_on_a_laptop_variables_are_there_and_results_are_where_they_say(tmp_path, fabric_home):
    code = FIRST.replace("CONSTRUCTED", BY_NAME) + "print('data', os.environ['DATA_DIR'], edt_m.download('.'))\n"
    for name, text in OWN_FILES.items():
        (tmp_path / name).write_text(text)
    process = laptop(tmp_path, "--epochs", "1", "--batchsize", "2", code=code, **fabric_home)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0, output
    (folder,) = (tmp_path / "edt-results").iterdir()
    assert f"data {tmp_path}/data {tmp_path}/{folder.name}.zip" in output
    assert json.loads((folder / "val_dict_list.json").read_text())
    assert "my own line" in (folder / "log/driver/stdout").read_text()
    assert (folder / "log/worker-0/mine").exists()


def test_on_a_laptop_importing_alone_leaves_nothing(tmp_path):
    process = laptop(tmp_path, code="import fabric_model, os; print(os.environ['RESULT_DIR'], os.environ['LOG_DIR'])")
    output, _ = process.communicate(timeout=60)
    assert f"{tmp_path}/edt-results/" in output
    assert not (tmp_path / "edt-results").exists()


BATCHES = """
import random, sys, torch
from torch import nn
from fabric_model import FabricModel
class Batches:  # as Keras' Sequence: an index is a batch; shuffled at the first use, as its image iterators are
    def __init__(self, count, size):
        g = torch.Generator().manual_seed(count)
        self.x, self.size, self.order = torch.randn(count, 4, generator=g), size, None
        self.y = (self.x[:, 0] > 0).long()
    def __len__(self):
        return -(-len(self.x) // self.size)
    def __getitem__(self, number):
        if self.order is None:
            self.order = torch.randperm(len(self.x))
        rows = self.order[number * self.size : (number + 1) * self.size]
        noise = 0.01 * torch.randn(1) if self.size == 8 else 0
        return self.x[rows] + noise, self.y[rows]
    def on_epoch_end(self):
        self.order = None
def data():
    return Batches(75, 8), Batches(30, 7)
model = nn.Linear(4, 2)
FabricModel(model, data, nn.functional.cross_entropy, torch.optim.SGD(model.parameters(), 0.1)).train(3, 4, 4, num_dataloader_threads=2)
"""


def test_data_whose_index_is_a_batch_is_shown_sample_by_sample_and_exactly(start):
    one = start(BATCHES)
    one.members(0)
    run = start(BATCHES)
    run.members(0, 1, 2)
    assert (one.wait(), run.wait()) == (0, 0), one.tail() + run.tail()
    assert (run.events("started")[0].samples, run.events("test")[0].samples) == (75, 30)
    assert run.weights() == one.weights()


ITERATOR = """
import numpy
class Iterator:  # as Keras' iterator over images: it can give any samples, and seeds from its own count
    def __init__(self):
        self.n, self.batch_size, self.seed, self.total_batches_seen, self.index_array = 20, 8, 5, 0, None
    def __len__(self):
        return 3
    def __getitem__(self, number):
        numpy.random.seed(self.seed + self.total_batches_seen)
        self.total_batches_seen += 1
        if self.index_array is None:
            self.index_array = numpy.random.permutation(self.n)
        return self._get_batches_of_transformed_samples(self.index_array[8 * number : 8 * number + 8])
    def _get_batches_of_transformed_samples(self, rows):
        self.asked = list(rows)
        return numpy.asarray(rows, dtype="float32")[:, None], numpy.asarray(rows)
    def on_epoch_end(self):
        pass
"""


def test_an_iterator_that_can_give_single_samples_is_asked_for_just_those():
    from training_runtime.elastic.data.batched import by_sample

    space: dict = {}
    exec(ITERATOR, space)
    iterator = space["Iterator"]()
    data = by_sample(iterator, "train")
    assert len(data) == 20
    assert sorted(int(data[i][1]) for i in range(20)) == list(range(20))
    found = data.__getitems__([19, 3])
    assert [int(y) for _, y in found] == [int(iterator.index_array[i]) for i in (19, 3)]
    assert len(iterator.asked) == 2
