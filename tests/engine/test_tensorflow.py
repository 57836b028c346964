"""Models of TensorFlow itself by the same engine. Run where it is installed: docs/keras.md says how."""

from __future__ import annotations

from importlib.machinery import PathFinder

import pytest
import torch

pytestmark = [
    pytest.mark.skipif(PathFinder.find_spec("tensorflow") is None, reason="TensorFlow is not installed here: make tensorflow"),
    pytest.mark.timeout(900),  # each process takes seconds to import it
]
PATIENCE_S = 400

# What only TensorFlow can compute: its operations in a layer and in the loss, its random numbers, its tensors in the data.
SCRIPT = """
import os, time
import tensorflow as tf
from sklearn.datasets import load_digits
from fabric_model import FabricModel

folder = os.environ["RESULT_DIR"]
digits = load_digits()
x, y = tf.constant(digits.images[..., None] / 16, tf.float32), digits.target

class Digits:
    def __init__(self, first, last):
        self.first, self.last = first, last
    def __len__(self):
        return self.last - self.first
    def __getitem__(self, index):
        return x[self.first + index], y[self.first + index]

class Noisy(tf.keras.layers.Layer):
    def call(self, inputs, training=False):
        return tf.nn.relu(inputs + tf.random.normal(tf.shape(inputs), stddev=0.1, seed=4) if training else inputs)

class Plan(tf.keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        while os.path.exists(f"{folder}/stay-{epoch}"):
            time.sleep(0.01)
        self.model.optimizer.learning_rate = 0.05 / (1 + epoch)
        kernel = self.model.layers[0].kernel
        kernel.assign(kernel * 0.999)

def loss(y_true, y_pred):
    return tf.nn.sparse_softmax_cross_entropy_with_logits(tf.cast(tf.reshape(y_true, (-1,)), tf.int32), y_pred)

layers = tf.keras.layers
model = tf.keras.Sequential([
    layers.Conv2D(4, 3), layers.BatchNormalization(), Noisy(), layers.Dropout(0.2), layers.Flatten(),
    layers.Dense(10, kernel_regularizer="l2"),
])
assert tf.keras.backend.backend() == "tensorflow"
FabricModel(
    model, lambda: (Digits(0, 75), Digits(1500, 1540)), loss, tf.keras.optimizers.SGD(0.05, momentum=0.9, global_clipnorm=1.0),
    metrics=["accuracy"], user_callback=Plan(), save_to_onnx=True,
).train(3, 5, 4)
print("evaluated", round(model.evaluate(x[1500:1540], y[1500:1540], verbose=0)[0], 4))
"""


def test_slots_that_come_and_go_a_death_and_a_suspension_change_no_bit(start):
    one = start(SCRIPT)
    one.members(0)
    assert one.wait(PATIENCE_S) == 0, one.tail()
    run = start(SCRIPT)
    stays = [run.result_dir / f"stay-{epoch}" for epoch in (1, 2)]
    for stay in stays:
        stay.touch()
    run.members(0, 1, 2, 3)
    run.until(lambda: run.step() >= 4, PATIENCE_S)
    run.until(lambda: run.events("generation") and len(run.events("generation")[-1].members) == 4, PATIENCE_S)
    run.kill(1)
    run.until(lambda: len(run.events("generation")[-1].members) == 3, PATIENCE_S)
    stays[0].unlink()
    run.until(lambda: run.step() >= 8, PATIENCE_S)
    run.members()
    stays[1].unlink()
    run.until(lambda: run.events("suspended"), PATIENCE_S)
    run.members(2, 3)
    assert run.wait(PATIENCE_S) == 0, run.tail()
    assert run.train_lines() == one.train_lines()
    assert run.test_lines() == one.test_lines()
    assert run.weights() == one.weights()
    assert {e.workers for e in run.events("train")} >= {2, 3}
    log = one.log.read_text()
    assert "Using tensorflow backend." in log
    tested = one.events("test")[-1].metrics["loss"]
    assert f"evaluated {round(tested, 4)}" in log, "the script's model holds the final weights"
    assert [w.message for w in one.events("warning") if "TensorFlow are not exported" in w.message]
    kept = torch.load(one.result_dir / "model/train/model_epoch_final.pth", weights_only=True)
    assert any(name.endswith("moving_mean") for name in kept)
    assert (one.result_dir / "model/train/model_epoch_final.keras").stat().st_size
