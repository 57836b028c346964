"""What kind of model a script has given to FabricModel, told by the names of its classes: Keras itself is not imported for that."""

from __future__ import annotations

import sys
from typing import Any, Literal

Kind = Literal["pytorch", "keras", "tensorflow"]  # the words of FABRIC_BACKEND


def is_keras(model: object) -> bool:
    """Whether it is a model of Keras 3, on whatever backend."""
    return any(cls.__module__.startswith("keras.src.") and cls.__name__ == "Model" for cls in type(model).__mro__)


def is_old_keras(model: object) -> bool:
    """Whether it is one of Keras 2, as TensorFlow has had it up to 2.15."""
    return any(cls.__module__.startswith(("tf_keras.", "keras.engine.", "tensorflow.python.keras.")) for cls in type(model).__mro__)


def backend() -> str:
    """Keras' own: torch, tensorflow, jax. Where a Keras model is there, Keras is."""
    keras: Any = sys.modules["keras"]
    return str(keras.backend.backend())


def of(model: object) -> Kind:
    if not is_keras(model):
        return "pytorch"
    return "tensorflow" if backend() == "tensorflow" else "keras"


def is_tensorflow_imported() -> bool:
    """TensorFlow itself, not what stands in for it."""
    return "tensorflow.python" in sys.modules
