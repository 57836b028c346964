"""Keras 3's `Model.fit`, with each of its backends: it goes on from what this fit of the run has saved, and saves all when it is told to
end. The end of an epoch is saved too, as often as that costs a twentieth of the time at most, for who is killed.

Keras' own `BackupAndRestore` goes back to the beginning of an epoch, and has nothing of callbacks, generators, metrics and the data. What a
callback keeps in plain attributes is kept here; a script that has that callback is left alone.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from functools import wraps
from types import ModuleType
from typing import Any

from training_runtime.elastic.trainers import continuing, keras_data
from training_runtime.elastic.trainers.keras_fit import FollowedFit

TRAINERS = {"TorchTrainer": "TorchEpochIterator", "TensorFlowTrainer": "TFEpochIterator", "JAXTrainer": "JAXEpochIterator"}

_followed: list[FollowedFit] = []  # the fit that goes on in the script's own thread


def change(module: ModuleType) -> None:
    """`keras.src.backend.torch.trainer` or another backend's, once it is imported."""
    if not hasattr(module.EpochIterator, "_enumerate_iterator"):  # an older Keras, whose fit is another
        return
    for trainer, iterator in TRAINERS.items():
        if hasattr(module, trainer):
            vars(module)[trainer].fit = _continued(vars(module)[trainer].fit)
            setattr(module, iterator, keras_data.follow(vars(module)[iterator], _data))
    callbacks = module.callbacks_module.CallbackList
    if not hasattr(callbacks.on_train_begin, "__wrapped__"):
        callbacks.on_train_begin = _begun(callbacks.on_train_begin)


def _continued(fit: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(fit)
    def continued(self: Any, *args: Any, **kwargs: Any) -> Any:
        if (
            _followed or not _is_main() or not hasattr(self, "_initial_epoch")
        ):  # another one within a fit, or several at once, whose order says nothing
            return fit(self, *args, **kwargs)
        training = continuing.begin(1)
        if training is None or _sees_to_it(_callbacks(args, kwargs)) or _is_distributed(self):
            return fit(self, *args, **kwargs)
        with continuing.interruption(training) as interruption:
            interruption.listen()
            followed = FollowedFit(self, training, interruption)
            _followed.append(followed)
            before = self._initial_epoch
            try:
                history = fit(self, *args, **kwargs)
            finally:
                followed.reports.end()
                _followed.clear()
                self._initial_epoch = before
            followed.complete()
            return history

    return continued


def _begun(on_train_begin: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(on_train_begin)
    def begun(self: Any, *args: Any, **kwargs: Any) -> Any:
        followed = _followed[0] if _followed and _is_main() else None
        if followed is None or followed.is_begun:
            return on_train_begin(self, *args, **kwargs)
        followed.before_begin(self)
        answer = on_train_begin(self, *args, **kwargs)
        followed.begin()
        return answer

    return begun


def _data(iterator: Any) -> keras_data.FollowedData | None:
    """The first that a fit makes is for its own epochs."""
    return _followed[0].follow_data(iterator) if _followed and _is_main() else None


def _is_main() -> bool:
    return threading.current_thread() is threading.main_thread()


def _callbacks(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    given = kwargs.get("callbacks", args[5] if len(args) > 5 else None)
    return list(given) if isinstance(given, list | tuple) else [given]


def _sees_to_it(callbacks: list[Any]) -> bool:
    """The script itself, by Keras' callback for that, or with a list of callbacks that it tells things itself."""
    names = ("BackupAndRestore", "CallbackList")
    return any(kind.__name__ in names for each in callbacks for kind in type(each).__mro__)


def _is_distributed(model: Any) -> bool:
    """Over several devices or processes, each of which has a part."""
    if os.environ.get("TF_CONFIG") or sys.modules["keras"].distribution.distribution() is not None:
        return True
    jax = sys.modules.get("jax")
    if jax is not None and hasattr(model, "jax_state_sync") and jax.process_count() > 1:
        return True
    return getattr(getattr(model, "distribute_strategy", None), "num_replicas_in_sync", 1) > 1
