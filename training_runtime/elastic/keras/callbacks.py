"""Which of Keras' callbacks can take part. They run on every worker alike, at the begin and end of the training and of epochs, and are told
no figures: those of an epoch are sums that the driver makes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras

from training_runtime.errors import UserError

_FITTING = ("LearningRateScheduler", "LambdaCallback", "Callback")
_OF_BATCHES = tuple(f"on_{part}batch_{when}" for part in ("", "train_", "test_", "predict_") for when in ("begin", "end"))
INSTEAD = {
    "EarlyStopping": "the number of epochs is fixed, so stop the run by hand where its curves say so",
    "ModelCheckpoint": "model files are written every checkpoint_freq epochs",
    "BackupAndRestore": "a run that is interrupted goes on by itself",
    "CSVLogger": "give a driver_logger_callback",
    "TensorBoard": "give a driver_logger_callback; the run has curves of its own",
    "ReduceLROnPlateau": "use LearningRateScheduler, or a schedule in the optimizer",
}


def check(callbacks: Sequence[Any]) -> None:
    """Raises UserError for one that could not do what it is for."""
    for callback in callbacks:
        if not isinstance(callback, keras.callbacks.Callback):
            continue
        kind = type(callback)
        theirs = next(cls.__name__ for cls in kind.__mro__ if cls.__module__.startswith("keras.src."))  # it may be a part of it
        if theirs not in _FITTING:
            advice = INSTEAD.get(theirs, "write a callback with on_epoch_begin and on_epoch_end")
            raise UserError(f"keras.callbacks.{theirs} gets no figures here and would do nothing: {advice}")
        for name in _OF_BATCHES:
            if getattr(kind, name) is not getattr(keras.callbacks.Callback, name):
                raise UserError(f"{kind.__name__}.{name} would never be called: callbacks run at the begin and end of epochs")
