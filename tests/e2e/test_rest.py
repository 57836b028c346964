"""A job of WMLA's from a command line to its model, with everything real underneath: it is submitted, trains on slots, and is fetched."""

from __future__ import annotations

import base64
import io
import json
import os
import subprocess
import sys
import urllib.request
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.studio import Studio, wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.shared_studio, pytest.mark.timeout(600)]
DL = "/platform/rest/deeplearning/v1"
SCRIPT = """
import argparse
import os
import sys

sys.path.insert(0, os.path.join(os.environ["FABRIC_HOME"], "libs", "fabric.zip"))

import torch
import torch.nn.functional as F
from callbacks import LoggerCallback
from elog import ELog
from fabric_model import FabricModel


class Log(LoggerCallback):
    def __init__(self):
        self.out, self.steps = ELog.open(), 0

    def log_train_metrics(self, loss, acc, completed_batch, worker=0):
        self.steps += 1
        self.out.recordTrain("Train", completed_batch, self.steps, float(loss), acc / 100.0, worker)

    def log_test_metrics(self, loss, acc, completed_batch, worker=0):
        self.out.recordTest("Test", float(loss), acc / 100.0, worker)

    def on_train_end(self):
        self.out.close()


def datasets():
    points = torch.arange(240.0).remainder(7).reshape(120, 2)
    whole = torch.utils.data.TensorDataset(points, (points.sum(1) > 6).long())
    return whole, whole


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=1)
    args = parser.parse_args()
    print("the note is", os.environ["NOTE"], "and the data are", os.listdir(os.environ["DATA_DIR"]), flush=True)
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    fabric = FabricModel(model, datasets, F.cross_entropy, optimizer, driver_logger=Log())
    fabric.train(args.epochs, 10, 2)


if __name__ == "__main__":
    main()
"""

# In the shape of WMLA's samples for hyperparameter search: values from config.json, results to val_dict_list.json.
SEARCH_SCRIPT = """
import json
import os

import torch

rate = float(json.loads(open("config.json").read())["learning_rate"])
weight, metrics = torch.tensor(4.0, requires_grad=True), []
for epoch in range(1, 6):
    loss = (weight - 1) ** 2
    (slope,) = torch.autograd.grad(loss, weight)
    weight = (weight - rate * slope).detach().requires_grad_()
    metrics.append({"steps": epoch, "loss": float(loss)})
with open("{}/val_dict_list.json".format(os.environ["RESULT_DIR"]), "w") as f:
    json.dump(metrics, f)
"""

# In the shape of WMLA's samples for TensorFlow 2: tf.keras, images in batches, names for loss and metrics.
KERAS_SCRIPT = """
import os
import sys

sys.path.insert(0, os.path.join(os.environ["FABRIC_HOME"], "libs", "fabric.zip"))

import numpy as np
import tensorflow as tf
from fabric_model import FabricModel
from tensorflow.keras.layers import Conv2D, Dense, Flatten
from tensorflow.keras.preprocessing.image import ImageDataGenerator


class Stripes(tf.keras.Model):
    def __init__(self):
        super().__init__()
        self.conv, self.flat, self.classes = Conv2D(4, 3, activation="relu"), Flatten(), Dense(2, activation="softmax")

    def call(self, images):
        return self.classes(self.flat(self.conv(images)))


def get_dataset():
    lines = np.tile(np.arange(8.0) % 2, (160, 8, 1))
    labels = np.arange(160) % 2
    images = np.where(labels[:, None, None] == 1, lines, lines.transpose(0, 2, 1))[..., tf.newaxis]
    return ImageDataGenerator(rescale=0.5).flow(images, labels, batch_size=20), ImageDataGenerator(rescale=0.5).flow(images, labels)


fabric = FabricModel(Stripes(), get_dataset, loss_function="sparse_categorical_crossentropy", optimizer="adam", metrics=["accuracy"])
fabric.train(3, 10, 2)
"""


class Terminal:
    """Where somebody types dlicmd.py."""

    def __init__(self, studio: Studio, folder: Path) -> None:
        self.studio, self.folder = studio, folder
        (folder / "dlicmd.py").write_bytes(urllib.request.urlopen(f"{studio.url}/ui/tools/dlicmd.py").read())

    def run(self, *words: str) -> str:
        where = ["--rest-host", "localhost", "--rest-port", str(self.studio.port)]
        done = subprocess.run(
            [sys.executable, "-I", "dlicmd.py", words[0], *where, *words[1:]],
            cwd=self.folder,
            env={"HOME": str(self.folder), "PATH": os.environ["PATH"]},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


def notebook(studio: Studio, path: str, password: str) -> Any:
    """A call as a notebook of the first generation makes it."""
    basic = base64.b64encode(f"alice:{password}".encode()).decode()
    request = urllib.request.Request(studio.url + path, headers={"Authorization": f"Basic {basic}", "Accept": "application/json"})
    return urllib.request.urlopen(request, timeout=30)


def test_a_job_from_the_command_line_trains_and_its_log_and_model_are_fetched(studio: Studio, tmp_path: Path) -> None:
    password, terminal = studio.account("alice"), Terminal(studio, tmp_path)
    (studio.home / "data" / "points").mkdir(parents=True, exist_ok=True)
    (studio.home / "data" / "points" / "none.txt").write_text("made in the script")
    (tmp_path / "points-model").mkdir()
    (tmp_path / "points-model" / "main.py").write_text(SCRIPT)
    terminal.run("--logon", "--username", "alice", "--password", password)
    job = ["--cs-datastore-meta", "type=fs,data_path=points", "--numWorker", "2", "--msd-env", "NOTE=hello"]
    printed = terminal.run(
        "--exec-start", "edtPyTorch", *job, "--model-dir", "points-model", "--model-main", "main.py", "--", "--epochs", "3"
    )
    name = json.loads(printed[printed.index("{") :])["execId"]

    def state() -> str:
        found = json.load(notebook(studio, f"{DL}/execs/{name}", password))
        assert found["state"] in ("PENDING_CRD_SCHEDULER", "RUNNING", "FINISHED"), terminal.run("--exec-outlogs", name)
        return str(found["state"])

    wait_until(lambda: state() == "FINISHED", "the job has finished", deadline_s=180)
    assert "the note is hello and the data are ['none.txt']" in terminal.run("--exec-outlogs", name)
    rows = [line.replace(":", ",").split(",") for line in json.load(notebook(studio, f"{DL}/execs/{name}/log", password)).splitlines()]
    train = [row for row in rows if "Train" in row[2]]
    assert [float(row[6]) for row in train] == [float(step) for step in range(1, len(train) + 1)]
    assert {len(row) for row in train} == {13}
    assert rows[0] == train[0], "notebooks tell the columns by the first line"

    saved = tmp_path / terminal.run("--exec-trainresult", name).split()[-1]
    with notebook(studio, f"{DL}/execs/{name}/result", password) as answer:
        content = answer.read()
        assert int(answer.headers["Content-Disposition"].split("size=")[1]) == len(content) == saved.stat().st_size
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        assert "model/train/model_epoch_final.pth" in archive.namelist()
    shown = json.loads(terminal.run("--exec-get", name))
    assert (shown["args"].split()[1], shown["numWorker"], shown["creator"]) == ("edtPyTorch", 2, "alice")


def test_a_search_from_the_command_line_finds_the_best_of_its_trials(studio: Studio, tmp_path: Path) -> None:
    password, terminal = studio.account("alice"), Terminal(studio, tmp_path)
    (tmp_path / "pytorch_hpo").mkdir()
    (tmp_path / "pytorch_hpo" / "main.py").write_text(SEARCH_SCRIPT)
    wanted = {"algorithm": "Random", "maxJobNum": 3, "maxParalleJobNum": 2, "objectiveMetric": "loss", "objective": "minimize"}
    lr = {"name": "learning_rate", "type": "Range", "dataType": "DOUBLE", "minDbVal": 0.001, "maxDbVal": 0.1}
    model = {"args": "--exec-start PyTorch --model-main main.py --model-dir pytorch_hpo"}
    (tmp_path / "search.json").write_text(json.dumps({"modelSpec": model, "algoDef": wanted, "hyperParams": [lr]}))
    terminal.run("--logon", "--username", "alice", "--password", password)
    printed = terminal.run("--hpo-start", "search.json", "--model-dir", "pytorch_hpo")
    name = json.loads(printed.split("with id: ")[1])["uid"]

    def shown() -> dict[str, Any]:
        found: dict[str, Any] = json.load(notebook(studio, f"{DL}/hypersearch/{name}", password))
        assert found["state"] in ("SUBMITTED", "RUNNING", "FINISHED"), found
        return found

    wait_until(lambda: shown()["state"] == "FINISHED", lambda: f"{shown()}\n{studio.tail()}", deadline_s=180)
    trials = {float(each["hyperParams"][0]["fixedVal"]): each["metricVal"] for each in shown()["experiments"]}
    assert len(trials) == 3
    assert float(shown()["best"]["hyperParams"][0]["fixedVal"]) == max(trials), "the largest rate comes nearest in five steps"
    assert shown()["best"]["metricVal"] == min(trials.values())


def test_a_job_for_tensorflow_trains_its_keras_model(studio: Studio, tmp_path: Path) -> None:
    password, terminal = studio.account("alice"), Terminal(studio, tmp_path)
    (tmp_path / "stripes-model").mkdir()
    (tmp_path / "stripes-model" / "main.py").write_text(KERAS_SCRIPT)
    terminal.run("--logon", "--username", "alice", "--password", password)
    words = ("--exec-start", "edtTensorflow", "--numWorker", "2", "--model-dir", "stripes-model", "--model-main", "main.py")
    printed = terminal.run(*words)
    name = json.loads(printed[printed.index("{") :])["execId"]

    def shown() -> dict[str, Any]:
        found: dict[str, Any] = json.load(notebook(studio, f"{DL}/execs/{name}", password))
        assert found["state"] in ("PENDING_CRD_SCHEDULER", "RUNNING", "FINISHED"), terminal.run("--exec-outlogs", name)
        return found

    wait_until(lambda: shown()["state"] == "FINISHED", "the job has finished", deadline_s=180)
    assert (shown()["framework"], shown()["appName"], shown()["elastic"]) == ("edtTensorflow", "ElasticTensorflow1xTrain", True)
    assert "Using " in (log := terminal.run("--exec-outlogs", name))
    assert "accuracy 1" in log, "it has learnt to tell stripes apart"
    with zipfile.ZipFile(tmp_path / terminal.run("--exec-trainresult", name).split()[-1]) as archive:
        assert {"model/train/model_epoch_final.pth", "model/train/model_epoch_final.keras"} <= set(archive.namelist())
