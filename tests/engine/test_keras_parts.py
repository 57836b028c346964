"""What the engine is given of a Keras model: what is taken, what is refused with which sentence, and how metrics add up."""

from __future__ import annotations

import os
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from training_runtime.elastic.keras import finder
from training_runtime.errors import UserError


@pytest.fixture
def keras(monkeypatch, tmp_path):
    monkeypatch.setenv("FABRIC_BACKEND", "")
    os.environ.setdefault("KERAS_BACKEND", "torch")
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    import keras

    return keras


def given(keras, **others):
    from training_runtime.fabric.model import FabricModel

    model = others.pop("model", None) or keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, activation="softmax")])
    loss, optimizer = others.pop("loss", "sparse_categorical_crossentropy"), others.pop("optimizer", "adam")
    return FabricModel(model, others.pop("data", lambda: ([], [])), loss, optimizer, **others)


def refusal(keras, **others) -> str:
    from training_runtime.fabric import frameworks

    with pytest.raises(UserError) as refused:
        fabric = given(keras, **others)
        frameworks.training_components(fabric, "keras", seed=0, batch_size=4)
    return str(refused.value)


def test_what_cannot_be_trained_is_said_in_a_sentence(keras):
    class Own(keras.Sequential):
        def train_step(self, data):
            return {}

    class Batches(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            pass

    class Stops(keras.callbacks.EarlyStopping):
        pass

    frozen = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
    frozen.trainable = False
    half = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)], name="half")
    half.dtype_policy = "mixed_float16"
    for others, says in (
        ({"optimizer": torch.optim.SGD([torch.zeros(1)], 0.1)}, "must be a name such as 'adam' or one of keras.optimizers"),
        ({"optimizer": "steepest"}, "Keras does not take the optimizer, loss or metrics"),
        ({"optimizer": keras.optimizers.SGD(loss_scale_factor=2.0)}, "use mixed_bfloat16"),
        ({"model": half}, "use mixed_bfloat16"),
        ({"loss": "nothing"}, "Keras does not take the optimizer, loss or metrics"),
        ({"loss": None}, "loss_function is missing"),
        ({"metrics": ["nothing"]}, "nothing"),
        ({"metrics": [keras.metrics.F1Score()]}, "gives several numbers: give one that gives a single number, as with average='macro'"),
        ({"metrics": [keras.metrics.MeanIoU(100)]}, "leave out those with many classes"),
        ({"metrics": [Latest(keras)]}, "cannot be added up over the parts of a batch"),
        ({"model": Own([keras.Input((4,)), keras.layers.Dense(3)])}, "has a train_step of its own"),
        ({"model": frozen}, "has nothing to train"),
        (
            {"user_callback": keras.callbacks.EarlyStopping()},
            "EarlyStopping gets no figures here and would do nothing: the number of epochs",
        ),
        ({"user_callback": Stops()}, "EarlyStopping gets no figures here"),
        ({"user_callback": Batches()}, "Batches.on_train_batch_end would never be called"),
        ({"fn_step_train": print}, "fn_step_train is for PyTorch models"),
    ):
        assert says in refusal(keras, **others), others


def Latest(keras):
    class Largest(keras.metrics.Metric):
        def __init__(self):
            super().__init__(name="largest")
            self.found = self.add_variable((), "ones")

        def reset_state(self):
            self.found.assign(-1.0)

    return Largest()


def test_models_of_several_inputs_and_outputs_with_torch_modules_inside(keras):
    from training_runtime.fabric import frameworks

    layers = keras.layers
    first, second = keras.Input((4,), name="first"), keras.Input((4,), name="second")
    hidden = layers.TorchModuleWrapper(torch.nn.BatchNorm1d(4), output_shape=(None, 4))(layers.Add()([first, second]))
    model = keras.Model(
        {"first": first, "second": second}, {"a": layers.Dense(1, name="a")(hidden), "b": layers.Dense(3, name="b")(hidden)}
    )
    losses = {"a": "mse", "b": keras.losses.SparseCategoricalCrossentropy(from_logits=True)}
    fabric = given(keras, model=model, loss=losses, optimizer=keras.optimizers.AdamW(0.1, use_ema=True))
    components = frameworks.training_components(fabric, "keras", seed=0, batch_size=4)
    counts = [buffer for name, buffer in components.model.named_buffers() if name.endswith("num_batches_tracked")]
    assert len(counts) == 1
    before = [p.detach().clone() for p in components.model.parameters()]
    inputs = {"first": torch.randn(6, 4), "second": torch.randn(6, 4)}
    outputs = components.model(inputs)
    components.loss(outputs, {"a": torch.randn(6, 1), "b": torch.randint(3, (6,))}).backward()
    components.optimizer.step()
    assert not any(torch.equal(old, new) for old, new in zip(before, components.model.parameters(), strict=True))
    assert int(counts[0]) == 1
    late = layers.Dense(1)
    late.build((None, 4))
    model.late = late
    with pytest.raises(UserError, match="got other variables while it was training"):
        components.model.train()


def test_names_of_the_scripts_own_are_known_later_too(keras):
    from training_runtime.fabric import frameworks

    class Weighed(keras.losses.Loss):
        def call(self, y_true, y_pred):
            return 3.0 * keras.ops.mean(y_pred, -1)

    def first(y_true, y_pred):
        return y_pred[:, 0]

    fabric = given(keras, loss="weighed", metrics=["its first"], keras_custom_objects={"weighed": Weighed, "its first": first})
    components = frameworks.training_components(fabric, "keras", seed=0, batch_size=4)
    outputs = components.model(torch.randn(5, 4))
    assert float(components.loss(outputs, torch.zeros(5))) == pytest.approx(1.0)
    assert components.measures.names == ("first",)
    assert components.measures.values(components.measures.sums(outputs, torch.zeros(5))) == [
        pytest.approx(float(outputs[:, 0].mean().detach()))
    ]
    fabric.model.stop_training = True
    with pytest.raises(UserError, match="stop_training was set, which ends nothing here"):
        components.model.train()


def test_metrics_of_parts_add_up_to_those_of_the_whole(keras):
    from training_runtime.elastic.keras.measures import KerasMeasures

    metrics = [
        "acc",
        keras.metrics.AUC(),
        keras.metrics.F1Score(average="macro"),
        keras.metrics.R2Score(),
        "mse",
        keras.metrics.Precision(),
    ]
    output = SimpleNamespace(shape=(None, 3), dtype="float32")
    measures = KerasMeasures(metrics, output)
    outputs, targets = torch.softmax(torch.randn(40, 3), 1), torch.eye(3)[torch.randint(3, (40,))]
    parts = np.sum([measures.sums(outputs[a:b], targets[a:b]) for a, b in ((0, 7), (7, 8), (8, 40))], axis=0)
    assert measures.values(parts) == pytest.approx(measures.values(measures.sums(outputs, targets)), abs=1e-6)
    plain = [keras.metrics.AUC(), keras.metrics.F1Score(average="macro"), keras.metrics.R2Score()]
    assert measures.values(parts)[1:4] == pytest.approx([float(metric(targets, outputs)) for metric in plain], abs=1e-5)
    assert measures.values(parts)[0] == pytest.approx(float((outputs.argmax(1) == targets.argmax(1)).float().mean()))


def test_the_backend_of_keras_is_torch_unless_somebody_says_otherwise(monkeypatch):
    monkeypatch.delenv(finder.BACKEND, raising=False)
    finder._choose_backend()
    assert os.environ[finder.BACKEND] == "torch"
    monkeypatch.setenv(finder.BACKEND, "")
    monkeypatch.setitem(sys.modules, "tensorflow.python", SimpleNamespace())
    finder._choose_backend()
    assert os.environ[finder.BACKEND] == "tensorflow"
    monkeypatch.setenv(finder.BACKEND, "jax")
    finder._choose_backend()
    assert os.environ[finder.BACKEND] == "jax"
