"""Keras models: the same engine, the same laws. On Keras' torch backend, without TensorFlow."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from importlib.machinery import PathFinder
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.engine.harness import ROOT, Run, Warm, until_gone
from training_runtime.elastic.keras import finder
from training_runtime.elastic.state import checkpoint

# All that makes exactness hard: batch-norm, dropout with and without a seed, a regularizer, noise with a seed, clipping, a metric
# that is no mean, a layer with a state of its own, a callback that sets the learning rate and freezes, a last step that is not full.
DIGITS = """
import os, sys, time
import keras, numpy as np
from keras import layers, ops
from sklearn.datasets import load_digits
from fabric_model import FabricModel

folder = os.environ["RESULT_DIR"]
digits = load_digits()
x, y = (digits.images / 16).astype("float32")[..., None], digits.target

class EDTTensorFlowDataset:
    def __init__(self, first, last):
        self.first, self.last = first, last
    def __len__(self):
        return self.last - self.first
    def __getitem__(self, index):
        image = x[self.first + index]
        return image + 0.05 * np.random.randn(*image.shape).astype("float32"), y[self.first + index]

class Counting(layers.Layer):
    def build(self, shape):
        self.seen = self.add_weight(shape=(), initializer="zeros", trainable=False, name="seen")
    def call(self, inputs, training=False):
        if training:
            self.seen.assign(self.seen + ops.mean(inputs))
            inputs = inputs + 0.01 * keras.random.normal(ops.shape(inputs))
        return inputs + 0.01 * ops.tanh(self.seen)

class Plan(keras.callbacks.Callback):
    def __init__(self, layer):
        super().__init__()
        self.layer, self.best, self.average = layer, None, keras.models.clone_model(model)
    def on_epoch_end(self, epoch, logs=None):
        self.best = self.model.get_weights()
        for old, new in zip(self.average.weights, self.best):
            old.assign(0.5 * (old + new))
        if epoch == 3:
            self.model.layers[-1].bias.assign(self.average.layers[-1].bias)
    def on_epoch_begin(self, epoch, logs=None):
        while os.path.exists(f"{folder}/stay-{epoch}"):
            time.sleep(0.005)
        self.model.optimizer.learning_rate = 1e-2 / (1 + epoch)
        self.layer.rate = 0.1 * (1 + epoch)
        self.model.get_layer("first").trainable = epoch != 2

def share_of_sixes(y_true, y_pred):
    return ops.cast(ops.equal(ops.argmax(y_pred, -1), 6), "float32")

model = keras.Sequential([
    keras.Input((8, 8, 1)),
    layers.GaussianNoise(0.1, seed=3),
    layers.Conv2D(8, 3, activation="relu", name="first"),
    layers.BatchNormalization(),
    Counting(),
    layers.Dropout(0.2, name="drop"),
    layers.Flatten(),
    layers.Dense(10, activation="softmax", kernel_regularizer="l2"),
])
optimizer = keras.optimizers.Adam(1e-2, global_clipnorm=1.0)
metrics = ["accuracy", share_of_sixes, keras.metrics.SparseTopKCategoricalAccuracy(3, name="top3")]
metrics.append(keras.metrics.MeanIoU(10, sparse_y_pred=False))
FabricModel(
    model, lambda: (EDTTensorFlowDataset(0, 107), EDTTensorFlowDataset(1500, 1561)), "sparse_categorical_crossentropy", optimizer,
    metrics=metrics, user_callback=Plan(model.get_layer("drop")), save_to_onnx="onnx" in sys.argv,
    keras_custom_objects={"share_of_sixes": share_of_sixes},
).train(4, 4, 4)
print("evaluated", model.evaluate(x[1500:1561], y[1500:1561], verbose=0)[0])
"""
STEPS = 4 * 7


@pytest.fixture(scope="module")
def digits(warm, tmp_path_factory):
    """The training with one worker."""
    one = Run(warm, tmp_path_factory.mktemp("keras"), DIGITS, "onnx")
    one.members(0)
    assert one.wait() == 0, one.tail()
    yield one
    one.close()


def same(run: Run, one: Run) -> None:
    assert run.train_lines() == one.train_lines()
    assert run.test_lines() == one.test_lines()
    assert run.weights() == one.weights()


def test_slots_that_come_and_go_deaths_and_a_suspension_change_no_bit(start, digits, tmp_path):
    run = start(DIGITS)
    stays = [run.result_dir / f"stay-{epoch}" for epoch in (1, 2, 3)]
    for stay in stays:
        stay.touch()
    run.members(0)
    run.until_step(7)
    run.members(0, 1)
    stays[0].unlink()
    run.until_step(14)
    run.kill(0)
    run.until(lambda: len(run.workers) == 2 and run.events("generation")[-1].generation > 2, what="another one in its place")
    run.members()
    stays[1].unlink()
    run.until(lambda: run.events("suspended"), what="suspended")
    left = checkpoint.inherited_path(tmp_path / "1" / "result")  # of a run that goes on where this one is now
    left.parent.mkdir(parents=True)
    left.write_bytes(checkpoint.engine_path(run.result_dir).read_bytes())
    run.members(1, 2, 3, 0)
    run.until_step(21)
    os.kill(run.pid, signal.SIGKILL)
    assert run.wait() == -signal.SIGKILL
    until_gone(run.pid)
    stays[2].unlink()
    run.again()
    run.members(2)
    assert run.wait() == 0, run.tail()
    same(run, digits)
    assert {e.workers for e in run.events("train")} >= {1, 2, 4}
    other = start(DIGITS)
    other.members(0, 3)
    assert other.wait() == 0, other.tail()
    assert other.weights() == digits.weights()
    assert other.train_lines() == digits.train_lines()[-len(other.train_lines()) :]


def test_what_is_reported_and_what_it_leaves(digits):
    (exactness,) = digits.events("exactness")[-1:]
    assert exactness.reasons == ()
    assert exactness.checked
    assert "Using keras backend." in digits.log.read_text()
    assert digits.events("warning") == []
    train = digits.events("train")[-1]
    assert list(train.metrics) == ["loss", "accuracy", "share_of_sixes", "top3", "mean_io_u"]
    assert train.step == STEPS
    losses = [event.metrics["loss"] for event in digits.events("train")]
    assert sum(losses[-7:]) < sum(losses[:7]), f"it learns: {losses}"
    left = {path.name for path in (digits.result_dir / "model/train").iterdir()}
    assert {f"model_epoch_final{ending}" for ending in (".pth", "_optimizer_state.pth", ".keras")} <= left
    kept = torch.load(digits.result_dir / "model/train/model_epoch_final.pth", weights_only=True)
    assert any(name.endswith("/moving_mean") for name in kept)


def test_the_models_file_is_one_that_keras_loads(digits):
    code = """
import os, sys, keras, torch
from keras import layers, ops
class Counting(layers.Layer):
    def build(self, shape):
        self.seen = self.add_weight(shape=(), initializer="zeros", trainable=False, name="seen")
    def call(self, inputs, training=False):
        return inputs + 0.01 * ops.tanh(self.seen)
own = {"Counting": Counting, "share_of_sixes": lambda y_true, y_pred: y_pred}
model = keras.models.load_model(sys.argv[1] + "/model_epoch_final.keras", custom_objects=own)
kept = {name.removeprefix("sequential/"): value for name, value in torch.load(sys.argv[1] + "/model_epoch_final.pth").items()}
assert all(torch.equal(v.value, kept[v.path.removeprefix("sequential/")]) for v in model.trainable_variables)
print(int(model.optimizer.iterations), len(model.trainable_variables), float(model.optimizer.learning_rate))
"""
    found = python(code, str(digits.result_dir / "model/train"), KERAS_BACKEND="torch")
    assert found.split()[:2] == [str(STEPS), "6"]
    assert float(found.split()[2]) == pytest.approx(1e-2 / 4)


# In the shape of WMLA's samples for TensorFlow 2.
WMLA = """
import os, sys
sys.path.insert(0, os.path.join(os.environ["FABRIC_HOME"], "libs", "fabric.zip"))
import tensorflow as tf
from tensorflow.keras import Model
from tensorflow.keras.layers import Conv2D, Dense, Dropout, Flatten
from tensorflow.keras.preprocessing.image import ImageDataGenerator
from sklearn.datasets import load_digits
from fabric_model import FabricModel
from callbacks import LoggerCallback

class Net(Model):
    def __init__(self):
        super().__init__()
        self.conv, self.flat, self.drop = Conv2D(6, 3, activation="relu"), Flatten(), Dropout(0.2)
        self.classes = Dense(10, activation="softmax")
    def call(self, images):
        return self.classes(self.drop(self.flat(self.conv(images))))

class Log(LoggerCallback):
    def log_test_metrics(self, metrics, completed_batch, epoch):
        print("tested", epoch, sorted(metrics))

def get_dataset():
    digits = load_digits()
    images, labels = digits.images[..., tf.newaxis] / 16, tf.keras.utils.to_categorical(digits.target)
    train = ImageDataGenerator(width_shift_range=0.1, height_shift_range=0.1).flow(images[:250], labels[:250], batch_size=16, seed=1)
    return train, ImageDataGenerator().flow(images[1500:1561], labels[1500:1561], batch_size=16, shuffle=False)

assert not tf.config.list_physical_devices("GPU")
fabric = FabricModel(
    Net(), get_dataset, loss_function=tf.losses.CategoricalCrossentropy(), optimizer=tf.keras.optimizers.SGD(0.1, momentum=0.9),
    metrics=["accuracy", tf.keras.metrics.AUC(name="auc")], driver_logger=Log(),
)
fabric.train(2, 8, 4)
"""
NO_TENSORFLOW = pytest.mark.skipif(PathFinder.find_spec("tensorflow") is not None, reason="TensorFlow is installed here, nothing stands in")


@NO_TENSORFLOW
def test_a_script_that_was_written_for_tf_keras_trains_without_tensorflow_to_the_same_bits(start):
    runs = [start(WMLA), start(WMLA, env={"EDT_START_METHOD": "spawn"})]  # there workers run the script themselves
    runs[0].members(0)
    runs[1].members(0, 1)
    for run in runs:
        assert run.wait() == 0, run.tail()
    same(runs[1], runs[0])
    assert list(runs[0].events("test")[-1].metrics) == ["loss", "accuracy", "auc"]
    log = runs[0].log.read_text()
    assert "TensorFlow is not installed where scripts run: `import tensorflow` gives Keras" in log
    assert "tested 2 ['accuracy', 'auc', 'loss']" in log


def python(code: str, *args: str, folder: Path = ROOT, **env: str) -> str:
    environment = {**{name: value for name, value in os.environ.items() if name != finder.BACKEND}, "PYTHONPATH": str(ROOT), **env}
    command = [sys.executable, "-c", "from training_runtime.elastic.keras import finder; finder.install()\n" + code, *args]
    found = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    return found.stdout


@NO_TENSORFLOW
def test_what_stands_in_for_tensorflow_says_what_it_lacks_and_is_not_shown_to_libraries(tmp_path):
    code = """
import os, sys
import training_runtime.elastic.driver.main, training_runtime.fabric.model
assert not {"keras", "tensorflow"} & sys.modules.keys(), "nobody but a script imports them"
import tensorflow as tf
from keras.src.utils import module_utils
assert not module_utils.tensorflow.available
from tensorflow.keras import layers
import keras, tensorflow.keras.layers
assert layers.Dense is keras.layers.Dense and tf.optimizers.Adam is keras.optimizers.Adam
assert sys.modules["tensorflow.keras.layers"].__spec__.name == "keras._tf_keras.keras.layers"
tf.random.set_seed(3)
assert not hasattr(tf, "data")
from training_runtime.elastic.driver import advice
for line in ("from tensorflow import data", "import tensorflow.data", "import tensorflow.keras.nothing", "tf.data"):
    try:
        exec(line)
    except (ImportError, AttributeError) as error:
        print(type(error).__name__, str(error) + advice.after(error))
print(os.environ["KERAS_BACKEND"])
"""
    *said, backend = python(code, KERAS_HOME=str(tmp_path)).splitlines()
    assert backend == "torch"
    assert [line.split()[0] for line in said] == ["ImportError", "ModuleNotFoundError", "ModuleNotFoundError", "AttributeError"]
    assert all("make tensorflow" in line for line in said)


def test_a_studio_without_keras_says_what_to_do(tmp_path):
    """A whole environment that lacks it: what is installed here but for Keras."""
    packages = tmp_path / "packages"
    packages.mkdir()
    for path in Path(np.__file__).parents[1].iterdir():
        if not path.name.startswith(("keras", "tensorflow")) and path.suffix != ".pth":
            (packages / path.name).symlink_to(path)
    warm = Warm(within=("sh", "-c", f'PYTHONPATH="$PYTHONPATH:{packages}" exec "$0" -S "$@"'))
    try:
        for line, says in (
            ("import keras", "The package keras is not installed where scripts run: add a line keras to requirements.txt in the upload"),
            (
                "from tensorflow.keras.layers import Dense",
                "for a script that uses tf.keras alone add a line keras to requirements.txt",
            ),
        ):
            run = Run(warm, tmp_path / line.split()[1], line + "\n")
            assert run.wait() == 1, run.tail()
            (failed,) = run.events("error")
            assert says in failed.message
            run.close()
    finally:
        warm.close()
