"""One fit of Keras that a run follows, by what its list of callbacks is told: where it is saved, where it stops, and how it goes on."""

from __future__ import annotations

import copy
import json
import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from training_runtime.elastic.trainers import continuing, keras_state, plain
from training_runtime.elastic.trainers.continuing import say
from training_runtime.elastic.trainers.interruption import Interruption
from training_runtime.elastic.trainers.keras_data import FollowedData, Position
from training_runtime.elastic.trainers.keras_state import FitState, set_values, values_of, variables_of
from training_runtime.elastic.trainers.trainings import Training, moved

FLIPPED = "min_delta"  # whose sign Keras turns when a callback is told its first figures
BARS = "ProgbarLogger"


@dataclass
class _Pace:
    """How often is saved: not before a save's own time has passed twenty times."""

    share: int = 20
    cost_s: float = 0.05
    since: float = 0.0

    def is_due(self) -> bool:
        return time.monotonic() - self.since >= self.share * self.cost_s

    def saved(self, begun: float) -> None:
        self.since = time.monotonic()
        self.cost_s = max(self.since - begun, 0.05)  # once a second, if it takes less


_pace = _Pace()  # of all fits of a process


class FollowedFit:
    """`is_begun`: its callbacks are being told. Keras has built the model then, but for TensorFlow's backend."""

    def __init__(self, model: Any, training: Training, interruption: Interruption) -> None:
        self._model, self._training, self._interruption = model, training, interruption
        self._folder = Path(os.environ["RESULT_DIR"], keras_state.FOLDER.format(training.number))
        self._data: FollowedData | None = None
        self._iterator: Any = None
        self._callbacks: Any = None
        self._resumed: FitState | None = None  # until it has gone on from there
        self._complete: FitState | None = None
        self._fit = self._path = ""
        self._tables = list[Any]()
        self._before = list[dict[str, str]]()
        self._epoch = self._batches = self._step = 0
        self._logs: Any = {}
        self._end: Position | None = None  # of the epoch's batches
        self._validated: tuple[Position, list[Any]] | None = None  # what there was when the validation began
        self._has_failed = False
        self.reports = continuing.reports()
        _pace.since = _pace.since or time.monotonic()

    @property
    def is_begun(self) -> bool:
        return self._callbacks is not None or self._data is None

    def follow_data(self, iterator: Any) -> FollowedData | None:
        if self._data is not None:
            return None
        self._iterator, self._data = iterator, FollowedData(iterator, self._interruption)
        return self._data

    @property
    def _data_of_fit(self) -> FollowedData:
        assert self._data is not None
        return self._data

    @property
    def _epochs(self) -> int:
        return int(self._callbacks.params["epochs"])

    def before_begin(self, callbacks: Any) -> None:
        """`callbacks`: the list of them, which Keras has made."""
        self._callbacks = callbacks
        self._fit = self._description()
        saved = self._training.last()
        if saved is None:
            return
        try:
            state = keras_state.read(Path(saved.path))
        except Exception as error:  # whatever a file may be
            say(f"{saved.path} cannot be read, so this training begins at its start: {type(error).__name__}: {error}")
            return
        if state.fit != self._fit:
            say(f"This training is another than that of {saved.path}, and begins at its start.")
            return
        state.callbacks = moved(state.callbacks, saved, os.environ)
        self._resumed, self._path = state, saved.path
        tables = [each for each in callbacks.callbacks if any(kind.__name__ == "CSVLogger" for kind in type(each).__mro__)]
        self._tables = [each for each in tables if not each.append and keras_state.continue_table(each, state.epoch)]

    def begin(self) -> None:
        """All callbacks have been told that the training begins."""
        for each in self._tables:
            each.append = False
        self._before = [plain.digests(each) for each in self._callbacks.callbacks]
        if self._resumed is not None:
            self._go_on(self._resumed)
        self._data_of_fit.is_begun = True
        told = self._callbacks
        told.on_epoch_begin = _before(told.on_epoch_begin, self._begin_epoch)
        told.on_train_batch_end = _after(told.on_train_batch_end, self._end_batch)
        told.on_test_begin = _before(told.on_test_begin, self._begin_validation)
        told.on_test_batch_begin = _before(told.on_test_batch_begin, self._begin_validation_batch)
        told.on_epoch_end = _after(told.on_epoch_end, self._end_epoch)

    def _go_on(self, state: FitState) -> None:
        model, self._resumed = self._model, None
        try:
            keras_state.build(model, self._iterator)
            set_values(variables_of(model), state.variables)
        except Exception as error:
            say(f"This training begins at its start, as what it has saved does not fit: {type(error).__name__}: {error}")
            return
        say(f"This training goes on from {self._path} (step {state.step}).")
        self._set_callbacks(state)
        self._step = state.step
        if state.is_complete:
            model._initial_epoch, self._complete = self._epochs, state
            return
        model._initial_epoch = state.epoch
        self._resumed = state if state.position.batches else None
        self._data_of_fit.resume(state.position, self._replay)

    def _set_callbacks(self, state: FitState) -> None:
        for each, (name, attributes) in zip(self._callbacks.callbacks, state.callbacks, strict=False):
            if type(each).__name__ == name:
                vars(each).update(copy.deepcopy(attributes))  # they are set twice

    def _replay(self) -> None:
        """The epoch that was begun goes on: its callbacks have been told so, which may have changed what they had changed then. Keras does
        the last of its batches once more, which comes to what it came to."""
        state, model, told = self._resumed, self._model, self._callbacks
        assert state is not None
        set_values(variables_of(model), state.variables)
        with suppress(ValueError):  # metrics that are made as they are needed begin anew
            set_values(model.metrics_variables, state.metrics)
        self._set_callbacks(state)
        self._logs, self._batches = state.logs, state.position.batches
        self._end = state.position if self._data_of_fit.is_last(self._batches) else None
        before = model.train_function, told.on_train_batch_begin, told.on_train_batch_end

        def last_step(*given: Any) -> Any:
            return (state.logs, given[0]) if hasattr(model, "jax_state_sync") else state.logs

        def end(*_: Any, **__: Any) -> None:
            model.train_function, told.on_train_batch_begin, told.on_train_batch_end = before
            model.stop_training = state.stops

        model.train_function, told.on_train_batch_begin, told.on_train_batch_end = last_step, _nothing, end
        self._resumed = None  # and with it its arrays

    def _begin_epoch(self, epoch: int, *_: Any) -> None:
        self._epoch, self._batches, self._logs, self._end, self._validated = epoch, 0, {}, None, None

    def _end_batch(self, batch: int, logs: Any = None, *_: Any) -> None:
        self._step += batch + 1 - self._batches
        self._batches, self._logs = batch + 1, logs
        if (length := self._iterator.num_batches) is not None:
            self.reports.report(self._epoch * length + self._batches, self._epochs * length, "Batches")
        if self._data_of_fit.is_last(self._batches):
            self._end = self._data_of_fit.position(self._batches)
        if self._interruption.is_due():
            self._stop()

    def _begin_validation(self, *_: Any) -> None:
        if self._batches:
            self._validated = self._end or self._data_of_fit.position(self._batches), values_of(self._model.metrics_variables)

    def _begin_validation_batch(self, *_: Any) -> None:
        if self._validated is not None and self._interruption.is_due():
            self._stop()

    def _end_epoch(self, epoch: int, *_: Any) -> None:
        if self._iterator.num_batches is None:
            self.reports.report(epoch + 1, self._epochs, "Epochs")
        if self._model.stop_training or epoch + 1 >= self._epochs:
            return  # which is its end: see `complete`
        self._epoch, self._batches, self._end, self._validated = epoch + 1, 0, None, None
        if self._interruption.is_due():
            self._stop()
        elif _pace.is_due():
            self._save()

    def complete(self) -> None:
        """The fit has ended by itself."""
        if self._complete is not None:
            set_values(variables_of(self._model), self._complete.variables)  # whatever its callbacks have done at the end
            self._data_of_fit.end(self._complete.position)
        elif self._callbacks is not None and (self._interruption.is_told or _pace.is_due()):
            self._epoch, self._batches, self._end, self._validated = self._epochs, 0, None, None
            self._save(is_complete=True)

    def _stop(self) -> None:
        if self._save():
            say(f"Told to end: saved in {self._folder} (step {self._step}), to go on from.")
        self._interruption.leave()

    def _save(self, *, is_complete: bool = False) -> bool:
        begun = time.monotonic()
        try:
            path = self._folder / f"epoch-{self._epoch}-batch-{self._batches}{'-end' if is_complete else ''}.npz"
            keras_state.write(path, self._state(is_complete=is_complete))
            self._training.note(path, path, step=self._step)
            self._training.keep_last(self._folder)
            if is_complete:
                keras_state.keep_newest(self._folder, self._training.number)
        except Exception as error:  # of the disk, say; what was saved before is there
            if not self._has_failed:
                say(f"What this training has could not be saved: {type(error).__name__}: {error}")
            self._has_failed = True
            return False
        finally:
            _pace.saved(begun)
        return True

    def _state(self, *, is_complete: bool) -> FitState:
        model, told, data = self._model, self._callbacks, self._data_of_fit
        if getattr(told, "_async_train", False):
            told._flush_futures()
        getattr(model, "jax_state_sync", _nothing)()
        position, metrics = self._validated or (self._end or data.position(self._batches), values_of(model.metrics_variables))
        return FitState(
            epoch=self._epoch,
            is_complete=is_complete,
            step=self._step,
            position=position,
            logs=_numbers(self._logs) if self._batches else {},
            stops=bool(model.stop_training),
            callbacks=[
                (type(each).__name__, _kept_attributes(each, before)) for each, before in zip(told.callbacks, self._before, strict=True)
            ],
            variables=values_of(variables_of(model)),
            metrics=metrics if self._batches else [],
            fit=self._fit,
        )

    def _description(self) -> str:
        model, iterator, config = self._model, self._iterator, ""
        with suppress(Exception):  # of an optimizer of the script's own
            values = {name: value for name, value in model.optimizer.get_config().items() if name != "name"}
            config = json.dumps(values, sort_keys=True, default=lambda one: type(one).__name__)
        numbers = (self._epochs, iterator.steps_per_epoch, iterator.num_batches)
        return json.dumps([type(model).__name__, type(model.optimizer).__name__, config, numbers])


def _kept_attributes(callback: Any, before: dict[str, str]) -> dict[str, Any]:
    if type(callback).__name__ == BARS:
        return {}
    return {name: value for name, value in plain.changes(callback, before).items() if name != FLIPPED}


def _numbers(logs: Any) -> dict[str, Any]:
    """Of the last batch, which a backend may hold as its own tensors."""
    import keras

    def number(value: Any) -> Any:
        array = np.array(keras.ops.convert_to_numpy(value))
        return array if array.ndim else array.item()

    return {str(name): number(value) for name, value in (logs or {}).items()}


def _nothing(*_: Any, **__: Any) -> None:
    pass


def _before(told: Callable[..., Any], does: Callable[..., None]) -> Callable[..., Any]:
    def tell(*args: Any, **kwargs: Any) -> Any:
        does(*args, **kwargs)
        return told(*args, **kwargs)

    return tell


def _after(told: Callable[..., Any], does: Callable[..., None]) -> Callable[..., Any]:
    def tell(*args: Any, **kwargs: Any) -> Any:
        answer = told(*args, **kwargs)
        does(*args, **kwargs)
        return answer

    return tell
