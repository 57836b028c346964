"""Changes the trainers of libraries when a script imports them. Standard library only; does nothing before the first such import."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

from training_runtime.fabric.when_loaded import when_loaded

_BY = {  # modules of libraries, and ours that change them
    "transformers.trainer": "of_transformers",
    "transformers.training_args": "own_results",
    "lightning.pytorch.trainer.trainer": "of_lightning",
    "pytorch_lightning.trainer.trainer": "of_lightning",
    "ultralytics.engine.trainer": "of_ultralytics",
    "keras.src.backend.torch.trainer": "of_keras",
    "keras.src.backend.tensorflow.trainer": "of_keras",
    "keras.src.backend.jax.trainer": "of_keras",
}


class _AfterTrainers:
    """Finds what the others find, with something to be done when it is loaded."""

    def find_spec(self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if fullname not in _BY:
            return None
        found = (each.find_spec(fullname, path, target) for each in sys.meta_path if each is not self)
        change = f"training_runtime.elastic.trainers.{_BY[fullname]}"
        return when_loaded(
            next((each for each in found if each is not None), None), lambda module: importlib.import_module(change).change(module)
        )


def install() -> None:
    """Once in an interpreter that runs a script, or imports what one will need."""
    if not any(isinstance(each, _AfterTrainers) for each in sys.meta_path):
        sys.meta_path.insert(0, _AfterTrainers())
