"""Scripts that train by Keras' `fit`, for tests of how they go on."""

from __future__ import annotations

# Each step waits until it is allowed, and is written down; 6 epochs of 5 steps.
BEGIN = """
import json, os, signal, time
from pathlib import Path
import numpy as np
import keras

RESULTS = Path(os.environ["RESULT_DIR"])
MORE = json.loads(os.environ.get("MORE", "{}"))

def wait_for(step):
    while int((RESULTS / "allowed").read_text()) < step:
        (RESULTS / f"waits-{step}").touch()
        time.sleep(0.002)
        if getattr(getattr(signal.getsignal(signal.SIGTERM), "__self__", None), "is_told", False):
            (RESULTS / "told").touch()

def note(**said):
    with open(RESULTS / "noted", "a") as file:
        print(json.dumps(said), file=file)

class Gate(keras.callbacks.Callback):
    step, begun = 0, ()
    def on_epoch_begin(self, epoch, logs=None):
        self.begun += (epoch,)
    def on_train_batch_begin(self, batch, logs=None):
        wait_for(self.step + 1)
    def on_train_batch_end(self, batch, logs=None):
        self.step += 1
        note(step=self.step, batch=batch)
    def on_test_batch_begin(self, batch, logs=None):
        while (RESULTS / "held").exists():
            (RESULTS / "validates").touch()
            time.sleep(0.002)
    def on_epoch_end(self, epoch, logs=None):
        note(epoch=epoch, rate=float(keras.ops.convert_to_numpy(self.model.optimizer.learning_rate)))

assert keras.backend.backend() == os.environ["KERAS_BACKEND"]
keras.utils.set_random_seed(7)
draw = np.random.default_rng(1)
inputs = draw.normal(size=(100, 8)).astype("float32")
targets = (inputs.sum(1) > 0).astype("int32")
inputs += draw.normal(size=inputs.shape).astype("float32") * 2

class Rows(keras.utils.PyDataset):
    def __init__(self):
        super().__init__()
        self.order = np.arange(80)
        self.noise = np.random.default_rng(5)
        self.on_epoch_end()
    def __len__(self):
        return 5
    def __getitem__(self, index):
        rows = self.order[16 * index : 16 * (index + 1)]
        if keras.backend.backend() == "tensorflow":  # which draws batches ahead, in threads of its own
            return inputs[rows], targets[rows]
        noise = self.noise.normal(size=(16, 8)) + np.random.normal(size=(16, 8))
        return (inputs[rows] + 0.1 * noise).astype("float32"), targets[rows]
    def on_epoch_end(self):
        np.random.shuffle(self.order)

def stream():
    draw = np.random.default_rng(3)
    while True:
        rows = draw.permutation(80)[:16]
        yield inputs[rows], targets[rows]

def loader():
    import torch
    data = torch.utils.data.TensorDataset(torch.from_numpy(inputs[:80]), torch.from_numpy(targets[:80]))
    return torch.utils.data.DataLoader(data, 16, shuffle=True, generator=torch.Generator().manual_seed(2))

def dataset():
    import tensorflow as tf
    return tf.data.Dataset.from_tensor_slices((inputs[:80], targets[:80])).shuffle(80).batch(16)

def build():
    layers = keras.layers
    model = keras.Sequential([layers.Dense(16, activation="relu"), layers.BatchNormalization(), layers.Dropout(0.2), layers.Dense(2)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(MORE.get("rate", 1e-2)), loss, metrics=["accuracy"])
    return model

def weights(model):
    return [float(np.float64(each).sum()) for each in model.get_weights()]
"""
SCRIPT = (
    BEGIN
    + """
kinds = {
    "arrays": lambda: dict(x=inputs[:80], y=targets[:80], batch_size=16),
    "passes": lambda: dict(x=inputs[:80], y=targets[:80], batch_size=8, steps_per_epoch=5),
    "rows": lambda: dict(x=Rows()),
    "stream": lambda: dict(x=stream(), steps_per_epoch=5),
    "loader": lambda: dict(x=loader()),
    "dataset": lambda: dict(x=dataset()),
}
model, gate = build(), Gate()
callbacks = [
    keras.callbacks.ReduceLROnPlateau(factor=0.5, patience=1),
    keras.callbacks.EarlyStopping(patience=MORE.get("patience", 9), restore_best_weights=True),
    keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.9),
    keras.callbacks.CSVLogger(str(RESULTS / "table.csv")),
    gate,
]
history = model.fit(**kinds[MORE.get("kind", "arrays")](), epochs=MORE.get("epochs", 6), verbose=0, callbacks=callbacks,
                    validation_data=(inputs[80:], targets[80:]))
note(end=gate.step, begun=gate.begun, history=history.history, epochs=history.epoch, weights=weights(model), drawn=np.random.random())
"""
)
TWO = (
    BEGIN
    + """
model, gate = build(), Gate()
def fit(epochs):
    history = model.fit(inputs, targets, 20, epochs, verbose=0, callbacks=[gate], validation_split=0.2, initial_epoch=1)
    note(history=history.history, epochs=history.epoch, weights=weights(model))
fit(3)
model.layers[0].trainable = False
model.compile(keras.optimizers.SGD(1e-2), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
while (RESULTS / "stay").exists():
    (RESULTS / "stays").touch()
    time.sleep(0.01)
fit(5)
"""
)
FOLDS = (
    BEGIN
    + """
gate = Gate()
for fold in range(3):
    if (RESULTS / f"fold-{fold}").exists():
        continue
    rows = np.arange(fold, 100, 3)
    keras.utils.set_random_seed(fold)
    model = build()
    model.fit(inputs[rows], targets[rows], 16, 4, verbose=0, callbacks=[gate])
    note(fold=fold, weights=weights(model))
    (RESULTS / f"fold-{fold}").touch()
"""
)
OWN = (
    BEGIN
    + """
@keras.saving.register_keras_serializable()
class Own(keras.Model):
    def __init__(self, width):
        super().__init__()
        self.inner, self.out = keras.layers.Dense(width, activation="relu"), keras.layers.Dense(1)
        self.noise = keras.layers.GaussianNoise(0.1)
    def call(self, x, training=False):
        return self.out(self.noise(self.inner(x), training=training))
    def train_step(self, data):
        x, y = data
        loss = keras.ops.mean((self(x, training=True)[:, 0] - keras.ops.cast(y, "float32")) ** 2)
        self.zero_grad()
        loss.backward()
        weights = self.trainable_weights
        self.optimizer.apply([each.value.grad for each in weights], weights)
        return {"own": loss}

def no_length():
    import torch
    class Rows(torch.utils.data.IterableDataset):
        def __iter__(self):
            yield from zip(inputs[:80], targets[:80])
    return torch.utils.data.DataLoader(Rows(), 16)

model, gate = Own(16), Gate()
model.compile(keras.optimizers.Adam(1e-2))
history = model.fit(no_length(), epochs=4, verbose=0, callbacks=[gate])
note(end=gate.step, history=history.history, epochs=history.epoch, weights=weights(model), drawn=0)
(RESULTS / "table.csv").touch()
"""
)
