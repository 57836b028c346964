"""What a script that was written for `tf.keras` finds as `tensorflow` where TensorFlow is not installed: Keras 3 under the name tf.keras,
and little else. It says so, and whatever is not there says what to do.

Only files of the script are given it: libraries that look for TensorFlow find none, Keras among them. Real TensorFlow is never hidden.
"""

from __future__ import annotations

import importlib
import sys
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace
from typing import Any

NAME = "tensorflow"
_KERAS = "keras._tf_keras.keras"  # what tf.keras is in TensorFlow, ImageDataGenerator included
_PARTS = ("losses", "metrics", "optimizers", "initializers")  # of Keras, which TensorFlow has under its own name too
_DTYPES = ("float16", "float32", "float64", "bfloat16", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "bool")
SAYS = (
    "TensorFlow is not installed where scripts run: `import tensorflow` gives Keras {} on PyTorch as tf.keras, and nothing else of it. "
    "A line tensorflow-cpu in requirements.txt of the upload adds TensorFlow itself, or an administrator for everybody by make tensorflow."
)
LACKS = (
    "{} is not there: TensorFlow is not installed where scripts run, only Keras as tf.keras. Use keras.ops or numpy instead, add a "
    "line tensorflow-cpu to requirements.txt in the upload, or have an administrator add TensorFlow by make tensorflow"
)


def spec(name: str) -> ModuleSpec | None:
    """Of the module itself, or of one below tf.keras. None for what is not there."""
    if name == NAME:
        from keras.src.utils import module_utils

        assert not module_utils.tensorflow.available  # Keras looks once: now, as later it would find this
        return ModuleSpec(name, _Itself(), is_package=True)
    if not isinstance(sys.modules.get(NAME), _TensorFlow):
        return None
    first, _, below = name.removeprefix(f"{NAME}.").partition(".")
    path = f"{_KERAS}.{below}" if first == "keras" and below else _KERAS if first == "keras" else f"{_KERAS}.{first}"
    if first != "keras" and (first not in _PARTS or below):
        return None
    return ModuleSpec(name, _Alias(path), is_package=True)


class _TensorFlow(ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name == "keras":
            return importlib.import_module(_KERAS)
        if name in _PARTS:
            return importlib.import_module(f"{_KERAS}.{name}")
        if name in _DTYPES:
            return name
        raise AttributeError(name if name.startswith("__") else LACKS.format(f"tf.{name}"))


class _Itself(Loader):
    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _TensorFlow(spec.name, __doc__)

    def exec_module(self, module: Any) -> None:
        import keras

        module.__version__ = f"2.0.0+keras.{keras.__version__}.on.torch"
        module.newaxis = None
        module.random = SimpleNamespace(set_seed=keras.utils.set_random_seed)
        devices = {"list_physical_devices": _no_devices, "list_logical_devices": _no_devices}
        module.config = SimpleNamespace(**devices, experimental=SimpleNamespace(**devices))
        print(SAYS.format(keras.__version__), file=sys.stderr, flush=True)  # noqa: T201 - for whoever reads the log


class _Alias(Loader):
    """Gives a module of Keras under another name; the module stays what it is."""

    def __init__(self, path: str) -> None:
        self._path = path

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        try:
            module = importlib.import_module(self._path)
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(str(error), name=spec.name) from None
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec


def _no_devices(kind: str = "") -> list[Any]:  # noqa: ARG001 - called with it
    """Which one a worker computes on is the engine's affair."""
    return []
